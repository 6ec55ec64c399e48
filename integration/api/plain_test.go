package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// If the URL says cluster but the server isn't in cluster mode, every call says so and names the
// right URL, and stores nothing. A user that may not run CLUSTER gets the error when a worker
// starts.
func TestPlainServerAsCluster(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "dumb", "on", ">pw", "~*", "&*", "+@all", "-cluster")
	for _, user := range []string{"", "dumb:pw@"} {
		p := sure(worqr.Open("redis+cluster://"+user+server.Addr(), &worqr.Options{Prefix: "p", Logger: (&journal{}).Logger()}))(t)
		t.Cleanup(func() { _ = p.Close() })
		q := p.Queue("q")
		clear := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, worqr.ErrInvalid) || strings.Count(err.Error(), "this server isn't part of a cluster; use a URL with redis://") != 1 {
				t.Errorf("%s as %q: %v", what, user, err)
			}
		}
		q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		if user == "" {
			for range 2 {
				clear("Enqueue", q.Enqueue(t.Context(), []byte("x")))
			}
			clear("Stats", failure(q.Stats(t.Context())))
			clear("Check", failure(p.Check(t.Context(), nil)))
			is.Equal(len(redistest.Keys(t, c, "p")), 0)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute) // otherwise it would keep retrying
		clear("Run", p.Run(ctx))
		stop()
	}
}
