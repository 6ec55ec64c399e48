package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A said holds log lines.
type said struct {
	mu    sync.Mutex // protects the field below
	lines []string
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(line))
	return len(line), nil
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "")
}

// has returns how many lines contain a text.
func (s *said) has(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Tasks that have expired, have crashed too often, or are too large fail in the next round; no handler gets them.
func TestFailsUnbegun(t *testing.T) {
	t.Parallel()
	w := served(t, redistest.URL(), nil, func(_ context.Context, a *Attempt) ([]byte, error) {
		t.Errorf("%q runs", a.Payload[:min(9, len(a.Payload))])
		return nil, nil
	})
	n := w.keys
	w.do("HSET", strings.Replace(n.Waiting(), ":queues:", ":crashes:", 1), store.DigestOf([]byte("crashed")), 3)
	w.do("LPUSH", n.Waiting(), "crashed", strings.Repeat("x", 5<<20))
	s := w.join("w")
	w.add(s, "k:x", store.Record{Payload: []byte("x"), Expires: 1}, 0)
	w.add(s, "k:large", store.Record{Payload: make([]byte, 2<<20), Expires: 1}, 0)
	w.eventually("all have failed", func() bool { return w.counts.Failed.Load() == 4 })
	kinds := map[store.Kind]int{}
	for _, f := range w.failed() {
		kinds[f.Failure.Kind]++
	}
	is.New(t).Equal(kinds, map[store.Kind]int{store.Expired: 2, store.Crashed: 1, store.Malformed: 1})
	is.New(t).Equal(w.counts.Expired.Load(), int64(2))
	is.New(t).Equal(w.counts.Failures.Load(), int64(0))
	w.none("w")
}

// No message cancels what has no digest: tasks with keys, and those that aren't read yet.
func TestCancelOfNoDigest(t *testing.T) {
	is := is.New(t)
	for _, held := range []*Attempt{{Name: "k:a"}, {}} {
		is.True(!held.isNamed(store.CanceledBy([]byte("sha1:" + strings.Repeat("0", 40) + ":5"))))
	}
}

// A cancel stops what runs: by the heartbeat that a wake asks for, or by the message. Copies that are enqueued later
// run.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ by, payload string }{
		"heartbeat": {"heartbeat", "a"}, "message": {"message", "a"}, "message that has the digest": {"message", strings.Repeat("a", 2000)},
		"message that looks like one with a digest": {"message", "sha1:" + store.DigestOf([]byte("b")) + ":1"},
		"message that almost looks like one":        {"message", "sha1:" + store.DigestOf([]byte("b")) + ":+1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by := c.by
			began, stopped := make(chan string, 9), make(chan error, 9)
			w := served(t, redistest.URL(), func(o *Options) { o.Concurrency = 2 }, func(ctx context.Context, a *Attempt) ([]byte, error) {
				began <- string(a.Payload)
				<-ctx.Done()
				stopped <- context.Cause(ctx)
				return nil, ctx.Err()
			})
			s := w.join("w")
			w.enqueue(c.payload)
			<-began
			if by == "message" {
				w.queued("cancel", c.payload, "") // and its caller dies
			} else {
				s.Unlisten()
				w.cancel(c.payload)
				w.beat(s)
			}
			if cause := <-stopped; cause != ErrCanceled {
				t.Error("it was stopped by", cause)
			}
			w.eventually("it's canceled", func() bool { return w.counts.Canceled.Load() == 1 })
			w.none("w")
			w.enqueue(c.payload)
			s.Wake()
			<-began
			s.Interrupt()
			<-stopped
		})
	}
}

// A caller that gives up while the worker leaves doesn't keep it from leaving.
func TestGivesUpWhileLeaving(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.URL())
	s := w.join("w")
	w.enqueue("a")
	got := redistest.Sure(s.Start(t.Context(), 1))(t)
	holds := func(what func() bool) func() bool {
		return func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return what()
		}
	}
	s.mu.Lock()
	s.resting = true // as after a refusal
	s.mu.Unlock()
	ctx, giveUp := context.WithCancel(t.Context())
	ended, left := make(chan error), make(chan error)
	go func() { ended <- got[0].End(ctx, store.End{Verb: store.Done}) }()
	w.eventually("there's an end to say", holds(func() bool { return len(s.say) == 1 }))
	go func() { left <- s.Leave(t.Context()) }()
	w.eventually("leaving waits for it", holds(func() bool { return s.closing }))
	giveUp()
	is.New(t).Equal(<-ended, context.Canceled)
	is.New(t).NoErr(<-left)
}

// A time that isn't whole, or is too far away to be one, holds up nothing: other programs write anything.
func TestStrangeTimes(t *testing.T) {
	t.Parallel()
	for _, score := range []string{"+inf", "99999999999999.5", "1e300"} {
		for _, key := range []string{"schedule", "workers", "suspects"} {
			t.Run(key+" "+score, func(t *testing.T) {
				t.Parallel()
				w := served(t, redistest.URL(), nil, func(context.Context, *Attempt) ([]byte, error) { return nil, nil })
				s := w.join("w")
				w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
				w.do("ZADD", strings.Replace(w.keys.Waiting(), ":queues:", ":"+key+":", 1), score, "k:x")
				if key == "schedule" {
					w.do("HSET", w.keys.Tasks(), "k:x", (&store.Record{Payload: []byte("x")}).Append(nil))
				}
				for range 2 {
					last := w.number("HGET", w.keys.Rounds(), "w")
					s.Wake()
					w.eventually("it has looked", func() bool { return w.number("HGET", w.keys.Rounds(), "w") > last })
					w.queued("evict", "", 0, 1000)
				}
				w.enqueue("a")
				w.eventually("it's finished", func() bool { return w.counts.Finished.Load() == 1 })
			})
		}
	}
}

// Any number of names without records, as when somebody deletes tasks, loses nothing else.
func TestNamesWithoutRecords(t *testing.T) {
	t.Parallel()
	w := served(t, redistest.URL(), nil, func(context.Context, *Attempt) ([]byte, error) { return nil, nil })
	var ghosts []any
	var payloads []string
	for i := range 10_000 {
		ghosts = append(ghosts, i, fmt.Sprint("k:", i))
	}
	for i := range 100 {
		payloads = append(payloads, fmt.Sprint(i))
	}
	s := w.join("w")
	w.do("ZADD", w.keys.Ready(), ghosts...)
	w.enqueue(payloads...)
	s.Wake()
	w.eventually("all are finished", func() bool { return w.counts.Finished.Load() == 100 })
	w.eventually("no name is left", func() bool { return w.number("EXISTS", w.keys.Ready()) == 0 })
	w.none("w")
}

// While nothing happens, an idle worker sends no rounds, whatever waits that it can't start.
func TestNoRoundsWhileIdle(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(w *world){
		"empty":  func(*world) {},
		"paused": func(w *world) { w.queued("pause", "me"); w.enqueue("a", "b") },
		"tasks are being returned": func(w *world) {
			w.do("ZADD", w.keys.Leaving(), 0, "v")
			w.enqueue("a")
		},
		"a time is claimed": func(w *world) {
			w.do("HSET", w.keys.Tasks(), "k:x", (&store.Record{}).Append(nil))
			w.do("ZADD", w.keys.Schedule(), time.Now().Add(time.Hour).UnixMilli(), "k:x")
		},
		"another queue has a risky task": func(w *world) {
			w.engine.risk.Store(true)
			w.do("HSET", w.keys.Crashes(), store.DigestOf([]byte("a")), 2)
			w.enqueue("a")
		},
		"a name without a record": func(w *world) { w.do("ZADD", w.keys.Ready(), 1, "k:x") },
		"the list is none":        func(w *world) { w.do("SET", w.keys.Waiting(), "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := served(t, redistest.URL(), func(o *Options) { o.Prefetch = 100 }, func(context.Context, *Attempt) ([]byte, error) { return nil, nil })
			s := w.join("w")
			w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
			setup(w)
			s.Wake()
			sent := func() int64 {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.index
			}
			w.eventually("half a second passes without a round", func() bool {
				before := sent()
				time.Sleep(500 * time.Millisecond)
				return sent() == before
			})
		})
	}
}

// A task that is finished when its worker leaves doesn't go back because someone has flushed the scripts meanwhile.
func TestLeavesAfterFlush(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	redistest.OneServer(t, redistest.OwnServer)
	server := redistest.Start(t)
	w := newWorld(t, server.URL())
	w.conn = redistest.Dial(t, server.URL())
	var s *Session
	w.Serve(func(_ context.Context, a *Attempt) ([]byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resting = string(a.Payload) == "b" // then the end waits
		return nil, nil
	}, plain)
	s = w.join("w")
	w.enqueue("a")
	w.eventually("the scripts are known", func() bool { return w.counts.Finished.Load() == 1 })
	w.enqueue("b")
	w.eventually("there's an end to say", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.say) == 1
	})
	w.do("SCRIPT", "FLUSH")
	s.mu.Lock()
	s.resting = false
	s.mu.Unlock()
	is.NoErr(s.Leave(t.Context()))
	is.Equal(w.counts.Finished.Load(), int64(2))
	is.Equal(w.number("LLEN", w.keys.Waiting()), 0)
}
