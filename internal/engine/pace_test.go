package engine

import (
	"testing"
	"time"

	"github.com/matryer/is"
)

// handled returns the pace of handlers that have run many tasks, with the given gap between two
// returns. If wait isn't zero, they wait that long for the next task after each burst.
func handled(handlers int, run, gap time.Duration, burst int, wait time.Duration) *pace {
	p := &pace{}
	now := time.Unix(1, 0)
	for range 2000 / burst {
		now = now.Add(wait)
		p.began(now, true)
		for i := range burst {
			now = now.Add(gap)
			p.freed(now, now.Add(-run), 10, handlers)
			p.busy = i < burst-handlers
		}
	}
	return p
}

// The time that handlers wait for tasks doesn't affect their pace.
func TestPaceWhileStarved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const µs = time.Microsecond
	fed := handled(4, µs, 20*µs, 2000, 0)
	starved := handled(4, µs, 20*µs, 50, 10*time.Millisecond)
	is.True(fed.ahead(4) > 100)
	is.Equal(starved.ahead(4), fed.ahead(4))
	all := handled(4, µs, 20*µs, 4, 10*time.Millisecond) // after each task, all handlers wait
	is.True(all.ahead(4) >= fed.ahead(4))
}

// Prefetched tasks keep the handlers busy for two trips and a bit more.
func TestAheadOverAWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run, gap, trip time.Duration
		size           int
		least, most    int
	}{
		"near":                       {time.Microsecond, time.Microsecond, 100 * time.Microsecond, 10, 400, 450},
		"far":                        {time.Microsecond, time.Microsecond, 10 * time.Millisecond, 10, 2700, mostAhead},
		"very far":                   {time.Microsecond, time.Microsecond, time.Second, 10, mostAhead, mostAhead},
		"slower, near":               {time.Millisecond, 16 * time.Microsecond, 100 * time.Microsecond, 10, 180, 220},
		"slower, far":                {time.Millisecond, 16 * time.Microsecond, 10 * time.Millisecond, 10, 1600, 2200},
		"slow, near":                 {10 * time.Millisecond, 160 * time.Microsecond, 100 * time.Microsecond, 10, 0, 0},
		"slow, far":                  {10 * time.Millisecond, 160 * time.Microsecond, 10 * time.Millisecond, 10, 150, 220},
		"slower than the way is far": {100 * time.Millisecond, 1600 * time.Microsecond, 10 * time.Millisecond, 10, 0, 0},
		"large":                      {time.Microsecond, time.Microsecond, 10 * time.Millisecond, 1 << 20, 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, now := &pace{trip: c.trip}, time.Unix(1, 0)
			p.began(now, true)
			for range proven * mostAhead {
				now = now.Add(c.gap)
				p.freed(now, now.Add(-c.run), c.size, 64)
			}
			if n := p.ahead(64); n < c.least || n > c.most {
				t.Errorf("%d ahead, not from %d to %d", n, c.least, c.most)
			}
		})
	}
}

// Until a slow task has held others up, the number to prefetch is a fraction of the fast tasks
// seen, since they may have to go back. After one, it takes a longer row of fast tasks to
// prefetch again.
func TestAheadIsProven(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, now := &pace{trip: 10 * time.Millisecond}, time.Unix(1, 0)
	p.began(now, true)
	fast := func(n int) {
		for range n {
			now = now.Add(time.Microsecond)
			p.freed(now, now.Add(-time.Microsecond), 10, 1)
		}
	}
	slow := func() {
		now = now.Add(time.Second)
		p.freed(now, now.Add(-time.Second), 10, 1)
		is.Equal(p.ahead(1), 0)
		p.run = time.Microsecond
	}
	fast(firstTrust - 1)
	is.Equal(p.ahead(1), 0)
	fast(1)
	is.Equal(p.ahead(1), firstTrust/proven)
	fast(firstTrust)
	is.Equal(p.ahead(1), 2*firstTrust/proven)
	fast(proven * mostAhead)
	most := p.ahead(1)
	is.True(most > 2000) // as many as begin within the window
	slow()               // perhaps the machine was slow: nothing had to go back
	fast(firstTrust)
	is.Equal(p.ahead(1), most)
	p.stuck = true
	slow()
	fast(nextTrust - 1)
	is.Equal(p.ahead(1), 0)
	fast(1)
	is.Equal(p.ahead(1), most)
}

// While all handlers are busy and none returns, it's unpredictable when one will. If some wait for
// tasks, one will begin as soon as there is a task.
func TestPaceSlow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	now := time.Unix(1, 0)
	p := &pace{}
	is.True(!p.slow(now))
	p.began(now, true)
	is.True(!p.slow(now.Add(p.window())))
	is.True(p.slow(now.Add(p.window() + 1)))
	p.trip = 10 * time.Millisecond
	is.True(!p.slow(now.Add(2 * p.trip)))
	p.busy = false
	is.True(!p.slow(now.Add(time.Hour)))
}

// The pace uses the original size of payloads, whatever handlers do to them.
func TestPaceOfPayloadsAsTaken(t *testing.T) {
	t.Parallel()
	r := byHand(t)
	s := r.queue
	s.opts = &Options{Concurrency: 1}
	s.ready = []*Attempt{r.holds("b", 2, "")} // for the slot
	task := &Attempt{session: r, Payload: make([]byte, 1<<20), size: 10}
	s.freedLocked(&run{task: task, ended: time.Now()})
	if s.pace.size != 10 {
		t.Error(s.pace.size)
	}
}
