package main

import (
	"context"
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
	o := &dash.Options{Title: c.Title, AllowActions: c.AllowActions, Hosts: c.Host, Logger: log}
	if c.HidePayloads {
		o.Payload = dash.HidePayloads
	}
	h := dash.New(f.Peer, o)
	if c.Password != "" {
		h = dash.BasicAuth("", c.Password, h)
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
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
