package api

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Whoever keeps the time hears of what is planned also while something that is
// due stands before it, which nobody may start yet.
func TestClockBehindWhatIsDue(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	accused(t, redistest.URL(), prefix, "q", 2)
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour}) // no beat helps
	q := p.Queue("q")
	started, release := make(chan string, 10), make(chan struct{})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- t.Key
		if t.Crashes > 0 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	defer close(release)
	receive(t, started, 1) // the other one is due, and left until this has ended
	idle(t, q, 1)
	is.Equal(stats(t, q).Scheduled, 1)
	put(t, q, "soon", "soon", &worqr.PutOptions{At: time.Now().Add(300 * time.Millisecond)})
	is.Equal(receive(t, started, 1), []string{"soon"})
}
