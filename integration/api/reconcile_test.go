package api

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Redis comes back without the end of a task, of a key that is to run again, on a queue
// that is never silent.
func TestStrayOfBusyQueue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond})
	q := p.Queue("q")
	keyed := make(chan string, 10)
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		if task.Key != "" {
			keyed <- string(task.Payload)
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	put(t, q, "key", "first", nil)
	receive(t, keyed, 1)
	eventually(t, "it has ended", func() bool { return p.Stats().Finished == 1 })

	busy, stop := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	defer producers.Wait()
	defer stop()
	for range 3 {
		producers.Go(func() {
			for busy.Err() == nil {
				_ = q.Enqueue(busy, []byte("x"))
			}
		})
	}
	c := redistest.Conn(t)
	for _, cmd := range [][]any{
		{"LPUSH", prefix + ":process:{q}:stray", "first"},
		{"ZADD", prefix + ":working:{q}:" + p.WorkerID(), 1, "stray"},
		{"HSET", prefix + ":entries:{q}", "stray", "k:key"},
		{"HSET", prefix + ":keyed:{q}:k:key", "process", "stray", "tried", 0, "died", 0},
	} {
		_, err := c.Do(cmd[0].(string), cmd[1:]...)
		is.NoErr(err)
	}
	put(t, q, "key", "second", nil)
	is.Equal(receive(t, keyed, 1), []string{"second"})
	is.Equal(p.Stats().TakenOver, int64(0)) // of what it knew
}

// What Redis believes a worker to hold is more than one reply may bring.
func TestStrayAmongMany(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond})
	q := working(t, p, "q")
	const thousands = 66 // with their scores, more than 65,536 values
	for range thousands {
		enqueue(t, q, numbers("", 1000)...)
		_, err := q.StartTasks(t.Context(), 1000)
		is.NoErr(err)
	}
	c := redistest.Conn(t)
	_, err := c.Do("LPUSH", prefix+":process:{q}:stray", "stray")
	is.NoErr(err)
	_, err = c.Do("ZADD", prefix+":working:{q}:"+p.WorkerID(), thousands*1000, "stray") // a token that another has
	is.NoErr(err)
	eventually(t, "it went back", func() bool { return fmt.Sprint(waiting(t, q)) == "[stray]" })
	is.Equal(p.Stats().TakenOver, int64(0))
}
