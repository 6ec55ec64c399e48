package failpoints_test

import (
	"slices"
	"time"
)

// A role says when the victim is a member of the queue.
type role int

const (
	stranger role = iota // never
	member               // always
	comer                // from the call on
	goer                 // until the call
)

// A scenario is one call of a peer, and its effects.
type scenario struct {
	name    string
	wire    string // the call, for command.calls
	role    role
	repeats bool   // the library repeats it if its reply is lost
	silent  bool   // its caller doesn't learn of errors, and goes on
	fenced  string // what the caller gets if the worker was evicted before

	lease     time.Duration         // 0: see leaseOf
	seed      func(w *world)        // nil enqueues a, b and c
	ready     func(v *victim) error // what the victim does first
	meanwhile func(w *world)        // what others do then
	call      func(v *victim) error // the call
	left      func(n int) []string  // what waits or is held after n calls; nil: a, b, c
	named     []string              // the part of it that isn't on the list: it takes turns with the others
	held      []string              // the part of it that the victim holds before the call
	holds     []string              // the part that it holds after the call
	hands     bool                  // the call starts them
	ends      []string              // what the call finishes
	late      []string              // what the call adds if it arrives after everything else
	again     []string              // what a copy of it adds then
	fails     func(n int) []string  // what is in the failed queue after n calls
	twice     bool                  // a copy that arrives immediately is carried out again
	after     func(w *world, n int) // checks other effects of the call
	ended     func(w *world)        // checks what is left at the end, and removes it
}

// promised returns the expected result of a cell.
func (s *scenario) promised(c cell) promise {
	fenced := s.role == member || s.role == goer // the worker is evicted before the call arrives
	switch c.fault {
	case kill:
		if c.place == before || c.place == sent && fenced {
			return promise{effect: 0}
		}
		return promise{effect: 1}
	case pause, evict:
		return s.outlived(c, fenced)
	case twice:
		return promise{effect: 1, result: s.unsure()}
	case lost, late:
		switch {
		case c.place == executed:
			return promise{effect: 1, result: s.doubt()}
		case s.repeats:
			return promise{effect: 1, result: "ok"}
		}
		return promise{effect: 0, result: s.doubt()}
	}
	if c.place == atOnce && s.twice {
		return promise{effect: 2, result: "ok"}
	}
	return promise{effect: 1, result: "ok"}
}

// outlived returns the expected result if others evict the peer during the call, provided that it
// is a member.
func (s *scenario) outlived(c cell, fenced bool) promise {
	switch {
	case !fenced && (s.silent || c.place == before || c.place == received):
		return promise{effect: 1, result: "ok"}
	case !fenced:
		return promise{effect: 1, result: s.doubt()}
	case s.silent, s.fenced == "ok":
		effect := 0
		if c.place == executed || c.place == received {
			effect = 1
		}
		return promise{effect: effect, result: "ok"}
	}
	// If a heartbeat is refused before the call is answered, the outcome of the call is unknown.
	unknown := s.fenced + " unknown"
	switch c.place {
	case executed:
		return promise{effect: 1, result: unknown}
	case received:
		return promise{effect: 1, result: "ok", or: unknown}
	}
	return promise{effect: 0, result: s.fenced, or: unknown}
}

// doubt returns what the caller gets if the reply was lost.
func (s *scenario) doubt() string {
	if s.repeats || s.silent {
		return "ok"
	}
	return "unknown"
}

// unsure returns what the caller gets if the reply was lost twice.
func (s *scenario) unsure() string {
	if s.silent {
		return "ok"
	}
	return "unknown"
}

// applies reports whether the cell exists.
func (s *scenario) applies(c cell) bool {
	switch c {
	case cell{again, next}:
		return len(s.holds) > 1
	case cell{again, failed}:
		return s.role != stranger
	}
	switch c.fault {
	case evict:
		return s.role != stranger
	case twice:
		return s.repeats
	}
	return true
}

// isFailed reports whether the victim is evicted.
func (s *scenario) isFailed(c cell) bool {
	switch {
	case c.fault == again:
		return c.place == failed && s.role != goer
	case c.fault != kill && c.fault != pause && c.fault != evict:
		return false
	case s.role == comer:
		return c.place != before
	case s.role == goer:
		return c.place == before || c.place == sent
	}
	return s.role == member
}

// Leases: a short one if a peer must be evicted, a long one if none may be.
const (
	shortLease = 2 * time.Second
	longLease  = 30 * time.Second
)

// leaseOf returns the lease in a cell.
func (s *scenario) leaseOf(c cell) time.Duration {
	switch {
	case (c.fault == kill || c.fault == pause) && s.isFailed(c) || s.role == comer:
		return shortLease
	case s.lease > 0:
		return s.lease
	case c.fault == twice && s.role == goer:
		return 3 * time.Second // it leaves with its next heartbeat
	}
	return longLease
}

// waits returns what is left for others, marked if its holder died.
func (s *scenario) waits(c cell) (all []string) {
	n := s.promised(c).effect
	all = []string{"a", "b", "c"}
	if s.left != nil {
		all = s.left(n)
	}
	held := s.keeps(c)
	switch {
	case s.isFailed(c):
		for i, p := range all {
			if slices.Contains(held, p) {
				all[i] += "!"
			}
		}
	case c.fault != kill:
		all = slices.DeleteFunc(all, func(p string) bool { return slices.Contains(held, p) })
	}
	return all
}

// keeps returns what the victim holds then.
func (s *scenario) keeps(c cell) []string {
	switch {
	case c.fault == twice && s.hands:
		return s.held // no caller waits for more
	case s.promised(c).effect > 0:
		return s.holds
	}
	return s.held
}

// find returns the scenario with that name.
func find(name string) *scenario {
	for _, s := range scenarios() {
		if s.name == name {
			return s
		}
	}
	panic("no scenario " + name)
}

// scenarios returns all scenarios.
func scenarios() []*scenario { return slices.Concat(memberships, rounds, productions, additions) }
