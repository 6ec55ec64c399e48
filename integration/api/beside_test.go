package api

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

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

// rounds is how many clients of a server have sent rounds of a queue.
func rounds(t testing.TB, server *redistest.Server) (n int) {
	t.Helper()
	c := redistest.Dial(t, server.URL())
	list, err := c.Do("CLIENT", "LIST")
	must(t, err)
	for line := range strings.Lines(string(list.([]byte))) {
		if strings.Contains(line, "cmd=evalsha") {
			n++
		}
	}
	return n
}

// While tasks flow, two rounds are under way at once. Whichever of their replies
// are lost, and whichever round is repeated before or behind the other, every task
// is handled once, and finishes.
func TestRoundsBesideEachOtherLoseReplies(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	sender := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Minute})
	var handled tally
	p.Queue("q").Handle(handled.handle, &worqr.HandleOptions{Concurrency: 64})
	const n = 60_000
	enqueue(t, sender, numbers("", n)...)
	stop := run(t, p)
	lost, most := 0, 0
	for handled.len() < n {
		select {
		case <-link.LoseReplyTo("p:working:{q}:"):
			lost++
		case <-time.After(50 * time.Millisecond):
		}
		from := handled.len() // then some flow
		eventually(t, "the tasks flow on", func() bool { most = max(most, rounds(t, server)); return handled.len() >= min(n, from+500) })
	}
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == n })
	for payload, times := range handled.times {
		if times != 1 {
			t.Errorf("%s was handled %d times", payload, times)
		}
	}
	is.Equal(p.Stats().TakenOver, int64(0))
	t.Logf("%d replies were lost, %d connections carried rounds", lost, most)
	is.True(lost >= 10)
	is.True(most >= 2)
	stop()
	nothingLeftAt(t, server, "p", "q", ":workers")
}

// Where the second connection for rounds cannot be had, the first one does, and
// nobody is troubled.
func TestNoSecondConnectionForRounds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	sender := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	var log bytes.Buffer
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	var handled tally
	q := p.Queue("q")
	q.Handle(handled.handle, &worqr.HandleOptions{Concurrency: 64})
	stop := run(t, p)
	enqueue(t, q, "first")
	eventually(t, "it works", func() bool { return handled.len() == 1 })
	c := redistest.Dial(t, server.URL())
	clients, err := c.Do("CLIENT", "LIST")
	must(t, err)
	_, err = c.Do("CONFIG", "SET", "maxclients", strconv.Itoa(strings.Count(string(clients.([]byte)), "\n")+1))
	must(t, err)
	const n = 30_000
	enqueue(t, sender, numbers("", n)...)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == n+1 })
	stop()
	is.Equal(log.String(), "")
}

// What goes back starts before all that waits, however late the round comes that
// puts it back.
func TestNothingOvertakesWhatGoesBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := &tamper{Url: server.URL(), Before: func(_ string, args []any) error {
		if slices.Contains(args, any("stop")) {
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	}}
	sender := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Minute})
	const n = 30_000
	type begun struct {
		number int
		token  int64
	}
	var mu sync.Mutex
	var all []begun
	p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		number, err := strconv.Atoi(string(t.Payload))
		mu.Lock()
		all = append(all, begun{number, t.Token})
		pause := len(all)%2000 < 64
		mu.Unlock()
		if pause { // all of them at once, so that what is held ahead goes back
			time.Sleep(10 * time.Millisecond)
		}
		return err
	}, &worqr.HandleOptions{Concurrency: 64})
	enqueue(t, sender, numbers("", n)...)
	run(t, p)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == n })
	is.Equal(len(all), n)
	slices.SortFunc(all, func(a, b begun) int { return int(a.token - b.token) })
	for i := 1; i < n; i++ {
		if all[i].number < all[i-1].number {
			t.Errorf("%d came before %d", all[i-1].number, all[i].number)
		}
	}
}
