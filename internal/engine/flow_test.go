package engine

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// sharing returns the flow of one of so many peers that do equally much.
func sharing(peers int) *flow {
	f := &flow{list: true}
	for range 100 {
		f.started(100, 100*peers)
	}
	return f
}

func TestFlow(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		peers           int
		took, way, work time.Duration
		budget          time.Duration
		least, most     time.Duration // of the rest
	}{
		"alone":                    {1, 5 * ms, 0, 3 * ms, store.RoundBudget, 0, 0},
		"alone, held up":           {1, time.Second, 0, 3 * ms, store.RoundBudget, 0, 0},
		"alone, far":               {1, 20 * ms, 10 * ms, 5 * ms, store.FarBudget, 0, 0},
		"among few":                {4, ms, 0, thickTime, thickTime, ms / 4, ms},
		"among many":               {50, 5 * ms, 0, thickTime, thickTime, 40 * ms, 45 * ms},
		"among many, and quick":    {50, ms, 0, thickTime, thickTime, 8 * ms, 9 * ms},
		"among many, and held up":  {50, 60 * ms, 0, thickTime, thickTime, 15 * ms, 25 * ms},
		"among many, too late":     {50, time.Second, 0, thickTime, thickTime, 0, 0},
		"among many, little to do": {50, 50 * ms, 0, quietTime, thickTime, 0, 0},
		"among few, far":           {2, 20 * ms, 10 * ms, 5 * ms, store.FarBudget, 0, ms},
		"among masses":             {1000, 100 * ms, 0, thickTime, thickTime, longestRest, longestRest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sharing(c.peers)
			if got := f.budget(c.way); got != c.budget {
				t.Errorf("the budget is %v, not %v", got, c.budget)
			}
			f.list = false
			if got := f.budget(c.way); got > store.RoundBudget {
				t.Errorf("with tasks of the schedule it is %v", got)
			}
			if got := f.rest(c.took, c.way, c.work); got < c.least || got > c.most {
				t.Errorf("the rest is %v, not from %v to %v", got, c.least, c.most)
			}
		})
	}
}

// A crowd is peers that keep one queue busy, over a Redis that does one round after the
// other, in a time of its own.
type crowd struct {
	now     time.Time
	events  events
	started int           // tasks
	free    time.Time     // when Redis is
	way     time.Duration // there and back
	task    time.Duration // that Redis needs for one, its start and its end
	hiccups bool          // Redis and the way are disturbed now and then
	rest    bool          // the peers rest
}

type event struct {
	at time.Time
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (c *crowd) after(d time.Duration, do func()) {
	heap.Push(&c.events, event{c.now.Add(d), do})
}

// serve has Redis make a round with so many starts and ends, and then calls done.
func (c *crowd) serve(starts, ends int, done func()) {
	c.after(c.way/2, func() {
		busy := stepTime + c.task*time.Duration(starts+ends)/2
		back := c.way / 2
		if c.hiccups {
			back += time.Duration(rand.ExpFloat64() * float64(200*time.Microsecond))
			if rand.N(100) == 0 {
				busy += rand.N(4 * time.Millisecond)
			}
		}
		if c.free.Before(c.now) {
			c.free = c.now
		}
		c.free = c.free.Add(busy)
		c.after(c.free.Sub(c.now)+back, done)
	})
}

// A member of the crowd makes rounds as rounds does, with handlers that return at once.
type member struct {
	crowd *crowd
	flow  flow
	far   distance
	under int // rounds
	asked int
	ends  int
	seen  int // tasks that all had started
	tasks int
	ask   int
}

func (m *member) talk() {
	c := m.crowd
	for m.under < 2 {
		budget := store.RoundBudget
		if c.rest {
			if m.under > 0 && !m.flow.alone() || m.flow.held(c.now) > 0 {
				return
			}
			budget = m.flow.budget(m.far.way())
		}
		ends := min(m.ends, int(budget/startTime))
		if m.under == 1 && ends < max(worthwhile, m.asked/2) {
			return
		}
		most := 464
		starts := min(m.ask, most-m.asked, most/2, int((budget-time.Duration(ends)*2*time.Microsecond)/startTime))
		work := stepTime + time.Duration(starts)*startTime + time.Duration(ends)*2*time.Microsecond
		m.ends, m.asked, m.under = m.ends-ends, m.asked+starts, m.under+1
		sent := c.now
		c.serve(starts, ends, func() {
			m.under, m.asked, m.ends = m.under-1, m.asked-starts, m.ends+starts
			m.ask, m.tasks, c.started = min(2*m.ask, MaxStarts), m.tasks+starts, c.started+starts
			took := c.now.Sub(sent)
			m.far.measured(c.now, took, work)
			m.flow.started(starts, c.started-m.seen)
			m.seen = c.started
			m.flow.hold(c.now, m.flow.rest(took, m.far.way(), work))
			if d := m.flow.held(c.now); d > 0 && c.rest {
				c.after(d, m.talk)
				return
			}
			m.talk()
		})
	}
}

// run has so many peers work for ten seconds, and returns how long somebody else would
// have had to wait for Redis, how many tasks a second they did, and those of the least
// and the most busy one.
func (c *crowd) run(peers int) (waits []time.Duration, rate, least, most float64) {
	const settled, over = 5, 15
	c.now = time.Unix(0, 0)
	members, before := make([]*member, peers), make([]int, peers)
	for i := range members {
		members[i] = &member{crowd: c, ask: firstAsk}
		c.after(rand.N(time.Second), members[i].talk)
	}
	var probe func()
	probe = func() {
		waits = append(waits, max(c.free.Sub(c.now), 0))
		c.after(rand.N(5*time.Millisecond), probe)
	}
	c.after(settled*time.Second, func() {
		for i, m := range members {
			before[i] = m.tasks
		}
		probe()
	})
	for c.now.Before(time.Unix(over, 0)) {
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		e.do()
	}
	least = 1e9
	for i, m := range members {
		n := float64(m.tasks-before[i]) / (over - settled)
		rate, least, most = rate+n, min(least, n), max(most, n)
	}
	slices.Sort(waits)
	return waits, rate, least, most
}

// Many peers on one queue delay others little, share it within a power of ten, and get as much
// done as if they took no care: where Redis is fast or slow, and where it has hiccups.
func TestFlowsShare(t *testing.T) {
	t.Parallel()
	for _, peers := range []int{1, 2, 5, 20, 50} {
		for _, task := range []time.Duration{4500 * time.Nanosecond, 7 * time.Microsecond} {
			for _, hiccups := range []bool{false, true} {
				t.Run(fmt.Sprint(peers, task, hiccups), func(t *testing.T) {
					t.Parallel()
					one := crowd{way: 200 * time.Microsecond, task: task, hiccups: hiccups}
					careless, careful := one, one
					careful.rest = true
					_, before, _, _ := careless.run(peers)
					waits, rate, least, most := careful.run(peers)
					typical, long := waits[len(waits)/2], waits[len(waits)*99/100]
					t.Logf("wait %v, 99 %% within %v; %.0f tasks a second of %.0f; each %.0f to %.0f", typical, long, rate, before, least, most)
					if bound := 2*time.Millisecond + time.Duration(peers)*100*time.Microsecond; typical > bound {
						t.Errorf("others wait for %v, not at most %v", typical, bound)
					}
					if rate < 0.8*before {
						t.Errorf("they do %.0f tasks a second, of %.0f", rate, before)
					}
					if most > 10*least {
						t.Errorf("one does %.0f tasks a second, and another %.0f", least, most)
					}
				})
			}
		}
	}
}
