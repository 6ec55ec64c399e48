package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// parted returns the sessions of a queue that is spread over parts, all silent. Its lock is held.
func parted(t *testing.T, concurrency, parts int) []*Session {
	first := seated(t, func(o *Options) { o.Concurrency = concurrency })
	q := first.queue
	for range parts - 1 {
		q.mu.mu.Unlock()
		s := newSession(q, first.part, Membership{Worker: "w", Round: 2, Evicted: func() {}})
		q.mu.mu.Lock()
		s.idle, s.look = make(chan struct{}), false
		q.sessions = append(q.sessions, s)
		t.Cleanup(func() { s.endLocked(ErrShutdown) })
	}
	for _, s := range q.sessions {
		s.look, s.hungry = false, false
	}
	return q.sessions
}

// TestTurns checks how many tasks each session of a spread queue may ask for, one after the other.
func TestTurns(t *testing.T) {
	t.Parallel()
	type state struct {
		hungry bool
		slots  int // that it occupies
	}
	for name, c := range map[string]struct {
		concurrency int
		sessions    []state
		want        string
	}{
		"one session":                                       {4, []state{{false, 0}}, "[4]"},
		"alone among those that are idle":                   {4, []state{{true, 0}, {}, {}}, "[4 0 0]"},
		"with one that only runs tasks":                     {4, []state{{true, 0}, {false, 2}}, "[2 0]"},
		"two, in equal parts":                               {4, []state{{true, 0}, {true, 0}}, "[2 2]"},
		"three, of four slots; next it is the third's turn": {4, []state{{true, 0}, {true, 0}, {true, 0}}, "[2 2 0]"},
		"more than there are slots":                         {2, []state{{true, 0}, {true, 0}, {true, 0}}, "[1 1 0]"},
		"what has too many gets no more":                    {4, []state{{true, 3}, {true, 0}}, "[0 1]"},
		"what has fewest comes first":                       {2, []state{{true, 1}, {true, 0}}, "[0 1]"},
		"one slot, to the one that waited":                  {1, []state{{true, 0}, {true, 0}}, "[1 0]"},
		"what is idle asks for none":                        {4, []state{{false, 1}, {false, 0}}, "[0 0]"},
		"all slots are taken":                               {2, []state{{true, 2}, {true, 0}}, "[0 0]"},
		"one has none, and others are full":                 {4, []state{{true, 2}, {true, 1}, {true, 0}}, "[0 0 1]"},
		"no limit":                                          {math.MaxInt, []state{{true, 0}, {true, 0}}, "[500 500]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := parted(t, c.concurrency, len(c.sessions))
			q := all[0].queue
			for i, s := range c.sessions {
				all[i].hungry = s.hungry
				all[i].slots = len(q.grabLocked(s.slots))
			}
			var got []int
			for _, s := range all {
				got = append(got, len(q.reserveLocked(s, min(c.concurrency, 500))))
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("they may ask for %v, and it should be %s", got, c.want)
			}
			q.handling, q.taken = 0, 0
		})
	}
}

// A free slot goes to the session with the fewest slots that has waited longest, so sessions take
// turns.
func TestTurnsOfOneSlot(t *testing.T) {
	t.Parallel()
	all := parted(t, 1, 3)
	q := all[0].queue
	for _, s := range all {
		s.hungry = true
	}
	order := ""
	for range 6 {
		q.lookLocked()
		for i, s := range all {
			if !s.offered {
				continue
			}
			s.offered = false
			slots := q.reserveLocked(s, 1)
			order += fmt.Sprint(i)
			q.unreserveLocked(s, slots, false)
		}
	}
	if order != "012012" {
		t.Errorf("the turns are %s", order)
	}
}

// A session whose tasks have all ended leaves its slots to the others. A session that found no
// tasks is no longer woken.
func TestTurnsPassOn(t *testing.T) {
	t.Parallel()
	all := parted(t, 2, 2)
	q, a, b := all[0].queue, all[0], all[1]
	a.hungry = true
	slots := q.reserveLocked(a, 2)
	b.hungry = true
	if n := len(q.reserveLocked(b, 2)); n != 0 {
		t.Fatalf("%d slots are free", n)
	}
	a.hungry = false
	q.unreserveLocked(a, slots, true)
	if !q.turns.offered || q.taken != 0 {
		t.Errorf("no session is offered the free slots; %d are taken", q.taken)
	}
	q.lookLocked()
	if a.offered || !b.offered {
		t.Errorf("the session without tasks asks: %v; the waiting one asks: %v", a.offered, b.offered)
	}
	b.hungry, b.offered = false, false
	q.lookLocked()
	if b.offered {
		t.Error("a session that has found nothing asks again")
	}
}

// Slots follow their tasks: from a session's round to its handlers, and on to a ready task of
// another session.
func TestTurnsOfReadyTasks(t *testing.T) {
	t.Parallel()
	all := parted(t, 1, 2)
	q, a, b := all[0].queue, all[0], all[1]
	a.hungry, b.hungry = true, true
	first, second := a.holds("a", 1, ""), b.holds("b", 1, "")
	q.takeLocked(a, []*Attempt{first}, q.reserveLocked(a, 1))
	q.ready = []*Attempt{second}
	if a.slots != 1 || b.slots != 0 {
		t.Errorf("the first task: %d and %d", a.slots, b.slots)
	}
	if next := q.vacantLocked(time.Now(), &run{task: first, slot: 1}); next != second || a.slots != 0 || b.slots != 1 {
		t.Errorf("then %v: %d and %d", next, a.slots, b.slots)
	}
	q.vacantLocked(time.Now(), &run{task: second, slot: 1})
	if a.slots != 0 || b.slots != 0 || q.taken != 0 {
		t.Errorf("in the end: %d and %d of %d", a.slots, b.slots, q.taken)
	}
	q.ending = 0
}

// TestSeats checks which sessions of a spread queue may prefetch, as time passes and they ask.
func TestSeats(t *testing.T) {
	t.Parallel()
	type ask struct {
		after   time.Duration
		session int
		want    string // which sessions have a seat then
	}
	turn := longestTurn + time.Millisecond
	for name, c := range map[string]struct {
		prefetch int
		hungry   []bool
		asks     []ask
	}{
		"the first one that asks": {100, []bool{true, true, true}, []ask{{0, 1, "[0]"}, {0, 0, "[0]"}}},
		"only one with tasks":     {100, []bool{false, false, true}, []ask{{0, 2, "[2]"}}},
		"in turn":                 {100, []bool{true, true, true}, []ask{{0, 0, "[0]"}, {turn, 0, "[1]"}, {turn, 2, "[2]"}, {turn, 0, "[0]"}}},
		"until the turn ends":     {100, []bool{true, true, true}, []ask{{0, 0, "[0]"}, {2 * nearby, 0, "[0]"}, {2 * nearby, 1, "[0]"}}},
		"alone, forever":          {100, []bool{true, false}, []ask{{0, 0, "[0]"}, {turn, 0, "[0]"}, {10 * turn, 0, "[0]"}}},
		"several, if worth it":    {2 * seatful, []bool{true, true, true}, []ask{{0, 0, "[0 1]"}, {turn, 0, "[1 2]"}, {turn, 0, "[2 0]"}}},
		"none without room":       {-1, []bool{true, true}, []ask{{0, 0, "[]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := parted(t, 4, len(c.hungry))
			q := all[0].queue
			q.opts.Prefetch = c.prefetch
			for i, hungry := range c.hungry {
				all[i].hungry = hungry
			}
			now := time.Now()
			for i, a := range c.asks {
				now = now.Add(a.after)
				q.seatLocked(all[a.session], now)
				var got []int
				for _, s := range q.turns.seats {
					got = append(got, slices.Index(all, s))
				}
				if fmt.Sprint(got) != a.want {
					t.Errorf("ask %d: the seats are %v, and should be %s", i, got, a.want)
				}
			}
		})
	}
}

// A session keeps its seat for a number of tasks. A session without tasks loses it at once.
func TestSeatsEnd(t *testing.T) {
	t.Parallel()
	all := parted(t, 4, 3)
	q := all[0].queue
	q.opts.Prefetch = 100
	for _, s := range all {
		s.hungry = true
	}
	now := time.Now()
	q.seatLocked(all[0], now)
	n, _ := q.aheadLocked(all[0], now, 50)
	if n == 0 || all[0].seat.tasks != longestSeat-n {
		t.Fatalf("it asks for %d, and may ask for %d more", n, all[0].seat.tasks)
	}
	if n, _ := q.aheadLocked(all[1], now, 50); n != 0 {
		t.Errorf("without a seat it asks for %d ahead", n)
	}
	all[0].seat.tasks = 0
	q.seatLocked(all[0], now)
	if !q.seatedLocked(all[1]) || q.seatedLocked(all[0]) || !all[1].offered {
		t.Error("the seat doesn't go to the next session after its tasks")
	}
	all[1].hungry = false
	q.seatLocked(all[2], now)
	if !q.seatedLocked(all[2]) || q.seatedLocked(all[1]) {
		t.Error("a session without tasks keeps its seat")
	}
	q.asked = 0
}

// Free slots go to tasks that a session with a seat will soon bring, and to other sessions if that
// takes too long.
func TestSeatsComeFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prefetch int
		talked   time.Duration // ago
		late     time.Duration // the current delay of answers
		hungry   bool
		yields   bool
	}{
		"about to bring tasks":       {100, prompt / 2, 0, true, true},
		"it takes long":              {100, 2 * prompt, 0, true, false},
		"all answers take longer":    {100, 2 * prompt, prompt, true, true},
		"very long":                  {100, 2 * farthest, farthest, true, false},
		"there are none":             {100, prompt / 2, 0, false, false},
		"nothing is asked for ahead": {-1, prompt / 2, 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := parted(t, 4, 2)
			q, a, b := all[0].queue, all[0], all[1]
			now := time.Now()
			q.opts.Prefetch, q.pace.late = c.prefetch, c.late
			a.hungry, b.hungry = c.hungry, true
			a.talked, q.turns.seats = now.Add(-c.talked), []*Session{a}
			if got := q.yieldsLocked(b, now); got != c.yields {
				t.Errorf("it yields: %v", got)
			}
			if q.yieldsLocked(a, now) {
				t.Error("the session with the seat yields")
			}
			if lull := q.lullLocked(b, now); (lull > 0) != c.yields || lull > farthest {
				t.Errorf("ends gather for %v", lull)
			}
			b.closing = true
			if lull := q.lullLocked(b, now); lull != 0 {
				t.Errorf("they gather for %v though it leaves", lull)
			}
		})
	}
}

// A session that was offered slots which others have taken sends nothing. If it was woken, it
// passes the wake-up on.
func TestOffers(t *testing.T) {
	t.Parallel()
	all := parted(t, 1, 2)
	q, a, b := all[0].queue, all[0], all[1]
	q.opts.Prefetch = -1
	a.hungry, b.hungry = true, true
	taken := q.reserveLocked(a, 1)
	before := b.number
	b.offerLocked()
	if e := b.composeLocked(time.Now()); e != nil || b.number != before || b.offered {
		t.Errorf("it sends a round: %v", e != nil)
	}
	b.look = true
	if e := b.composeLocked(time.Now()); e == nil || len(e.Start) > 0 {
		t.Error("it doesn't pass the wake-up on")
	}
	q.unreserveLocked(a, taken, false)
	b.offerLocked()
	e := b.composeLocked(time.Now())
	if e == nil || len(e.slots) != 1 {
		t.Fatal("it doesn't ask though a slot is free")
	}
	q.unreserveLocked(b, e.slots, false)
}

// If a reply is lost and the repetition fails because the server is down, the round keeps no slots
// or turns from parts on other servers. If it's answered after all, its tasks begin in slots that
// are free then, and the rest go back.
func TestTurnsOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	all := parted(t, 3, 2)
	q, a, b := all[0].queue, all[0], all[1]
	q.opts.Prefetch = -1
	a.hungry = true
	e := &exchange{}
	e.slots = q.reserveLocked(a, 3)
	e.Start = make([]string, 3)
	e.Number, e.recalls = a.number, a.recalls
	for range 3 {
		a.releasedLocked(e, mishap{err: store.ErrUnknown, unknown: true})
	}
	if a.slots != 0 || q.taken != 0 || q.asked != 0 || a.hungry {
		t.Fatalf("%d slots of %d are kept, and %d tasks are to come; it comes first: %v", a.slots, q.taken, q.asked, a.hungry)
	}
	b.hungry = true
	if n := len(q.reserveLocked(b, 2)); n != 2 {
		t.Errorf("the part on the other server gets %d slots", n)
	}

	b.hungry = false
	begun := []*Attempt{a.holds("x", 1, ""), a.holds("y", 2, ""), a.holds("z", 3, "")}
	answer := &store.Answer{Started: make([]store.Start, 3), Last: a.number}
	a.answerLocked(noon, e, answer, begun)
	if a.slots != 1 || q.handling != 1 || q.taken != 3 || q.asked != 0 || len(a.outbox) != 2 {
		t.Errorf("%d slots, %d begun, %d of %d taken, %d to come, %d go back", a.slots, q.handling, q.taken, q.opts.Concurrency, q.asked, len(a.outbox))
	}
	q.handling, q.taken = 0, 0
	q.handlers.Done() // it doesn't begin
}
