package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// serving runs the dashboard, and returns its URL.
func (s *shell) serving(c *serveCommand) string {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	errs, ended := make(peertest.Said, 1000), make(chan error, 1)
	c.Listen = "127.0.0.1:0"
	f := redistest.Sure(c.fleet())(s.T)
	go func() { ended <- c.Run(ctx, &console{in: strings.NewReader(""), out: errs, errs: errs}, f) }()
	s.Cleanup(func() {
		stop()
		s.is.NoErr(<-ended)
		f.close()
	})
	line := strings.TrimSpace(s.next(errs))
	at := strings.Index(line, "http://")
	if at < 0 {
		s.Fatal(line)
	}
	return line[at:]
}

// page fetches a page.
func (s *shell) page(url string) (status int, body string) {
	s.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r := redistest.Sure(client.Get(url))(s.T)
	defer r.Body.Close() //nolint:errcheck // it was only read
	return r.StatusCode, string(redistest.Sure(io.ReadAll(r.Body))(s.T))
}

func TestServe(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "emails", "a")
	doctor := redistest.Doctor(t, redistest.URL(), s.args[3]) // since it looks for findings
	url := s.serving(&serveCommand{target: target{Redis: doctor, Prefix: prefixName(s.args[3])}, Title: "our fleet"})
	status, body := s.page(url)
	s.is.Equal(status, http.StatusOK)
	s.is.True(strings.Contains(body, "emails") && strings.Contains(body, "our fleet"))
}

// The page answers while Redis is down.
func TestServeWithoutRedis(t *testing.T) {
	s := newShell(t)
	status, body := s.page(s.serving(&serveCommand{target: target{Redis: "redis://:" + canary + "@127.0.0.1:1"}}))
	s.is.True(status != http.StatusNotFound && strings.Contains(body, "Redis"))
	s.is.True(!strings.Contains(body, canary))
}

// A request that doesn't end keeps the command for a while, and doesn't make it fail.
func TestServeEnds(t *testing.T) {
	s := newShell(t)
	var conn net.Conn
	t.Cleanup(func() { s.is.NoErr(conn.Close()) }) // after the command
	url := s.serving(&serveCommand{target: target{Redis: "redis://127.0.0.1:1"}})
	conn = redistest.Sure(net.Dial("tcp", strings.Trim(url, "htp:/")))(t)
	redistest.Sure(io.WriteString(conn, "POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"))(t)
	redistest.Sure(conn.Read(make([]byte, 1)))(t) // it wants the rest
}

// Whoever has neither the password nor a name of the dashboard gets nothing.
func TestServeGuard(t *testing.T) {
	s := newShell(t)
	for _, test := range []struct {
		c              serveCommand
		host, password string
		status         int
	}{
		{serveCommand{}, "localhost:7780", "", http.StatusOK},
		{serveCommand{}, "evil.example", "", http.StatusMisdirectedRequest},
		{serveCommand{Insecure: true}, "[::1]:7780", "", http.StatusOK},
		{serveCommand{Insecure: true}, "evil.example", "", http.StatusMisdirectedRequest},
		{serveCommand{Insecure: true, Host: []string{"ops.example"}}, "ops.example:7780", "", http.StatusOK},
		{serveCommand{Insecure: true, Host: []string{"ops.example"}}, "localhost:7780", "", http.StatusOK},
		{serveCommand{Insecure: true, Host: []string{"ops.example"}}, "evil.example", "", http.StatusMisdirectedRequest},
		{serveCommand{Password: "x"}, "ops.example", "", http.StatusUnauthorized},
		{serveCommand{Password: "x"}, "ops.example", "y", http.StatusUnauthorized},
		{serveCommand{Password: "x"}, "ops.example", "x", http.StatusOK},
		{serveCommand{Password: "x", Host: []string{"ops.example"}}, "evil.example", "x", http.StatusMisdirectedRequest},
	} {
		test.c.target = target{Redis: "redis://127.0.0.1:1"}
		r := redistest.Sure(http.NewRequestWithContext(t.Context(), http.MethodGet, s.serving(&test.c)+"style.css", nil))(t)
		r.Host = test.host
		if test.password != "" {
			r.SetBasicAuth("any", test.password)
		}
		resp := redistest.Sure(http.DefaultClient.Do(r))(t)
		s.is.NoErr(resp.Body.Close())
		if resp.StatusCode != test.status {
			t.Errorf("%s %s: %s", test.host, test.password, resp.Status)
		}
	}
	s.is.True(strings.Contains(s.run(exitFailed, "serve", "--listen", ":0"), "set $WORQR_PASSWORD"))
	s.run(exitFailed, "serve", "--listen", "nowhere")
}
