package api

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// More than one round can take go back in their order.
func TestManyGoBackInOrder(t *testing.T) {
	t.Parallel()
	p := open(t, worqr.Options{})
	slow := newValve()
	slow.shut.Store(true)
	q := p.Queue("q")
	q.Handle(slow.handle, &worqr.HandleOptions{Concurrency: 1, Prefetch: 2500})
	all := numbers("", 3000)
	enqueue(t, q, all...)
	stop := run(t, p)
	receive(t, slow.starts, 1)
	eventually(t, "it holds many", func() bool { return queueStats(t, q).Running == 2501 })
	stop()
	if got := waiting(t, q); !slices.Equal(got, all) {
		at := 0
		for at < len(got) && at < len(all) && got[at] == all[at] {
			at++
		}
		t.Errorf("%d of %d back; out of order at %d: %v", len(got), len(all), at, got[at:min(at+5, len(got))])
	}
}

// Where Redis is far away, rounds bring as much as the handlers get through while the next
// ones are under way: what they wait for tasks does not count as their pace.
func TestFarAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const trip = 20 * time.Millisecond
	far := &tamper{Url: server.URL(), Before: func(string, []any) error { time.Sleep(trip); return nil }}
	p := far.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	q := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	var done atomic.Int64
	p.Queue("q").Handle(func(context.Context, *worqr.Task) error { done.Add(1); return nil }, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	idle(t, q, 1)
	conn := redistest.Dial(t, server.URL())
	const n = 10_000
	eventually(t, "there are few rounds", func() bool {
		before := done.Load()
		for range n / 1000 {
			enqueue(t, q, numbers("", 1000)...)
		}
		_, err := conn.Do("CONFIG", "RESETSTAT")
		must(t, err)
		eventually(t, "all ran", func() bool { return done.Load() == before+n })
		calls := redistest.Calls(t, conn, "evalsha")
		t.Logf("%d tasks by %d calls", n, calls)
		return calls < n/100
	})
}

// What a peer that drains under load gives back waits in its order.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	bad := 0
	for round := range 15 {
		p := open(t, worqr.Options{})
		q := p.Queue("q")
		var n atomic.Int64
		q.Handle(func(ctx context.Context, t *worqr.Task) error { n.Add(1); return nil }, &worqr.HandleOptions{Concurrency: 8})
		enqueue(t, q, numbers("", 20000)...)
		stop := run(t, p)
		for n.Load() < int64(1000+round*37) {
			time.Sleep(50 * time.Microsecond)
		}
		stop()
		got := waiting(t, q)
		last := -1
		for i, s := range got {
			k, _ := strconv.Atoi(s)
			if k < last {
				bad++
				t.Errorf("round %d: at %d: %d after %d (of %d)", round, i, k, last, len(got))
				break
			}
			last = k
		}
		p.Close()
		if bad > 3 {
			break
		}
	}
}

// A handler that begins with a context that has ended is watched like others.
func TestBornCanceledIsDisowned(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := p.Queue("q")
	release := make(chan struct{})
	var running atomic.Int64
	q.Handle(func(context.Context, *worqr.Task) error {
		running.Add(1)
		<-release // ignores its context
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Grace: 20 * time.Millisecond})
	run(t, p)
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	oq := other.Queue("q")
	idle(t, q, 1)
	link.Deafen(true)
	enqueue(t, oq, "a") // its wake is not heard
	options := worqr.HandleOptions{Concurrency: 1, Grace: 20 * time.Millisecond}
	must(t, q.SetOptions(&options)) // has it look
	eventually(t, "it is taken", func() bool { return queueStats(t, oq).Running == 1 })
	_, err := oq.Cancel(t.Context(), []byte("a"))
	must(t, err)
	link.Deafen(false)
	link.Cut()
	eventually(t, "it is disowned, if it was begun", func() bool {
		s := p.Stats()
		return running.Load() == 1 && s.StuckHandlers == 1 || running.Load() == 0 && s.Canceled == 1
	})
	close(release)
}

// What was held ahead is begun when there are more slots.
func TestMoreConcurrencyTakesReady(t *testing.T) {
	t.Parallel()
	p := open(t, worqr.Options{})
	slow := newValve()
	slow.shut.Store(true)
	q := p.Queue("q")
	q.Handle(slow.handle, &worqr.HandleOptions{Concurrency: 1, Prefetch: 4})
	enqueue(t, q, numbers("", 5)...)
	run(t, p)
	receive(t, slow.starts, 1)
	eventually(t, "it holds five", func() bool { return queueStats(t, q).Running == 5 })
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 5, Prefetch: 4}))
	deadline := time.After(3 * time.Second)
	for i := range 4 {
		select {
		case <-slow.starts:
		case <-deadline:
			t.Errorf("only %d more started in 3 s, with 4 slots free", i)
			for range 5 {
				slow.release <- struct{}{}
			}
			return
		}
	}
	for range 5 {
		slow.release <- struct{}{}
	}
}

// What was held ahead by wish goes back when that is wished no more.
func TestLessPrefetchGoesBack(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	slow, free := newValve(), newValve()
	slow.shut.Store(true)
	q := a.Queue("q")
	q.Handle(slow.handle, &worqr.HandleOptions{Concurrency: 1, Prefetch: 4})
	b.Queue("q").Handle(free.handle, &worqr.HandleOptions{Concurrency: 1})
	enqueue(t, q, numbers("", 5)...)
	run(t, a)
	receive(t, slow.starts, 1)
	eventually(t, "it holds five", func() bool { return queueStats(t, q).Running == 5 })
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 1, Prefetch: -1}))
	run(t, b)
	defer func() {
		for range 5 {
			slow.release <- struct{}{}
		}
	}()
	for at := time.Now(); free.through.Load() < 4; time.Sleep(5 * time.Millisecond) {
		if time.Since(at) > 4*time.Second {
			t.Errorf("with prefetch off, the neighbour did %d of 4 in 4 s", free.through.Load())
			return
		}
	}
}

// A finish that was refused, repeated, and whose reply was then lost, is no loss.
func TestFinishAfterRefusalAndLostReply(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	c := redistest.Dial(t, server.URL())
	enqueue(t, q, "a")
	task, err := q.StartTask(t.Context())
	is.NoErr(err)
	_, err = c.Do("SET", "p:schedule:{q}", "of another type")
	is.NoErr(err)
	is.True(task.Finish(t.Context()) != nil) // refused
	_, err = c.Do("DEL", "p:schedule:{q}")
	is.NoErr(err)
	lost := link.LoseReplyTo(task.AttemptID)
	err = task.Finish(t.Context())
	<-lost
	if err != nil {
		t.Errorf("it was finished, and Finish says %v; stats %+v", err, p.Stats())
	}
}

// A task under a key is not accused of deaths that it was never begun for.
func TestInnocentKeyHeldAhead(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond})
	admin := open(t, worqr.Options{Prefix: prefix})
	q := admin.Queue("q")
	started := make(chan string, 100)
	p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
		if string(t.Payload) == "innocent" {
			return nil
		}
		started <- string(t.Payload)
		<-ctx.Done()
		return context.Cause(ctx)
	}, &worqr.HandleOptions{Concurrency: 1, Prefetch: 10})
	run(t, p)
	idle(t, q, 1)
	must(t, q.Pause(t.Context()))
	past := time.Now().Add(-time.Hour)
	must(t, q.Put(t.Context(), "killer", []byte("killer"), &worqr.PutOptions{At: past}))
	must(t, q.Put(t.Context(), "innocent", []byte("innocent"), &worqr.PutOptions{At: past.Add(time.Minute)}))
	must(t, q.Resume(t.Context()))
	for i := range 4 { // two killers, one after the other; a worker dies with them each time
		receive(t, started, 1)
		time.Sleep(100 * time.Millisecond) // in which something could be taken ahead
		if i == 2 {
			must(t, q.Put(t.Context(), "another", []byte("killer"), &worqr.PutOptions{At: time.UnixMilli(1)})) // foremost
		}
		_, err := admin.FailWorker(t.Context(), p.WorkerID())
		must(t, err)
	}
	receive(t, started, 1)
	for f, err := range q.Failed(t.Context()) {
		must(t, err)
		if string(f.Payload) == "innocent" {
			t.Errorf("buried, and never begun: %s", f.Error)
		}
	}
}

// Where one death is enough, nothing is held that was not begun.
func TestOneCrashBuriesAhead(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond})
	g := newValve()
	q := p.Queue("q")
	q.Handle(g.handle, &worqr.HandleOptions{Concurrency: 1, MaxCrashes: 1})
	admin := open(t, worqr.Options{Prefix: prefix})
	run(t, p)
	g.warm(t, q)
	g.shut.Store(true)
	enqueue(t, q, numbers("", 500)...)
	receive(t, g.starts, 1)
	_, err := admin.FailWorker(t.Context(), p.WorkerID())
	must(t, err)
	g.shut.Store(false)
	g.release <- struct{}{}
	n := 0
	eventually(t, "all others ran", func() bool { s := queueStats(t, q); return s.Workers == 1 && s.Waiting+s.Running == 0 })
	for _, err := range q.Failed(t.Context()) {
		must(t, err)
		n++
	}
	if n > 1 {
		t.Errorf("%d tasks were buried for one that was begun", n)
	}
}

// A queue that cannot be joined holds up no other.
func TestBadQueueHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	c := redistest.Conn(t)
	for _, q := range []string{"bad", "good"} {
		_, err := c.Do("SET", prefix+":workers:{"+q+"}", "of another type")
		must(t, err)
	}
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	done := make(chan string, 1)
	h := func(_ context.Context, t *worqr.Task) error { done <- string(t.Payload); return nil }
	p.Queue("bad").Handle(h, nil)
	p.Queue("good").Handle(h, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	time.Sleep(500 * time.Millisecond) // in which both are tried, and fail
	_, err := c.Do("DEL", prefix+":workers:{good}")
	must(t, err)
	enqueue(t, p.Queue("good"), "a")
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("the good queue is not served, because another is bad")
	}
	_, _ = c.Do("DEL", prefix+":workers:{bad}")
	cancel()
	<-ran
}

// While one round follows the other, a drain puts back what two of them bring.
func TestDrainWhileRoundsFlow(t *testing.T) {
	t.Parallel()
	for i := range 60 {
		p := open(t, worqr.Options{Drain: time.Millisecond})
		q := p.Queue("q")
		started := make(chan string, 20000)
		q.Handle(func(ctx context.Context, t *worqr.Task) error {
			started <- ""
			<-ctx.Done()
			return context.Cause(ctx)
		}, &worqr.HandleOptions{Concurrency: 20000, Prefetch: -1})
		all := numbers("", 5000)
		enqueue(t, q, all...)
		stop := run(t, p)
		receive(t, started, 20+i*10)
		stop()
		if got := waiting(t, q); !slices.Equal(got, all) {
			at := 0
			for at < len(got) && at < len(all) && got[at] == all[at] {
				at++
			}
			t.Fatalf("round %d: %d of %d back; out of order at %d: %v", i, len(got), len(all), at, got[at:min(at+5, len(got))])
		}
		must(t, p.Close())
	}
}
