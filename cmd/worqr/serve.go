package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/worqr/worqr/dash"
)

type serveCommand struct {
	target
	Listen       string   `default:"localhost:7780" placeholder:"HOST:PORT" help:"Where to listen; the default is localhost:7780."`
	AllowActions bool     `help:"Allow actions: pause, requeue, cancel, delete. By default, the dashboard is read-only."`
	HidePayloads bool     `help:"Don't show payloads."`
	Title        string   `placeholder:"TEXT" help:"Title of the pages."`
	Password     string   `env:"WORQR_PASSWORD" placeholder:"SECRET" help:"Password that the browser asks for, with any user. Pass it in $$WORQR_PASSWORD: other users of the machine can see arguments."`
	Insecure     bool     `help:"Accept connections from other machines without a password. Whoever reaches the port sees payloads."`
	Host         []string `placeholder:"NAME" help:"Host name at which browsers open the dashboard, if it has no password and isn't at localhost or an IP address. Repeat it for several."`
}

func (c *serveCommand) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		return usage("the value of --listen is not valid; write HOST:PORT, such as localhost:7780")
	case !isLocal(host) && c.Password == "" && !c.Insecure:
		return usage("to accept connections from other machines, set $WORQR_PASSWORD or pass --insecure")
	}
	return nil
}

// isLocal reports whether only this machine can reach a host.
func isLocal(host string) bool {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (c *serveCommand) Run(ctx context.Context, con *console, f *fleet) error {
	log := slog.New(slog.NewTextHandler(con.errs, nil))
	o := &dash.Options{Title: c.Title, AllowActions: c.AllowActions, Logger: log}
	if o.Hosts = c.Host; c.Password != "" && len(c.Host) == 0 {
		o.Hosts = []string{"*"} // a page of another name doesn't have the password
	}
	if c.HidePayloads {
		o.Payload = dash.HidePayloads
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: c.guard(dash.New(f.Peer, o)), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	con.say("the dashboard is at http://%s/", l.Addr())
	if err := f.Ping(ctx); err != nil && ctx.Err() == nil {
		con.say("Redis doesn't answer yet; the pages say so")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	if s.Shutdown(ending) != nil { // a request doesn't end
		return s.Close()
	}
	return nil
}

// patience is how long requests may take to end.
const patience = 5 * time.Second

func (c *serveCommand) guard(h http.Handler) http.Handler {
	want := sha256.Sum256([]byte(c.Password))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(password))
		if c.Password != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="worqr"`)
			http.Error(w, "The password is missing or wrong.", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}
