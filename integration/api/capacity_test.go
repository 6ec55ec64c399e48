package api

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A lineup is two queues of one peer that never run empty. Their handlers return when
// they are told to.
type lineup struct {
	starts chan string // the names of the queues, in the order of their starts
	end    map[string]chan struct{}
	slots  map[string]int // Concurrency
	runs   map[string]int
}

// newLineup runs a peer with so many tasks on each of its queues.
func newLineup(t *testing.T, capacity, high, low, each int) *lineup {
	l := &lineup{
		starts: make(chan string, 2*each),
		end:    map[string]chan struct{}{"high": make(chan struct{}), "low": make(chan struct{})},
		slots:  map[string]int{"high": high, "low": low},
		runs:   map[string]int{},
	}
	p := open(t, worqr.Options{Prefix: redistest.Prefix(t), Capacity: capacity})
	for name, priority := range map[string]int{"high": 1, "low": 0} {
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			l.starts <- t.Queue
			<-l.end[t.Queue]
			return nil
		}, &worqr.HandleOptions{Concurrency: l.slots[name], Priority: priority})
		enqueue(t, q, numbers("", each)...)
	}
	stop := run(t, p)
	t.Cleanup(func() {
		for _, end := range l.end {
			close(end)
		}
		stop()
	})
	for range min(capacity, high+low) {
		l.runs[receive(t, l.starts, 1)[0]]++
	}
	return l
}

// next ends one task and returns the queue of the one that starts instead.
func (l *lineup) next(t *testing.T, ends string) string {
	l.end[ends] <- struct{}{}
	l.runs[ends]--
	name := receive(t, l.starts, 1)[0]
	l.runs[name]++
	return name
}

// Whatever Concurrency and Capacity are, a unit that comes free goes to the higher
// priority if that has a slot, but for every eighth, which goes to the queue that has
// waited longest.
func TestPriorityGrid(t *testing.T) {
	t.Parallel()
	const ends = 120
	for _, capacity := range []int{1, 3, 8} {
		for _, high := range []int{1, 2, 8} {
			for _, low := range []int{1, 2, 8} {
				t.Run(fmt.Sprintf("capacity %d, slots %d and %d", capacity, high, low), func(t *testing.T) {
					t.Parallel()
					l := newLineup(t, capacity, high, low, ends+16)
					rnd := rand.New(rand.NewPCG(uint64(capacity), uint64(high*10+low)))
					contended, low := 0, 0 // units that both could have; those of them that the lower got
					passed := 0            // those that the higher got since
					for range ends {
						name := "low"
						if n := rnd.IntN(l.runs["high"] + l.runs["low"]); n < l.runs["high"] {
							name = "high"
						}
						free := map[string]bool{}
						for _, q := range []string{"high", "low"} {
							free[q] = l.runs[q] < l.slots[q] || q == name
						}
						got := l.next(t, name)
						switch {
						case !free[got]:
							t.Fatalf("%q has %d tasks at once", got, l.runs[got])
						case got == "high" && free["low"]:
							contended++
							passed++
						case got == "low" && free["high"]:
							contended++
							low++
						}
						if got == "low" {
							passed = 0
						}
						// If the lower has just had one when the eighth comes, it is the
						// other that has waited longest.
						if passed > 8 {
							t.Fatal("the lower priority has not got any of the last 9 units that both could have")
						}
					}
					if low > contended/8+1 {
						t.Errorf("of %d units that both could have, the lower priority got %d", contended, low)
					}
				})
			}
		}
	}
}

// Whatever the queues weigh, together they occupy no more than Capacity, nothing
// is left, and a full peer goes on once something ends.
func TestCapacity(t *testing.T) {
	is := parallel(t)
	const capacity, each = 6, 60
	p := open(t, worqr.Options{Capacity: capacity})
	var mu sync.Mutex
	used, most, above := 0, 0, 0
	use := func(units int) {
		mu.Lock()
		defer mu.Unlock()
		used += units
		most = max(most, used)
		if used > capacity {
			above++
		}
	}
	done := make(chan string, 1000)
	var queues []*worqr.Queue
	for name, o := range map[string]worqr.HandleOptions{
		"light": {Weight: 0, Priority: 2}, "middle": {Weight: 2, Priority: 1}, "heavy": {Weight: 5}, "all": {Weight: 6, Priority: -1},
	} {
		o.Concurrency, o.Backoff = 100, atOnce
		units := max(o.Weight, 1)
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			use(units)
			defer use(-units)
			runtime.Gosched()
			if t.Retries == 0 && t.Payload[0]%3 == 0 {
				return errors.New("once more")
			}
			done <- t.Queue
			return nil
		}, &o)
		queues = append(queues, q)
	}
	for i, q := range queues {
		if i%2 == 0 {
			enqueue(t, q, numbers("", each)...)
		}
	}
	stop := run(t, p)
	for i, q := range queues {
		if i%2 == 1 {
			for _, payload := range numbers("", each) {
				put(t, q, payload, payload, nil)
			}
		}
	}
	count := map[string]int{}
	for _, name := range receive(t, done, 4*each) {
		count[name]++
	}
	is.Equal(count, map[string]int{"light": each, "middle": each, "heavy": each, "all": each})
	stop()
	is.Equal(len(done), 0)
	is.Equal(above, 0)
	is.Equal(used, 0)
	is.Equal(most, capacity)
	for _, q := range queues {
		s := stats(t, q)
		is.Equal(s.Waiting+s.Scheduled+s.Running+s.Failed, 0)
	}
}

// A queue that finds less to do than it was given room for leaves the rest to
// others.
func TestCapacityIsNotHoarded(t *testing.T) {
	is := parallel(t)
	const capacity = 300
	p := open(t, worqr.Options{Capacity: capacity})
	started, release := make(chan string, 1000), make(chan struct{}, 1000)
	var queues []*worqr.Queue
	for _, name := range []string{"one", "two"} {
		q := p.Queue(name)
		q.Handle(func(context.Context, *worqr.Task) error {
			started <- ""
			<-release
			return nil
		}, &worqr.HandleOptions{Concurrency: capacity})
		queues = append(queues, q)
	}
	stop := run(t, p)
	one, two := queues[0], queues[1]
	enqueue(t, one, numbers("", capacity)...)
	receive(t, started, capacity)
	enqueue(t, two, "a") // waits for its turn
	is.Equal(len(started), 0)
	for range capacity + 1 {
		release <- struct{}{}
	}
	eventually(t, "all has ended", func() bool { return p.Stats().Finished == capacity+1 && p.Stats().RunningHandlers == 0 })
	receive(t, started, 1)
	defer func() { close(release); stop() }()
	enqueue(t, one, numbers("", capacity)...)
	receive(t, started, capacity)
}

// What a queue was given for a round leaves no trace when its options change:
// others get the capacity that it does not use.
func TestOptionsHoardNothing(t *testing.T) {
	t.Parallel()
	const capacity = 64
	p := open(t, worqr.Options{Capacity: capacity, Lease: time.Hour})
	started, release := make(chan string, 1000), make(chan struct{})
	opts := &worqr.HandleOptions{Concurrency: capacity}
	one, two := p.Queue("one"), p.Queue("two")
	for _, q := range []*worqr.Queue{one, two} {
		q.Handle(func(context.Context, *worqr.Task) error {
			started <- ""
			<-release
			return nil
		}, opts)
	}
	run(t, p)
	defer close(release)
	idle(t, one, 1)
	idle(t, two, 1)
	must(t, one.SetOptions(opts))
	enqueue(t, two, numbers("", capacity)...)
	receive(t, started, capacity)
}

// A lower Concurrency holds for all but what is being asked for: nothing that the
// higher one kept for later rounds is used.
func TestConcurrencyLowered(t *testing.T) {
	is := parallel(t)
	const tasks = 100
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	var running, most atomic.Int64
	started, release := make(chan string, tasks), make(chan struct{})
	q := p.Queue("q")
	q.Handle(func(context.Context, *worqr.Task) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		started <- ""
		<-release
		running.Add(-1)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	enqueue(t, q, numbers("", tasks)...)
	receive(t, started, 1)
	server.Signal(t, syscall.SIGSTOP) // at most one round is under way
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 5 * tasks}))
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 1}))
	server.Signal(t, syscall.SIGCONT)
	for i := range int64(tasks) {
		release <- struct{}{}
		eventually(t, "one more is finished", func() bool { return p.Stats().Finished == i+1 })
	}
	is.True(most.Load() <= 20) // one, and what one round asks for in the beginning
}
