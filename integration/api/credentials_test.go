package api

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// While Credentials hangs and the connections are gone, the peer isn't ready, and the log names the
// function. A restart isn't needed: once Credentials works again, so does the peer, even though none
// of the calls that hang has returned.
func TestCredentialsHang(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	var hangs atomic.Bool
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	log := &journal{}
	p := sure(worqr.Open(server.URL(), &worqr.Options{
		Prefix: "p", Lease: time.Second, Logger: log.Logger(),
		Credentials: func(context.Context) (user, password string, err error) {
			if hangs.Load() {
				<-over
			}
			return "default", "", nil
		},
	}))(t)
	t.Cleanup(func() { _ = p.Close() })
	var handled tally
	q := p.Queue("q")
	q.Handle(handled.handle, nil)
	run(t, p)
	eventually(t, "it is ready", func() bool { return p.Ready() == nil })

	hangs.Store(true)
	redistest.Do(t, c, "CLIENT", "KILL", "TYPE", "normal")
	redistest.Do(t, c, "CLIENT", "KILL", "TYPE", "pubsub")
	eventually(t, "the lease expires", func() bool { return errors.Is(p.Ready(), worqr.ErrLeaseExpired) })
	eventually(t, "the log says that it hangs", func() bool { return len(log.Lines("a function in the options ha")) > 0 }) // one hasn't returned, or several haven't
	alive := httptest.NewRecorder()
	p.Livez().ServeHTTP(alive, nil)
	is.Equal(alive.Code, 200)

	hangs.Store(false)
	eventually(t, "it is ready again", func() bool { return p.Ready() == nil })
	eventually(t, "a task is enqueued", func() bool { return q.Enqueue(t.Context(), []byte("task")) == nil }) // the first reply may be lost
	eventually(t, "the task runs", func() bool { return handled.of("task") > 0 })
}
