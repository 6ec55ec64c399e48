package engine

import (
	"cmp"
	"slices"
	"time"
)

// The sessions of a queue that is spread over parts share its slots equally, among those that have
// tasks. When few slots are free, the session with the fewest comes first. A session asks only
// while it is hungry: otherwise one whose server is down would keep slots in calls that fail. If a
// queue has one session, that session takes whatever is free.

// A round that asks for few tasks costs Redis nearly as much as one that asks for many. Therefore
// only some of the sessions that have tasks have a seat at a time. They prefetch enough tasks to
// make a round worth its cost, and the slots that become free go to these tasks. The other sessions
// let their outcomes gather, and get a seat soon.

// turns decides which session asks for tasks.
type turns struct {
	count   int64      // rises whenever a session takes slots or a seat; it orders them
	offered bool       // offerLocked has been called, and lookLocked will be
	soon    bool       // offerSoonLocked has been called, and lookLocked will be
	seats   []*Session // sessions that may prefetch, in the order in which they got their seat
}

// A seat is a session's turn to prefetch.
type seat struct {
	number int64     // turns.count when it began
	since  time.Time // when it began
	until  time.Time // when it goes to another session that waits
	tasks  int       // that it may still ask for
}

const (
	seatful     = 512  // prefetched tasks per seat
	longestSeat = 4096 // most tasks per turn
	longestTurn = 50 * time.Millisecond
	allTurns    = 500 * time.Millisecond // in which every session has a turn; but a turn takes at least two windows
	prompt      = 20 * time.Millisecond  // how long slots are left to a session with a seat that brings no tasks
)

// seatsLocked returns the number of seats, if up to most tasks may be prefetched.
func (q *Queue) seatsLocked(most int) int {
	return max(min(most/seatful, len(q.sessions)), 1)
}

func (q *Queue) seatedLocked(s *Session) bool {
	return len(q.sessions) < 2 || slices.Contains(q.turns.seats, s)
}

// seatLocked gives seats to the sessions that have waited longest. It takes them from sessions that
// have no more tasks or have had their turn. Session s is about to ask, so it isn't woken.
func (q *Queue) seatLocked(s *Session, now time.Time) {
	if len(q.sessions) < 2 {
		return
	}
	t := &q.turns
	t.seats = slices.DeleteFunc(t.seats, func(o *Session) bool { return !o.hungry || o.ended != nil })
	most, room := q.roomLocked(now)
	if room <= 0 {
		return
	}
	var waiting []*Session
	for _, o := range q.sessions {
		if o.hungry && !slices.Contains(t.seats, o) {
			waiting = append(waiting, o)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *Session) int { return cmp.Compare(a.seat.number, b.seat.number) })
	turn := min(max(allTurns/time.Duration(len(waiting)+len(t.seats)+1), 2*q.pace.window()), longestTurn)
	for _, next := range waiting {
		if len(t.seats) >= q.seatsLocked(most) {
			i := slices.IndexFunc(t.seats, func(o *Session) bool { return o.seat.tasks <= 0 || now.After(o.seat.until) })
			if i < 0 {
				break
			}
			t.seats = slices.Delete(t.seats, i, i+1)
		}
		t.count++
		next.seat = seat{t.count, now, now.Add(turn), longestSeat}
		t.seats = append(t.seats, next)
		next.hurryLocked()
		if next != s {
			next.offerLocked()
		}
	}
}

// yieldsLocked reports whether the session leaves free slots to one that has a seat and will soon
// bring tasks for them. It stops yielding if that takes too long.
func (q *Queue) yieldsLocked(s *Session, now time.Time) bool {
	if q.seatedLocked(s) {
		return false
	}
	most, _ := q.roomLocked(now)
	return most > 0 && slices.ContainsFunc(q.turns.seats, func(o *Session) bool {
		return o.hungry && min(now.Sub(o.talked), now.Sub(o.seat.since)) < q.promptLocked()
	})
}

// promptLocked returns how long a session that has a seat may take to bring tasks: longer if trips
// are slow.
func (q *Queue) promptLocked() time.Duration {
	return min(max(4*(q.pace.trip+q.pace.late), prompt), farthest)
}

// lullLocked returns how long the session lets outcomes gather while other sessions have the seats.
func (q *Queue) lullLocked(s *Session, now time.Time) time.Duration {
	if s.closing || !q.yieldsLocked(s, now) {
		return 0
	}
	return q.pace.window() / 2
}

// offerLocked wakes the session, which asks for tasks if there are still slots for it.
func (s *Session) offerLocked() {
	s.offered = true
	s.wakeLocked()
}

// allowedLocked returns how many of n tasks the session may ask for now.
func (q *Queue) allowedLocked(s *Session, n int) int {
	if len(q.sessions) < 2 {
		return n
	}
	if !s.hungry {
		return 0
	}
	if q.yieldsLocked(s, time.Now()) {
		q.offerSoonLocked()
		return 0
	}
	if !q.othersLocked(s) {
		return n
	}
	askers, first := 1, 0 // sessions that share the slots, including s, and those before s
	for _, o := range q.sessions {
		if o != s && (o.hungry || o.slots > 0) {
			askers++
		}
		if o != s && o.hungry && byTurn(o, s) < 0 {
			first++
		}
	}
	part := (q.opts.Concurrency-1)/askers + 1 // rounded up; Concurrency may be the largest int
	return max(min(n, part-s.slots, q.opts.Concurrency-q.taken+len(q.spare)-first), 0)
}

// othersLocked reports whether another session is hungry.
func (q *Queue) othersLocked(s *Session) bool {
	return slices.ContainsFunc(q.sessions, func(o *Session) bool { return o != s && o.hungry })
}

// occupyLocked records that the session has taken slots.
func (q *Queue) occupyLocked(s *Session, slots int) {
	if slots > 0 {
		q.turns.count++
		s.slots, s.asked = s.slots+slots, q.turns.count
	}
}

// satedLocked passes the free slots on, since the session wants no more tasks at present.
func (q *Queue) satedLocked(s *Session) {
	if q.othersLocked(s) {
		q.needsLocked(s, false)
		q.offerLocked()
		return
	}
	q.forgoLocked()
}

// offerLocked offers free slots to hungry sessions once the lock is free.
func (q *Queue) offerLocked() {
	if len(q.sessions) < 2 || q.turns.offered {
		return
	}
	q.turns.offered = true
	q.mu.laterLocked(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.turns.offered = false
		q.lookLocked()
	})
}

// offerSoonLocked offers slots that are still free after a while to hungry sessions.
func (q *Queue) offerSoonLocked() {
	if q.turns.soon {
		return
	}
	q.turns.soon = true
	time.AfterFunc(q.promptLocked(), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.turns.soon = false
		q.lookLocked()
	})
}

// lookLocked wakes the only session, or as many hungry ones as there are free slots, to ask for
// tasks. It reports whether one will ask.
func (q *Queue) lookLocked() (will bool) {
	if len(q.sessions) == 1 {
		return q.sessions[0].lookLocked()
	}
	free := q.opts.Concurrency - q.taken + len(q.spare)
	for _, s := range slices.SortedFunc(slices.Values(q.sessions), byTurn) {
		if free > 0 && q.allowedLocked(s, 1) > 0 && s.ended == nil && !s.silent {
			s.offerLocked()
			will = true
			free--
		}
	}
	return will
}

// byTurn orders sessions by priority when few slots are free.
func byTurn(a, b *Session) int {
	return cmp.Or(cmp.Compare(a.slots, b.slots), cmp.Compare(a.asked, b.asked))
}
