package worqr

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// Beats wait for nobody: neither for a leave that takes long, nor for what a worker
// does to come back.
func TestBeatsWaitForNobody(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p, err := Open(redistest.URL(), &Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	is.NoErr(err)
	t.Cleanup(func() { _ = p.Close() })
	is.NoErr(p.StartWorker(t.Context()))
	is.NoErr(p.Queue("q").StartWork(t.Context()))
	w := p.present()
	is.NoErr(w.await(t.Context())) // as a leave does
	defer w.pass()
	c := redistest.Conn(t)
	deadlines := map[string]bool{}
	for end := time.Now().Add(20 * time.Second); len(deadlines) < 10; { // in far more than a lease
		deadline, err := redis.String(c.Do("ZSCORE", prefix+":workers:{q}", p.WorkerID()))
		is.NoErr(err)
		deadlines[deadline] = true
		if time.Now().After(end) {
			t.Fatalf("%d beats came", len(deadlines))
		}
	}
}
