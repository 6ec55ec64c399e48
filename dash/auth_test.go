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

// BasicAuth lets in who knows the password, at any host, and says nothing about it to others.
func TestBasicAuth(t *testing.T) {
	is := parallel(t)
	var log peertest.Journal
	p := open(t, worqr.Options{})
	ask := func(user, password string, does ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://ops.example.com/worqr/", nil)
		if len(does) > 0 {
			r.SetBasicAuth(does[0], does[1])
		}
		w := httptest.NewRecorder()
		dash.BasicAuth(user, password, dash.New(p, &dash.Options{Logger: log.Logger()})).ServeHTTP(w, r)
		return w
	}
	is.Equal(ask("ann", "secret", "ann", "secret").Code, http.StatusOK)
	is.Equal(ask("", "secret", "anybody", "secret").Code, http.StatusOK)
	for _, w := range []*httptest.ResponseRecorder{
		ask("ann", "secret"), ask("ann", "secret", "bob", "secret"), ask("ann", "secret", "ann", "Secret"), ask("ann", "secret", "ann", ""),
		ask("ann", "secret", "", "secret"), ask("", "", "ann", ""), ask("ann", "", "ann", ""), ask("", ""),
	} {
		is.Equal(w.Code, http.StatusUnauthorized)
		is.True(strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic "))
		is.Equal(strings.TrimSpace(w.Body.String()), "wrong or no password")
		is.Equal(w.Header().Get("Cache-Control"), "no-store")
	}
	is.Equal(len(log.Lines("ecret")), 0)
}
