package search

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/worqr/worqr/integration/spec"
)

// A state is what Redis holds, what the workers know, and what is on its way. Slices are never changed, only replaced,
// so that a copy of a state costs nothing.
type state struct {
	q      spec.Queue
	failed spec.Queue
	peers  [3]peer
	late   []call // copies of calls that Redis hasn't received yet, in order for each worker
	cancel canceler
	left   budget
	made   int     // tasks that were added
	saved  *backup // what a failover brings back
	wrong  string  // what a step did that it mustn't

	removed []string // payloads that were canceled by their name
	back    spec.Set // what was returned and can start, and with which tokens it had started
	claims  string   // who knows that it has claimed the next time
	unheard bool     // a wake-up or a claim was lost: then a heartbeat helps

	failedOver bool
	sc         *scope
}

type backup struct{ q, failed spec.Queue }

// A budget is how often something may still happen.
type budget struct {
	Rounds            int // of each worker
	Lost, Late        int // answers, and copies of calls that arrive later
	Deaths, Lapses    int
	Joins, Leaves     int
	Cancels, Removes  int
	Minutes           int // after a cancel: then Redis has forgotten its token
	Evictions         int // of named workers
	Failovers, Pauses int
}

// The phases of a worker.
type phase int

const (
	away    phase = iota
	asked         // it has asked for the token, and joins
	member        // it sends rounds
	leaving       // it sends nothing but leave
	dead          // it was evicted, or died
)

// A peer is what a worker knows.
type peer struct {
	phase  phase
	asked  int64
	number int64   // the last that it has used
	rounds int     // how many it has sent
	held   []holds // in the order of their starts
	flight []round
	heard  int // how it has heard of a cancel, if it has: see hears
	stops  stops
	woken  bool // it will send a start, since it was woken
}

// Stops are attempts that must stop. They are kept until all rounds that were in flight when they were heard of have
// been answered, since one of these may have started them.
type stops struct {
	ids    []string
	upTo   int64 // and copies of the canceled payload up to this token
	rounds int   // how many of those rounds aren't answered
}

// A holds is an attempt that the worker runs.
type holds struct {
	id, name, payload string
	token             int64
	risky, stop       bool // stop: the handler knows that it must
}

// A round is a finish and a start that were sent together.
type round struct {
	number  int64
	ends    []spec.End
	wanted  int
	solo    bool
	done    int // how many of its calls Redis has carried out
	tasks   []spec.Task
	evicted bool // that's the answer
}

// A canceler is the caller of a cancel.
type canceler struct {
	phase    int // 0: nobody; 1: pages of cancel; 2: pages of stop; 3: it has returned
	after    string
	token    int64
	workers  []string
	stopped  int64 // of the first worker
	made     int   // tasks that had been added when it began, and
	returned int   // when it returned
}

// A call is one that may arrive later.
type call struct {
	worker int // whose connection; -1: that of the one who cancels
	what   string
	make   func(s *state)
}

func (s *state) append(b []byte) []byte {
	b = s.appendRedis(b)
	for i := range s.peers {
		b = s.peers[i].append(b)
	}
	b = fmt.Appendf(b, "%v%v%d%v%v%s%v", s.cancel, s.left, s.made, s.removed, s.back, s.claims, s.unheard)
	if s.saved != nil {
		b = s.saved.q.Append(b)
	}
	return b
}

// appendRedis appends what Redis holds, and gets late.
func (s *state) appendRedis(b []byte) []byte {
	b = s.q.Append(b)
	for _, c := range s.late {
		b = append(b, c.what...)
	}
	return b
}

func (p *peer) append(b []byte) []byte {
	for _, n := range []int64{int64(p.phase), p.asked, p.number, int64(p.rounds), int64(p.heard), p.stops.upTo, int64(p.stops.rounds)} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	for _, h := range p.held {
		if b = append(append(b, '+'), h.id...); h.stop {
			b = append(b, '!')
		}
	}
	for _, r := range p.flight {
		b = fmt.Appendf(b, "%v", r)
	}
	if p.woken {
		b = append(b, '*')
	}
	for _, id := range p.stops.ids {
		b = append(append(b, '-'), id...)
	}
	return b
}

// clone returns a copy of a state.
func (s *state) clone() *state {
	t := *s
	t.q.Failed = &t.failed
	return &t
}

// replace returns a copy of a slice with another element.
func replace[T any](all []T, i int, v T) []T {
	all = slices.Clone(all)
	all[i] = v
	return all
}

func without[T any](all []T, i int) []T { return slices.Delete(slices.Clone(all), i, i+1) }
