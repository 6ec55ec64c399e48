package engine

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/prefetch"
	"github.com/worqr/worqr/internal/store"
)

const (
	maxFlight      = 2  // rounds in flight
	firstAsk       = 4  // tasks to ask for after a lull
	worthwhile     = 32 // ends to say, or tasks to ask for, that justify a second round at least
	soon           = 20 * time.Millisecond
	mostUnanswered = 3 // replies to a round that are lost, or refuse a repeat, before the worker takes a new id
)

// A state is what a session knows: what it holds, what it has to say, and what is in flight.
type state struct {
	ended   error // why there are no more rounds
	closing bool  // start no more tasks
	silent  bool  // send no more rounds
	serves  bool  // there is a handler

	held    map[string]*Attempt
	say     []*ending // for the next round; only loop, which then sends it, appends past sayLocked
	refused []*ending // by Redis; the next heartbeat says them again
	wants   []*want
	flight  []*round  // sent and not answered, oldest first
	number  int64     // of the last start: the round on the wire
	index   int64     // of the last round that was sent; one without a start has no number
	talked  time.Time // when a new round was last sent, or one answered
	resting bool      // send nothing for a while

	woken   bool // send a start: tasks may wait, or the wake-up must be passed on
	idle    bool // Redis wakes this worker when tasks come, or a timer does: see applyLocked
	more    bool // according to the last answer, more tasks can start
	plenty  bool // the same, and it brought all that was wanted: more can be prefetched
	crashed int  // of the held ones, how many have crashed before: nothing is prefetched beside them
	crowded bool // according to the last heartbeat, another worker is idle: prefetch nothing
	ask     int  // for how many tasks the next round asks at most
	recalls int  // how many times prefetched tasks were recalled: each time, what is in flight goes back, too

	claim int64 // ms of Redis time: this worker sends a start then; 0 or past: it has claimed no time
}

func newState(last int64, serves bool) state {
	return state{held: map[string]*Attempt{}, number: last, ask: firstAsk, woken: serves, serves: serves}
}

// A round is sent and not answered. Only loop changes it, under the lock, and may read it without. But slots are also
// given back by who ends the session, and the connection sets answer.
type round struct {
	store.Round           // a half that is settled is nil
	ends        []*ending // of the Finish, in its order
	wants       []*want   // that the Start asks for first
	slots       []slot    // for the handler's tasks, which follow
	index       int64     // it's the nth that was sent
	at          time.Time // when it was sent
	recalls     int       // how many times prefetched tasks had been recalled by then
	failures    int       // how often it has failed since a reply was lost, including that
	unanswered  int       // how many of these times Redis may have got it
	since       time.Time // when the first reply was lost
	again       bool      // it has to be sent again
	answer      atomic.Pointer[store.Replied]
}

// isLost reports whether a reply was lost. Then Redis may have carried it out, and it's repeated unchanged.
func (r *round) isLost() bool { return r.failures > 0 }

// ahead returns how many tasks the round prefetches.
func (r *round) ahead() int {
	if r.Start == nil {
		return 0
	}
	return r.Start.Ahead
}

// nextRoundLocked returns the round to send now, and puts it in flight: one that must be repeated, or a new one. It
// returns nil if there's none.
func (s *Session) nextRoundLocked(now time.Time) *round {
	if s.ended != nil || s.silent || s.resting {
		return nil
	}
	if r, repeating := s.toRepeat(); repeating {
		if r != nil {
			r.again, r.at = false, now
		}
		return r
	}
	free, room := 0, 0
	if s.serves && !s.closing {
		free = s.queue.freeLocked()
		if s.idle && s.woken { // others may have been woken, too, and have free slots
			s.queue.pace.Lull()
		}
		if !s.idle && !s.crowded && s.crashed == 0 {
			room = s.queue.roomLocked()
		}
	}
	enough := worthwhile
	if s.queue.opts.Prefetch > 0 {
		enough = 1 // the user wants that many, however slow handlers are
	}
	if !s.isDue(free, room, enough) {
		return nil
	}
	return s.composeLocked(now, free, room)
}

// toRepeat returns the first round to send again, once all that failed are known. repeating reports that
// nothing else may be sent.
func (s *state) toRepeat() (r *round, repeating bool) {
	for _, f := range s.flight {
		repeating = repeating || f.isLost()
		if f.again && r == nil {
			r = f
		}
	}
	for _, f := range s.flight {
		if r != nil && !f.again && !f.isLost() {
			return nil, true // its failure is about to come
		}
	}
	return r, repeating
}

// isDue reports whether to send a round now. free slots could take tasks, and room is how many more could
// be prefetched; enough of them justify a round. With nextRoundLocked and composeLocked, it reads:
//
//	          set by                                           cleared by
//	woken     wakeLocked, and answers: a start was refused,    the next start
//	          must be repeated, or more is due
//	idle      learn: a start for free slots brought too few    learn
//	more      learn, with plenty                               learn
//	ask       learn: twice as many, or as many as came         never less than firstAsk
//	crashed   keepLocked, one more                             releaseLocked, one less
//	crowded   a heartbeat                                      a heartbeat
//	resting   restLocked, after a failure                      its timer
//	closing   Leave                                            never; nor silent, which follows
func (s *state) isDue(free, room, enough int) bool {
	asks := s.woken || len(s.wants) > 0 || free > 0 && !s.idle || s.plenty && room >= enough
	switch len(s.flight) {
	case 0:
		return len(s.say) > 0 || asks
	case 1: // a second round has to be worth it, unless it's for what the first doesn't do
		worth := s.worth()
		return len(s.say) >= worth || s.more && min(s.ask, free+room) >= worth || asks && s.flight[0].Start == nil
	}
	return false
}

// worth returns how many ends, or tasks to ask for, justify a second round: a small one costs nearly as much.
func (s *state) worth() int {
	if len(s.flight) > 0 && s.flight[0].Start != nil {
		return max(worthwhile, s.flight[0].Start.Wanted/2)
	}
	return worthwhile
}

// composeLocked makes the next round, and puts it in flight. It takes slots from the queue for the tasks that it asks for. It
// returns nil if there's nothing to send.
func (s *Session) composeLocked(now time.Time, free, room int) *round {
	r := &round{index: s.index + 1, at: now, recalls: s.recalls}
	opts, worker := s.queue.opts, s.member.Worker
	back := s.gather(r) || s.isRecalled()
	if len(r.ends) > 0 {
		r.Finish = &store.Finish{Worker: worker, MaxFailed: opts.Keep, Ends: make([]*store.End, len(r.ends))}
		for i, end := range r.ends {
			r.Finish.Ends[i] = &end.End
		}
	}
	start := &store.Start{Worker: worker, Lease: s.engine.Lease.Grant, MaxCrashes: max(opts.MaxCrashes, 0), Stamp: now.UnixMilli()}
	if !back {
		s.requestLocked(r, start, free, room)
	}
	if s.woken && !back || start.Wanted > 0 {
		s.number++
		start.Round, start.Solo = s.number, s.maySolo()
		r.Start, s.woken = start, false
	}
	if r.Finish == nil && r.Start == nil {
		return nil
	}
	s.index++
	s.talked, s.flight = now, append(s.flight, r)
	return r
}

// requestLocked makes a start ask for tasks: for callers, for free slots, and to prefetch.
func (s *Session) requestLocked(r *round, start *store.Start, free, room int) {
	for len(s.wants) > 0 && start.Wanted < store.RoundWeight {
		start.Wanted = min(start.Wanted+s.wants[0].n, store.RoundWeight)
		r.wants, s.wants = append(r.wants, s.wants[0]), s.wants[1:]
	}
	if !s.serves || s.closing || s.idle && !s.woken {
		return
	}
	n := min(s.ask, store.RoundWeight-start.Wanted)
	if free > 0 {
		r.slots = s.queue.reserveLocked(min(n, free))
	}
	start.Idle = len(r.slots) > 0
	start.Ahead = min(room, n-len(r.slots))
	start.Wanted += len(r.slots) + start.Ahead
	s.queue.coming += start.Ahead
}

// isRecalled reports whether tasks that a round in flight brings go back. What starts behind it would follow them, and then
// so would what starts behind that.
func (s *state) isRecalled() bool {
	return slices.ContainsFunc(s.flight, func(f *round) bool { return f.Start != nil && f.recalls != s.recalls })
}

// maySolo reports whether a round may start a risky task: the peer has none, and no other round in flight may.
func (s *Session) maySolo() bool {
	return !s.engine.risk.Load() && !slices.ContainsFunc(s.flight, func(f *round) bool { return f.Start != nil && f.Start.Solo })
}

// gather moves as many ends into a round as fit. It reports whether the round must not ask for tasks: those that go
// back start before all others, and ends mustn't pile up.
func (s *state) gather(r *round) (back bool) {
	n := fitting(s.say)
	if n < len(s.say) {
		newestFirst(s.say)
		n = fitting(s.say) // the order has changed, and weights differ
	}
	rest, recalled := slices.Clone(s.say[n:]), s.isRecalled()
	for _, end := range s.say[:n] {
		t := end.task
		isHeld := s.held[t.ID] == t
		// What a round in flight brings goes back, too, and has started later: it must do so before the others. And
		// another round may be ending this one: one at a time.
		if recalled && end.Verb == store.Stop || isHeld && t.away {
			rest = append(rest, end)
			continue
		}
		end.held, t.away = isHeld, true
		r.ends = append(r.ends, end)
	}
	s.say = rest
	// Plain ends come first, then the others; tasks to be returned are last, in the order of their starts.
	rank := func(end *ending) int64 {
		switch {
		case end.Plain():
			return -1
		case end.Verb == store.Stop:
			return end.Token // above 0
		}
		return 0
	}
	slices.SortStableFunc(r.ends, func(a, b *ending) int { return cmp.Compare(rank(a), rank(b)) })
	return len(rest) > prefetch.Most || slices.ContainsFunc(rest, func(end *ending) bool { return end.Verb == store.Stop })
}

// fitting returns how many of the first ends fit into a round.
func fitting(ends []*ending) (n int) {
	weight, bytes := 0, 0
	for _, end := range ends {
		w, b := end.Weight()
		if n > 0 && (weight+w > store.RoundWeight || bytes+b > store.RoundBytes) {
			break
		}
		n, weight, bytes = n+1, weight+w, bytes+b
	}
	return n
}

// newestFirst reorders the tasks that go back among all ends, so that they do so newest first even if that
// takes several rounds: then the oldest ends up in front.
func newestFirst(ends []*ending) {
	var stops []*ending
	for _, end := range ends {
		if end.Verb == store.Stop {
			stops = append(stops, end)
		}
	}
	slices.SortStableFunc(stops, func(a, b *ending) int { return cmp.Compare(b.Token, a.Token) })
	for i, end := range ends {
		if end.Verb == store.Stop {
			ends[i], stops = stops[0], stops[1:]
		}
	}
}
