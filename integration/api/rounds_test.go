package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A tally counts how often each payload was handled.
type tally struct {
	mu    sync.Mutex
	times map[string]int
}

func (c *tally) handle(_ context.Context, t *worqr.Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.times[string(t.Payload)]++
	return nil
}

func (c *tally) of(payload string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times[payload]
}

func (c *tally) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

// rounds returns how many clients of a server have sent rounds of a queue.
func rounds(t testing.TB, server *redistest.Server) (n int) {
	t.Helper()
	c := redistest.Dial(t, server.URL())
	list := sure(c.Do("CLIENT", "LIST"))(t)
	for line := range strings.Lines(string(list.([]byte))) {
		if strings.Contains(line, "cmd=evalsha") {
			n++
		}
	}
	return n
}

// While tasks flow, two rounds are in flight at the same time. Whichever replies are lost, and in
// whichever order rounds are repeated, every task is handled once and finishes.
func TestRoundsBesideEachOtherLoseReplies(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	sender := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Minute})
	var handled tally
	p.Queue("q").Handle(handled.handle, &worqr.HandleOptions{Concurrency: 64})
	stop := run(t, p)
	n, lost, most := 0, 0, 0
	for lost < 20 || most < 2 {
		ended := link.LoseReplyTo("\r\n{q}\r\n") // before the tasks, which might all be done otherwise
		enqueue(t, sender, numbers(fmt.Sprint(lost, "-"), 1500)...)
		n += 1500
		receive(t, ended, 1)
		lost++
		eventually(t, "the tasks flow on", func() bool { most = max(most, rounds(t, server)); return handled.len() >= n-500 })
	}
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == int64(n) })
	for payload, times := range handled.times {
		if times != 1 {
			t.Errorf("%s was handled %d times", payload, times)
		}
	}
	is.Equal(p.Stats().TakenOver, int64(0))
	stop()
	nothingLeftAt(t, redistest.Dial(t, server.URL()), "p", "q", ":workers")
}

// After Redis has lost the end of a task with a key, the next task under that key runs, even on a
// queue that is never idle.
func TestStrayOfBusyQueue(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond})
	keyed := make(chan string, 10)
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		if task.Key != "" {
			keyed <- string(task.Payload)
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("first")})
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
	c, stray := redistest.Conn(t), p.WorkerID()+".0.1.1n"
	redistest.DoAll(t, c, [][]any{
		{"LPUSH", prefix + ":process:{q}:" + stray, "k:key"},
		{"ZADD", prefix + ":working:{q}:" + p.WorkerID(), 1, stray},
		{"HSET", prefix + ":tasks:{q}", "k:key", recordOf(0, "first")},
		{"HSET", prefix + ":runs:{q}", "k:key", stray + ":0:0:"},
	})
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("second")})
	is.Equal(receive(t, keyed, 1), []string{"second"})
	is.Equal(p.Stats().TakenOver, int64(0)) // none that the worker knew of
}

// Redis lists more tasks as held by a worker than fit in one reply.
func TestStrayAmongMany(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond})
	q := working(t, p, "q")
	const times, each = 132, 500 // with their scores, more than 131,072 values
	for range times {
		enqueue(t, q, numbers("", each)...)
		sure(q.StartTasks(t.Context(), each))(t)
	}
	c := redistest.Conn(t)
	stray := p.WorkerID() + ".0.1.1"
	redistest.Do(t, c, "LPUSH", prefix+":process:{q}:"+stray, "stray")
	redistest.Do(t, c, "ZADD", prefix+":working:{q}:"+p.WorkerID(), times*each, stray) // another task's token
	eventually(t, "it went back", func() bool { return fmt.Sprint(waiting(t, q)) == "[stray]" })
	is.Equal(p.Stats().TakenOver, int64(0))
}

// If Redis accepts no argument above 1 MiB, larger results and larger payloads block nothing.
func TestSmallBulks(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	long := strings.Repeat("x", 2<<20)
	redistest.Do(t, c, "LPUSH", "p:queues:{q}", long) // while Redis still accepts it
	redistest.Do(t, c, "CONFIG", "SET", "proto-max-bulk-len", 1<<20)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	q := p.Queue("q")
	enqueue(t, q, numbers("t", 5)...)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		t.Result = make([]byte, 2<<20)
		switch {
		case len(t.Payload) > 1<<20 && t.Retries == 0:
			return worqr.RetryAfter(errors.New("later"), time.Millisecond)
		case len(t.Payload) > 1<<20:
			return worqr.Permanent(errors.New("no"))
		}
		return nil
	}, nil)
	run(t, p)
	eventually(t, "all have ended", func() bool { s := p.Stats(); return s.Finished == 5 && s.Failed == 1 })
	is.Equal(p.Stats().Retried, int64(1))
	s := stats(t, q)
	is.Equal(s.Failed, 1)
	is.Equal(s.Waiting+s.Scheduled+s.Running, 0)
}
