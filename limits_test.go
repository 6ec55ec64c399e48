package worqr_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A nilError is an error that cannot be asked what it says when it is nil.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A handler's error that panics when it is read ends the task, not the process.
func TestUnreadableError(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	q.Handle(func(context.Context, *worqr.Task) error {
		var none *nilError
		return none
	}, &worqr.HandleOptions{MaxRetries: -1})
	enqueue(t, q, "a")
	run(t, p)
	eventually(t, "it has failed", func() bool { return stats(t, q).Failed == 1 })
	is.Equal(p.Stats().Running, int64(0))
}

// However much is allowed at once, it is not asked for at once.
func TestHugeOptions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	done := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error { done <- string(t.Payload); return nil },
		&worqr.HandleOptions{Concurrency: math.MaxInt})
	run(t, p)
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Concurrency: math.MaxInt})) // there is not as much memory
	enqueue(t, q, "a")
	receive(t, done, 1)
	is.True(is_(q.SetOptions(&worqr.HandleOptions{Weight: math.MaxInt}), worqr.ErrBadOption))
}

// accuse has it look as if n workers had died holding the payload.
func accuse(t testing.TB, prefix, payload string, n int) {
	t.Helper()
	_, err := redistest.Conn(t).Do("HSET", prefix+":ledger:{q}", digestOf(payload), n)
	must(t, err)
}

// What is due behind many tasks of which a peer runs one at a time gets its turn.
func TestBehindManyNearlyCrashed(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond})
	q := p.Queue("q")
	started, release := make(chan string, 1000), make(chan struct{})
	defer close(release)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		if t.Crashes > 0 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 4, Grace: time.Millisecond})
	for i := range 450 {
		s := fmt.Sprint("accused", i)
		accuse(t, prefix, s, 2)
		enqueue(t, q, s)
	}
	run(t, p)
	receive(t, started, 1)
	must(t, q.Put(t.Context(), "key", []byte("healthy"), nil))
	is.New(t).Equal(receive(t, started, 1), []string{"healthy"})
}

// A task that nobody took, and that could not be given back, is given back when
// that is possible again.
func TestRefusedGiveBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 600 * time.Millisecond})
	q := working(t, p, "q")
	_, err := q.StartTask(t.Context()) // the connection is made
	is.True(is_(err, worqr.ErrNoTask))
	enqueue(t, q, "a")
	c, other := redistest.Dial(t, server.URL()), redistest.Dial(t, server.URL())
	_, err = c.Do("CLIENT", "PAUSE", 300, "WRITE")
	is.NoErr(err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = q.StartTask(ctx)
	is.True(err != nil)
	_, err = other.Do("SET", "p:queues:{q}", "of another type") // waits for the end of the pause, behind the start
	is.NoErr(err)
	_, err = c.Do("DEL", "p:queues:{q}")
	is.NoErr(err)
	eventually(t, "the task is back", func() bool {
		n, err := q.Len(t.Context())
		return err == nil && n == 1
	})
}
