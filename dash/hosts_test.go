package dash_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
)

// A web page whose name resolves to the dashboard gets nothing from it, and does nothing.
func TestHosts(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("q"), "a")
	allow := func(*http.Request, dash.Action) error { return nil }
	for _, test := range []struct {
		opts    dash.Options
		answers string // hosts
		refuses string
	}{
		{dash.Options{}, "localhost localhost:80 LOCALHOST. worqr.localhost:80 127.0.0.1 127.0.0.1:80 10.1.2.3 [::1] [::1]:80 ::1 [fe80::1%25eth0]:80",
			"evil.example evil.example:80 localhost.evil.example notlocalhost 127.0.0.1.evil.example . 1.2.3"},
		{dash.Options{Authorize: allow}, "localhost evil.example", ""},
		{dash.Options{Hosts: []string{"*"}}, "localhost evil.example", ""},
		{dash.Options{Hosts: []string{"Ops.Example.:8080", "[2001:db8:0::1]"}, Authorize: allow}, "ops.example ops.example:443 OPS.EXAMPLE. [2001:DB8::1]:80 localhost 127.0.0.1:80", "evil.example ops.example.evil.example"},
	} {
		test.opts.AllowActions = true
		h := dash.New(p, &test.opts)
		ask := func(method, page, host string) *httptest.ResponseRecorder {
			r, w := httptest.NewRequest(method, "/"+page, strings.NewReader("verb=delete&name=q&confirm=q")), httptest.NewRecorder()
			r.Host = host
			h.ServeHTTP(w, r)
			return w
		}
		for host := range strings.FieldsSeq(test.answers) {
			if w := ask(http.MethodHead, "stream?show=server", host); w.Code != http.StatusOK {
				t.Errorf("%v: %s: %d", test.opts.Hosts, host, w.Code)
			}
		}
		for _, host := range strings.Fields(test.refuses) {
			for _, page := range []string{"", "queue?name=q", "style.css", "none"} {
				w := ask(http.MethodGet, page, host)
				if w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "Options.Hosts") {
					t.Errorf("%v: %s: %s: %d %.100s", test.opts.Hosts, host, page, w.Code, w.Body)
				}
			}
			is.Equal(ask(http.MethodHead, "stream?show=overview", host).Code, http.StatusMisdirectedRequest)
			is.Equal(ask(http.MethodPost, "act", host).Code, http.StatusMisdirectedRequest)
		}
	}
	is.Equal(peertest.Stats(t, p.Queue("q")).Waiting, 1)
}
