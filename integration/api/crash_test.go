package api

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// For a task that a dead worker holds, Explain reports when that worker will be evicted, or that
// no live worker is there to evict it.
func TestExplainDead(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	c := childConfig{URL: redistest.URL(), Prefix: prefix, Queue: "q", Lease: 1500 * time.Millisecond, Concurrency: 1, Hold: true}
	child := spawn(t, c)
	q := open(t, worqr.Options{Prefix: prefix, Lease: c.Lease}).Queue("q")
	enqueue(t, q, "a")
	child.starts(t, 1)
	child.Kill()
	var e *inspect.Explanation
	eventually(t, "the lease has expired", func() bool {
		e = sure(q.Explain(t.Context(), worqr.Query{Payload: []byte("a")}))(t)
		return !slices.Equal(told(e), []string{"running"})
	})
	is.Equal(told(e), []string{"running lease-expired no-worker"})
	is.True(e.Copies[0].EvictAt.IsZero())

	looked := time.Now()
	working(t, open(t, worqr.Options{Prefix: prefix, Lease: c.Lease}), "q")
	e = sure(q.Explain(t.Context(), worqr.Query{Payload: []byte("a")}))(t)
	if got := told(e); slices.Equal(got, []string{"running lease-expired"}) { // otherwise it has been returned already
		is.True(e.Copies[0].EvictAt.After(looked))
		is.True(strings.Contains(e.String(), "it's evicted in about"))
	}
	eventually(t, "it waits again", func() bool {
		e = sure(q.Explain(t.Context(), worqr.Query{Payload: []byte("a")}))(t)
		return slices.Equal(told(e), []string{"waiting busy"})
	})
}

// When a process with ten tasks is killed, they return to the front within a few heartbeats, in
// the order in which they started, and run elsewhere. The other peers' tasks aren't affected. The
// benchmark measures the time; on a busy machine, heartbeats are late.
func TestKilledPeer(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	c := childConfig{URL: server.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 10, Hold: true}
	q := openAt(t, server.URL(), worqr.Options{Prefix: c.Prefix}).Queue("q")
	beats := func() int { return redistest.Calls(t, conn, "pexpire") } // one for each heartbeat, which renews a registration
	tasks, theirs, behind := numbers("", 10), numbers("theirs", 6), numbers("behind", 4)

	victim := spawn(t, c)
	enqueue(t, q, tasks...)
	is.Equal(sorted(victim.starts(t, 10)), tasks)
	c.Concurrency = 3
	one, two := spawn(t, c), spawn(t, c)
	enqueue(t, q, append(theirs, behind...)...)
	is.Equal(sorted(append(one.starts(t, 3), two.starts(t, 3)...)), theirs)

	// Kill it at once, while the other peers are still new.
	victim.Kill()
	before, want := beats(), append(slices.Clone(tasks), behind...)
	eventually(t, "the tasks are back", func() bool { return len(waiting(t, q)) == len(want) })
	// Four or five each are usual. After the machine has stalled for two heartbeats, a peer needs
	// three more before it may evict others.
	if n := beats() - before; n > 20 {
		t.Errorf("the others made %d heartbeats meanwhile", n)
	}
	is.Equal(waiting(t, q), want)
	is.Equal(len(one.Reports)+len(two.Reports), 0) // their tasks still run

	one.Tell("finish")
	var started []string
	for len(started) < 11 { // from now on it finishes each task that it starts
		if r := receive(t, one.Reports, 1)[0]; r.What == "start" {
			started = append(started, r.Payload)
		} else {
			is.Equal(r.Err, "nil")
		}
	}
	for _, first := range tasks[:3] { // three handlers report concurrently
		is.True(slices.Contains(started[:6], first))
	}
}

// When a paused process wakes, its late calls are refused, its handlers' contexts end,
// and it continues by itself under a new id.
func TestPausedPeer(t *testing.T) {
	is := parallel(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 3, Hold: true}
	q := open(t, worqr.Options{Prefix: c.Prefix}).Queue("q")
	zombie := spawn(t, c)
	enqueue(t, q, "a", "b", "c")
	zombie.starts(t, 3)
	other := spawn(t, c)

	zombie.Stop()
	awake := time.After(10 * time.Second)
	is.Equal(sorted(other.starts(t, 3)), []string{"a", "b", "c"}) // taken over
	old := ""
	for w := range each(t, open(t, worqr.Options{Prefix: c.Prefix}).Workers(t.Context())) {
		old += w.ID + " "
	}
	zombie.Tell("finish") // the first thing that it reads when it wakes
	<-awake
	zombie.Continue()
	for range 3 {
		switch r := receive(t, zombie.Reports, 1)[0]; r.What {
		case "finished":
			is.Equal(r.Err, "lost")
		case "end":
			is.Equal(r.Err, worqr.ErrEvicted.Error())
		default:
			t.Fatalf("unexpected: %+v", r)
		}
	}
	enqueue(t, q, "d") // the other peer has no free slot
	r := zombie.next(t, "start")
	is.Equal(r.Payload, "d")
	is.True(!strings.Contains(old, r.Worker)) // a new id
}

// busyPeer randomly puts, enqueues, removes and cancels tasks, and its handler ends in every
// possible way.
func busyPeer(c childConfig, p *worqr.Peer, say func(report)) actor {
	q, ctx := p.Queue(c.Queue), context.Background()
	one := func() {
		key := fmt.Sprint("key", rand.IntN(40))
		o := worqr.TaskSpec{Key: key, Payload: []byte(key), Reschedule: worqr.Reschedule(rand.IntN(4)), KeepPayload: rand.IntN(4) == 0, KeepCounts: rand.IntN(4) == 0}
		if rand.IntN(2) == 0 {
			o.At = time.Now().Add(rand.N(1200 * time.Millisecond))
		}
		switch n := rand.IntN(100); {
		case n < 80:
			_, _ = q.Add(ctx, o)
		case n < 90:
			_ = q.Enqueue(ctx, []byte("plain"))
		case n < 93:
			_, _ = q.Add(ctx, worqr.TaskSpec{Payload: fmt.Append(nil, "unique", rand.IntN(20)), Unique: true})
		case n < 97:
			_, _ = q.CancelKey(ctx, key)
		default:
			_, _ = q.RemoveKey(ctx, key)
		}
	}
	fail := errors.New("it fails")
	return actor{
		handler: func(ctx context.Context, t *worqr.Task) error {
			switch n := rand.IntN(100); {
			case n < 8:
				return fail
			case n < 18:
				return worqr.RetryAfter(fail, rand.N(80*time.Millisecond))
			case n < 22:
				panic("it panics")
			case n < 24:
				return worqr.Permanent(fail)
			case n < 26: // run into the timeout
				<-ctx.Done()
				return ctx.Err()
			case n < 30:
				time.Sleep(rand.N(300 * time.Millisecond)) // ignore the context
			case n < 38 && t.Key != "":
				return failure(q.Add(ctx, worqr.TaskSpec{Key: t.Key, Payload: t.Payload}))
			}
			return nil
		},
		opts: &worqr.HandleOptions{
			Concurrency: 8, MaxRetries: 3, MaxCrashes: -1, KeepFailed: 1_000_000, Timeout: 200 * time.Millisecond, Grace: 8 * time.Second,
			Backoff: func(*worqr.Task, error) time.Duration { return rand.N(50 * time.Millisecond) },
		},
		told: func(string) {},
		act: func(ctx context.Context) {
			for ctx.Err() == nil {
				one()
				time.Sleep(rand.N(4 * time.Millisecond))
			}
		},
	}
}

// deadlyPeer is a peer whose handler kills its own process when it gets the payload
// "deadly". Other tasks take c.Nap.
func deadlyPeer(c childConfig, _ *worqr.Peer, say func(report)) actor {
	return actor{
		handler: func(_ context.Context, t *worqr.Task) error {
			if string(t.Payload) == "deadly" {
				say(report{What: "death"})
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			time.Sleep(c.Nap)
			say(report{What: "end", Payload: string(t.Payload)})
			return nil
		},
		opts: &worqr.HandleOptions{Concurrency: c.Concurrency},
		told: func(string) {},
	}
}

// forward passes on the reports of a peer.
func forward(p process, to chan<- report) process {
	go func() {
		for r := range p.Reports {
			to <- r
		}
	}()
	return p
}

// A task that kills each worker that runs it is in the failed queue after three deaths,
// and all other tasks are finished.
func TestDeadlyPayload(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(ctx context.Context, q *worqr.Queue) error{
		"payload": func(ctx context.Context, q *worqr.Queue) error { return q.Enqueue(ctx, []byte("deadly")) },
		"key": func(ctx context.Context, q *worqr.Queue) error {
			return failure(q.Add(ctx, worqr.TaskSpec{Key: "deadly", Payload: []byte("deadly")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := childConfig{Mode: "deadly", Nap: 10 * time.Millisecond}
			c.URL, c.Queue, c.Prefix = redistest.URL(), "q", redistest.Prefix(t)
			deadlyPayload(t, c, put)
		})
	}
}

func deadlyPayload(t *testing.T, c childConfig, put func(context.Context, *worqr.Queue) error) {
	is := is.New(t)
	const others = 300
	q := open(t, worqr.Options{Prefix: c.Prefix}).Queue(c.Queue)
	reports := make(chan report, 10_000)
	peers := []process{forward(spawn(t, c), reports), forward(spawn(t, c), reports)}
	enqueue(t, q, numbers("before", others/2)...)
	must(t, put(t.Context(), q))
	enqueue(t, q, numbers("after", others/2)...)

	deaths, done := 0, map[string]bool{}
	for deaths < 3 || len(done) < others {
		switch r := receive(t, reports, 1)[0]; r.What {
		case "death":
			deaths++
			peers = append(peers, forward(launch(t, c), reports)) // a replacement
		case "end":
			done[r.Payload] = true
		}
	}
	eventually(t, "it has failed", func() bool { return stats(t, q).Failed > 0 })
	allDone(t, q)
	for _, p := range peers {
		select {
		case <-p.Exited:
		default:
			p.End()
		}
	}
	for len(reports) > 0 {
		if r := <-reports; r.What == "death" {
			deaths++
		}
	}
	is.Equal(deaths, 3)
	failedTasks := failed(t, q)
	is.Equal(len(failedTasks), 1) // no innocent task failed
	is.Equal(string(failedTasks[0].Payload), "deadly")
	is.Equal(failedTasks[0].Kind, inspect.FailureCrashed)
	is.Equal(failedTasks[0].Crashes, 3)
	sure(q.DeleteAllFailed(t.Context()))(t)
	// A peer that evicted a worker may have been killed before it removed it from the roster.
	sweeper, conn := open(t, worqr.Options{Prefix: c.Prefix}), redistest.Conn(t)
	eventually(t, "the dead are off the roster", func() bool {
		sure(sweeper.Sweep(t.Context()))(t)
		return sure(redis.Int(conn.Do("SCARD", c.Prefix+":workers")))(t) == 0
	})
	nothingLeftBut(t, c.Prefix, c.Queue)
}

// While the peers of a fleet are killed and paused, and recover, Check reports nothing: pages that
// are stale when the next one is read cause no false alarms. One peer is never killed, so that it
// can evict the others.
func TestCheckBusyFleet(t *testing.T) {
	is := parallel(t)
	storm := 2 * time.Second
	if s := os.Getenv(chaosEnv); s != "" {
		storm = sure(time.ParseDuration(s))(t)
	}
	seed := *checkSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(seed, 0))
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Lease: time.Second, Mode: "busy"}
	start := func() process { return launch(t, c) }
	steady := start()
	others := []process{start(), start()}

	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: c.Prefix, Lease: c.Lease})
	storming, end := context.WithCancel(t.Context())
	checks, meddlings := 0, 0
	var beside sync.WaitGroup
	beside.Go(func() {
		for ; storming.Err() == nil; checks++ {
			do := doctor.Check
			if checks%2 == 1 {
				do = doctor.Repair // there's nothing to repair
			}
			report, err := do(context.Background(), nil)
			if err != nil {
				t.Errorf("check %d: %v", checks, err)
				return
			}
			for _, f := range ills(report) {
				t.Errorf("check %d of a fleet that is well: %v", checks, f)
			}
		}
	})
	beside.Go(func() { // calls that the peers don't make
		for q, ctx := doctor.Queue(c.Queue), context.Background(); storming.Err() == nil; {
			var err error
			switch meddlings++; meddlings % 40 {
			case 10:
				err = failure(q.RequeueAllFailed(ctx))
			case 20:
				err = failure(q.DeleteAllFailed(ctx))
			case 30:
				err = q.Delete(ctx)
			default:
				cut, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // it waits for paused peers
				err = failure(q.Cancel(cut, fmt.Appendf(nil, "unique%d", meddlings%20)))
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
			}
			if err != nil {
				t.Errorf("meddling: %v", err)
				return
			}
		}
	})
	kills, stops := 0, 0
	pause := func() { time.Sleep(200*time.Millisecond + time.Duration(random.Int64N(int64(600*time.Millisecond)))) }
	for until := time.Now().Add(storm); time.Now().Before(until); pause() {
		i := random.IntN(len(others))
		if random.IntN(2) == 0 {
			kills++
			others[i].Kill()
			others[i] = start()
			continue
		}
		stops++
		others[i].Stop()
		time.Sleep(c.Lease * 3 / 2) // long enough for it to be evicted
		others[i].Continue()
	}
	end()
	beside.Wait()
	t.Logf("%d checks, %d cancels and the like, %d kills, %d stops; to repeat: %s=%v go test -run TestCheckBusyFleet ./integration/api -check.seed %d", checks, meddlings, kills, stops, chaosEnv, storm, seed)
	is.True(checks > 0)
	for _, p := range append(others, steady) {
		p.Kill()
	}

	// Repair finds the dead workers and returns their tasks.
	dead, unserved := 0, 0
	eventually(t, "nobody holds anything", func() bool {
		report := sure(doctor.Repair(t.Context(), nil))(t)
		is.True(intact(report))
		dead += count(report, "expired-worker")
		stats := sure(doctor.Queue("q").Stats(t.Context()))(t)
		return stats.Running == 0 && stats.Workers == 0
	})
	is.True(dead > 0)
	report := sure(doctor.Check(t.Context(), nil))(t)
	is.True(intact(report))
	for _, f := range ills(report) {
		is.Equal(f.Kind, inspect.FindingKind("no-worker")) // the only finding left
		unserved++
	}
	is.True(unserved <= 1)
}

// chaosEnv is the environment variable that sets how long TestCheckBusyFleet injects faults.
const chaosEnv = "WORQR_TEST_CHAOS"

var checkSeed = flag.Uint64("check.seed", 0, "seed of the faults of TestCheckBusyFleet; 0 is a new one")
