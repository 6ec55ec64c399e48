package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/verdict"
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

// Raw and named tasks are handled, each once, and leave nothing behind.
func TestTasksRun(t *testing.T) {
	t.Parallel()
	for _, handlers := range []int{1, 10, 64} {
		t.Run(fmt.Sprint(handlers), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			ran := map[string]int{}
			w := served(t, redistest.URL(), func(o *Options) { o.Concurrency = handlers }, func(_ context.Context, a *Attempt) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[a.Name+"="+string(a.Payload)]++
				return nil, nil
			})
			s := w.join("w")
			const tasks = 3000
			var payloads []string
			for i := range tasks {
				payloads = append(payloads, fmt.Sprint(i))
			}
			w.enqueue(payloads...)
			for i := range 20 {
				w.add(s, fmt.Sprint("k:", i), store.Record{Payload: []byte("x")}, 0)
			}
			w.eventually("all are finished", func() bool { return w.counts.Finished.Load() == tasks+20 })
			mu.Lock()
			defer mu.Unlock()
			for what, n := range ran {
				if n != 1 {
					t.Errorf("%s ran %d times", what, n)
				}
			}
			is.New(t).Equal(len(ran), tasks+20)
			w.none("w")
		})
	}
}

// A task is retried until its handler returns no error, with what the previous attempt left. A task fails
// for good after the last retry.
func TestRetries(t *testing.T) {
	t.Parallel()
	w := served(t, redistest.URL(), func(o *Options) {
		o.MaxRetries = 2
		o.Backoff = func(*Attempt, error) time.Duration { return 0 }
	}, func(_ context.Context, a *Attempt) ([]byte, error) {
		if string(a.Payload) == "bad" || a.Retries < 2 {
			return nil, fmt.Errorf("no %d", a.Retries)
		}
		if a.Error != "no 1" {
			t.Errorf("the error is %q", a.Error)
		}
		return nil, nil
	})
	s := w.join("w")
	w.enqueue("good", "bad")
	w.add(s, "k:x", store.Record{Payload: []byte("good")}, 0)
	w.add(s, "k:y", store.Record{Payload: []byte("bad"), Metadata: store.Metadata{MaxRetries: -1}}, 0)
	w.eventually("all have ended", func() bool { return w.counts.Finished.Load() == 2 && w.counts.Failed.Load() == 2 })
	w.none("w")
	failed := w.failed()
	is.New(t).Equal(len(failed), 2)
	for _, f := range failed {
		want := map[string]string{"": "no 2", "k:y": "no 0"}[f.Failure.Back]
		if f.Failure.Error != want || f.Failure.Kind != store.Failed {
			t.Errorf("%+v", f.Failure)
		}
	}
}

// A scheduled task starts at its time: the worker has claimed it, and nothing here sends heartbeats.
func TestClaim(t *testing.T) {
	t.Parallel()
	ran := make(chan time.Time, 1)
	w := served(t, redistest.URL(), nil, func(context.Context, *Attempt) ([]byte, error) {
		ran <- time.Now()
		return nil, nil
	})
	s := w.join("w")
	at := time.Now().Add(300 * time.Millisecond)
	w.add(s, "k:x", store.Record{Payload: []byte("x")}, at.UnixMilli())
	if early := at.Sub(<-ran); early > 0 {
		t.Error("it starts too early, by", early)
	}
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

// A payload above 1 MiB is read before its handler is called.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("l", 3<<20)
	w := served(t, redistest.URL(), nil, func(_ context.Context, a *Attempt) ([]byte, error) {
		if string(a.Payload) != large || a.Name != "" && a.Metadata.Headers["a"] != "b" {
			t.Error("it isn't whole:", len(a.Payload), a.Metadata)
		}
		return nil, nil
	})
	s := w.join("w")
	w.enqueue(large, large)
	w.add(s, "k:x", store.Record{Payload: []byte(large), Metadata: store.Metadata{Headers: map[string]string{"a": "b"}}}, 0)
	w.eventually("all are finished", func() bool { return w.counts.Finished.Load() == 3 })
	w.none("w")
}

// A cancel stops what runs: by the heartbeat that a wake asks for, or by the message. Copies that are enqueued later
// run.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ by, payload string }{
		"heartbeat": {"heartbeat", "a"}, "message": {"message", "a"}, "message that has the digest": {"message", strings.Repeat("a", 2000)},
		"message that looks like one with a digest": {"message", "sha1:" + store.DigestOf([]byte("b")) + ":1"},
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

// A wake whose message is 0 asks for a heartbeat.
func TestBeatIsAskedFor(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	w := served(t, redistest.URL(), nil, func(ctx context.Context, a *Attempt) ([]byte, error) {
		close(began)
		<-ctx.Done()
		return nil, nil
	})
	w.join("w")
	w.enqueue("a")
	<-began
	w.cancel("a")
	<-w.beats
}

// Another program's message, without the last token in Redis, stops what the worker held when it came.
func TestForeignCancel(t *testing.T) {
	t.Parallel()
	began, stopped := make(chan struct{}), make(chan error)
	w := served(t, redistest.URL(), nil, func(ctx context.Context, a *Attempt) ([]byte, error) {
		close(began)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	w.join("w")
	w.enqueue("a")
	<-began
	w.do("PUBLISH", w.keys.Channel("cancel"), "a")
	is.New(t).Equal(<-stopped, ErrCanceled)
	w.eventually("it's canceled", func() bool { return w.counts.Canceled.Load() == 1 })
}

// In a pause, nothing starts, and the worker doesn't ask again and again. It starts once it's woken afterwards.
func TestPause(t *testing.T) {
	t.Parallel()
	w := served(t, redistest.URL(), nil, func(context.Context, *Attempt) ([]byte, error) { return nil, nil })
	s := w.join("w")
	w.queued("pause", "me")
	w.enqueue("a", "b")
	s.Wake()
	w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
	w.beat(s)
	last := w.number("HGET", w.keys.Rounds(), "w")
	w.beat(s)
	time.Sleep(50 * time.Millisecond)
	if now := w.number("HGET", w.keys.Rounds(), "w"); now > last+1 {
		t.Error(now-last, "rounds in a pause")
	}
	w.queued("pause", "")
	w.eventually("both are finished", func() bool { return w.counts.Finished.Load() == 2 })
}

// While tasks of another worker are being returned, nothing starts; then those start first.
func TestReturn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	w := served(t, redistest.URL(), func(o *Options) { o.Concurrency = 1 }, func(_ context.Context, a *Attempt) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, string(a.Payload))
		return nil, nil
	})
	hand := newHand(w)
	other := hand.join("v")
	w.enqueue("a", "b", "c")
	got := redistest.Sure(other.Start(t.Context(), 2))(t)
	is.New(t).Equal(len(got), 2)
	w.do("ZADD", strings.Replace(w.keys.Waiting(), ":queues:", ":leaving:", 1), 0, "v") // fenced; the return isn't done
	s := w.join("w")
	w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
	is.New(t).NoErr(other.Leave(t.Context()))
	w.beat(s)
	w.eventually("all are finished", func() bool { return w.counts.Finished.Load() == 3 })
	mu.Lock()
	defer mu.Unlock()
	is.New(t).Equal(order, []string{"a", "b", "c"})
}

// newHand returns a view of the same queue that is served by hand.
func newHand(w *world) *world {
	w.Helper()
	h := worldOf(w, redistest.Sure(store.Open(redistest.URL(), store.Access{}))(w).Dial(), LeaseOf(time.Hour), strings.TrimSuffix(w.keys.Waiting(), ":queues:{q}"))
	h.conn = w.conn
	return h
}

// Tasks that are served by hand start in order, and end as the caller says.
func TestByHand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := newWorld(t, redistest.URL())
	s := w.join("w")
	_, err := s.Start(t.Context(), 5)
	if !errors.Is(err, ErrNoTask) {
		t.Fatal(err)
	}
	w.enqueue("a", "b", "c", "d")
	got := redistest.Sure(s.Start(t.Context(), 3))(t)
	is.Equal(len(got), 3)
	is.NoErr(got[0].End(t.Context(), store.End{Verb: store.Done}))
	is.Equal(got[0].End(t.Context(), store.End{Verb: store.Retry}), ErrNotOwner)
	is.NoErr(got[1].End(t.Context(), store.End{Verb: store.Stop}))
	is.NoErr(got[2].End(t.Context(), verdict.Final(errors.New("no"))))
	again := redistest.Sure(s.Start(t.Context(), 9))(t)
	is.Equal(len(again), 2)
	is.Equal(string(again[0].Payload), "b")
	is.Equal(string(again[1].Payload), "d")
	is.NoErr(s.Leave(t.Context()))
	is.Equal(again[0].End(t.Context(), store.End{Verb: store.Done}).Error(), lost(ErrNotWorking).Error())
	is.Equal(w.number("LLEN", w.keys.Waiting()), 2)
	_, err = s.Start(t.Context(), 1)
	is.Equal(err, ErrNotWorking)
}

// A prefetched task goes back at a heartbeat that sees an idle worker, and in the order of the starts.
func TestPrefetchedGoBack(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	w := served(t, redistest.URL(), func(o *Options) { o.Concurrency, o.Prefetch = 1, 3 }, func(context.Context, *Attempt) ([]byte, error) {
		<-block
		return nil, nil
	})
	defer close(block)
	s := w.join("w")
	w.enqueue("a", "b", "c", "d", "e")
	w.eventually("it holds four", func() bool { s.Wake(); return w.number("ZCARD", w.keys.Working("w")) == 4 })
	w.beat(s)
	is.New(t).Equal(w.number("LLEN", w.keys.Waiting()), 1)
	w.do("ZADD", w.keys.Idle(), 1, "v")
	w.beat(s)
	w.eventually("three are back", func() bool { return w.number("LLEN", w.keys.Waiting()) == 4 })
	is.New(t).Equal(fmt.Sprintf("%s", w.do("LRANGE", w.keys.Waiting(), 0, -1)), "[e d c b]")
}

// Draining, the queue takes no more tasks; leaving, it returns what it holds.
func TestDrainAndLeave(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	block, began := make(chan struct{}), make(chan struct{}, 9)
	w := served(t, redistest.URL(), func(o *Options) { o.Concurrency = 2 }, func(ctx context.Context, a *Attempt) ([]byte, error) {
		began <- struct{}{}
		select {
		case <-block:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	s := w.join("w")
	w.enqueue("a", "b", "c", "d")
	<-began
	<-began
	w.Drain()
	block <- struct{}{} // one ends, and no other begins
	w.eventually("it's finished", func() bool { return w.counts.Finished.Load() == 1 })
	s.Interrupt()
	w.HandlersDone()
	w.Stored(t.Context())
	is.NoErr(s.Leave(t.Context()))
	s.Unlisten()
	is.Equal(w.number("LLEN", w.keys.Waiting()), 3)
	is.Equal(w.number("ZCARD", w.keys.Workers()), 0)
	is.Equal(w.number("EXISTS", w.keys.Working("w")), 0)
	is.Equal(w.counts.Stopped.Load(), int64(1))
}

// A handler that ignores its context loses its slot after Grace, and its task ends.
func TestStuckHandler(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	defer close(block)
	w := served(t, redistest.URL(), func(o *Options) {
		o.Concurrency, o.Timeout, o.Grace, o.MaxRetries = 1, 10*time.Millisecond, 10*time.Millisecond, -1
	}, func(_ context.Context, a *Attempt) ([]byte, error) {
		if string(a.Payload) == "stuck" {
			<-block
		}
		return nil, nil
	})
	w.join("w")
	w.enqueue("stuck", "next")
	w.eventually("the next one is finished", func() bool { return w.counts.Finished.Load() == 1 && w.counts.Failed.Load() == 1 })
	is.New(t).Equal(w.counts.Stuck.Load(), int64(1))
	is.New(t).True(strings.Contains(w.failed()[0].Failure.Error, "its handler didn't return"))
}

// Panics are failures like others, and so are goroutines that end.
func TestPanics(t *testing.T) {
	t.Parallel()
	w := served(t, redistest.URL(), func(o *Options) { o.FailOnPanic = true }, func(_ context.Context, a *Attempt) ([]byte, error) { panic(string(a.Payload)) })
	w.join("w")
	w.enqueue("oh", "no")
	w.eventually("both have failed", func() bool { return w.counts.Failed.Load() == 2 })
	is.New(t).Equal(w.counts.Running.Load(), int64(0))
}

// The contexts of exclusive handlers end before others may start their tasks.
func TestExclusive(t *testing.T) {
	t.Parallel()
	began, cause := make(chan struct{}), make(chan error)
	w := worldOf(t, redistest.Sure(store.Open(redistest.URL(), store.Access{}))(t).Dial(), LeaseOf(300*time.Millisecond), redistest.Prefix(t))
	o := plain
	o.Exclusive = true
	w.Serve(func(ctx context.Context, _ *Attempt) ([]byte, error) {
		close(began)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, ctx.Err()
	}, o)
	w.join("w")
	w.enqueue("a")
	<-began
	is.New(t).Equal(<-cause, ErrLeaseExpired)
	w.eventually("it's back", func() bool { return w.counts.Stopped.Load() == 1 })
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
				return s.sent
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
