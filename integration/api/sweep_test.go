package api

import (
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Sweep evicts a dead worker when no peer is left to do it.
func TestSweep(t *testing.T) {
	is := parallel(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 2, Hold: true, Lease: 300 * time.Millisecond}
	victim := spawn(t, c)
	p, q := openQueue(t, worqr.Options{Prefix: c.Prefix, Lease: c.Lease})
	enqueue(t, q, "a", "b", "c")
	victim.starts(t, 2)
	is.Equal(len(sure(p.Sweep(t.Context()))(t)), 0) // the worker is alive
	victim.Kill()
	eventually(t, "it is swept", func() bool { return len(sure(p.Sweep(t.Context()))(t)) == 1 })
	is.Equal(waiting(t, q), []string{"a", "b", "c"})
	nothingLeftBut(t, c.Prefix, "q", ":queues:{q}", ":ages:{q}", ":crashes:{q}") // which has the crashes of a and b
}
