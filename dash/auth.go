package dash

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// BasicAuth returns a handler that asks for a user and a password, and passes requests with both to h:
//
//	mux.Handle("/worqr/", dash.BasicAuth("ops", password, dash.New(peer, nil)))
//
// If user is "", it takes any name, so that the log of actions has the names of those who share the password. If password
// is "", it refuses every request. Comparing takes the same time whatever was sent. Since the browser doesn't send
// the password to another site, a dashboard behind it doesn't need Options.Hosts. Use it with TLS: the password is sent with
// each request. It doesn't limit how often someone may guess, so choose a long one.
func BasicAuth(user, password string, h http.Handler) http.Handler {
	wantUser, wantPassword := sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, given, _ := r.BasicAuth()
		gotUser, gotPassword := sha256.Sum256([]byte(name)), sha256.Sum256([]byte(given))
		same := subtle.ConstantTimeCompare(gotPassword[:], wantPassword[:])
		if user != "" {
			same &= subtle.ConstantTimeCompare(gotUser[:], wantUser[:])
		}
		if password == "" || same == 0 {
			secure(w.Header())
			w.Header().Set("WWW-Authenticate", `Basic realm="worqr", charset="UTF-8"`)
			http.Error(w, "wrong or no password", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), loggedIn{}, true)))
	})
}

// loggedIn marks the context of a request that BasicAuth has let through.
type loggedIn struct{}
