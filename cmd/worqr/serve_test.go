package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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
	go func() { ended <- c.Run(ctx, &console{in: strings.NewReader(""), out: errs, errs: errs}) }()
	s.Cleanup(func() {
		stop()
		s.is.NoErr(<-ended)
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

// Without a password, other hosts and other names get nothing.
func TestServeGuard(t *testing.T) {
	s := newShell(t)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})
	ask := func(c serveCommand, host, password string) int {
		r := httptest.NewRequest("GET", "http://"+host+"/", nil)
		if password != "" {
			r.SetBasicAuth("any", password)
		}
		w := httptest.NewRecorder()
		c.guard(h).ServeHTTP(w, r)
		return w.Code
	}
	s.is.Equal(ask(serveCommand{}, "localhost:7780", ""), 200)
	s.is.Equal(ask(serveCommand{}, "[::1]:7780", ""), 200)
	s.is.Equal(ask(serveCommand{}, "evil.example", ""), 421)
	s.is.Equal(ask(serveCommand{Insecure: true}, "evil.example", ""), 200)
	s.is.Equal(ask(serveCommand{Password: "x"}, "evil.example", ""), 401)
	s.is.Equal(ask(serveCommand{Password: "x"}, "evil.example", "y"), 401)
	s.is.Equal(ask(serveCommand{Password: "x"}, "evil.example", "x"), 200)
	s.is.True(strings.Contains(s.run(exitFailed, "serve", "--listen", ":0"), "set $WORQR_PASSWORD"))
	s.run(exitFailed, "serve", "--listen", "nowhere")
}
