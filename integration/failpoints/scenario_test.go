package failpoints_test

import (
	"slices"
	"time"
)

// A role says since and until when the victim is a member of the queue.
type role int

const (
	stranger role = iota // it is none
	member               // all the time
	comer                // from the call on
	goer                 // up to the call
)

// A scenario is one call of a peer, and what it does.
type scenario struct {
	name    string
	wire    string // the call as command.calls knows it
	role    role
	repeats bool   // the library makes it again if its reply is lost
	insists bool   // and again, however often
	silent  bool   // its caller hears nothing of it, and goes on
	free    bool   // Redis does not ask whether its caller is a member
	fenced  string // what the caller is told when the worker was given up for dead before

	lease     time.Duration         // 0: as leaseOf says
	seed      func(w *world)        // nil enqueues a, b and c
	ready     func(v *victim) error // what the victim does first
	meanwhile func(w *world)        // what others do then
	call      func(v *victim) error // the call
	left      func(n int) []string  // what waits and is held, once the call was carried out n times; nil: a, b, c
	held      []string              // of this the victim holds so much before the call
	holds     []string              // and so much after it
	hands     bool                  // these it is given by the call
	ends      []string              // what the call finishes
	late      []string              // what the call adds if it arrives when all else is done
	again     []string              // and what a copy of it adds then
	also      []string              // what others finish meanwhile
	fails     func(n int) []string  // what is in the failed queue then
	twice     bool                  // a copy that comes at once is carried out again
	after     func(w *world, n int) // looks at what else the call has done
	ended     func(w *world)        // looks at what is left when all is done, and removes it
}

// promised is what is to come of a cell.
func (s *scenario) promised(c cell) promise {
	fenced := !s.free && (s.role == member || s.role == goer) // the worker is failed before the call arrives
	switch c.fault {
	case kill:
		if c.place == before || c.place == sent && fenced {
			return promise{effect: 0}
		}
		return promise{effect: 1}
	case pause, evict:
		return s.outlived(c, fenced)
	case twice:
		if s.insists {
			return promise{effect: 1, told: "ok"}
		}
		return promise{effect: 1, told: s.unsure()}
	case lost, late:
		switch {
		case c.place == done:
			return promise{effect: 1, told: s.doubt()}
		case s.repeats:
			return promise{effect: 1, told: "ok"}
		}
		return promise{effect: 0, told: s.doubt()}
	}
	if c.place == atOnce && s.twice {
		return promise{effect: 2, told: "ok"}
	}
	return promise{effect: 1, told: "ok"}
}

// outlived is what is to come of a call during which others have given the peer up
// for dead, if it is a member.
func (s *scenario) outlived(c cell, fenced bool) promise {
	switch {
	case !fenced && (s.silent || c.place == before || c.place == told):
		return promise{effect: 1, told: "ok"}
	case !fenced:
		return promise{effect: 1, told: s.doubt()}
	case s.silent, s.fenced == "ok":
		effect := 0
		if c.place == done || c.place == told {
			effect = 1
		}
		return promise{effect: effect, told: "ok"}
	}
	// The call is answered with a refusal, or a beat is, before the call is answered:
	// then nobody knows of the call.
	unknown := s.fenced + " unknown"
	switch c.place {
	case done:
		return promise{effect: 1, told: unknown}
	case told:
		return promise{effect: 1, told: "ok", or: unknown}
	}
	return promise{effect: 0, told: s.fenced, or: unknown}
}

// doubt is what the caller is told when the reply was lost.
func (s *scenario) doubt() string {
	if s.repeats || s.silent {
		return "ok"
	}
	return "unknown"
}

// unsure is what the caller is told when the reply was lost again.
func (s *scenario) unsure() string {
	if s.silent {
		return "ok"
	}
	return "unknown"
}

// applies reports whether there is such a cell.
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

// isFailed reports whether the victim is given up for dead.
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

// Leases: a short one where somebody is to be given up for dead, a long one
// where nobody may be.
const (
	shortLease = 2 * time.Second
	longLease  = 30 * time.Second
)

// leaseOf is the lease in a cell.
func (s *scenario) leaseOf(c cell) time.Duration {
	switch {
	case (c.fault == kill || c.fault == pause) && s.isFailed(c) || s.role == comer:
		return shortLease
	case s.lease > 0:
		return s.lease
	case c.fault == twice && s.role == goer:
		return 3 * time.Second // it leaves with its next beat
	}
	return longLease
}

// waits is what is left for others: marked where its holder died.
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

// keeps is what the victim holds then.
func (s *scenario) keeps(c cell) []string {
	switch {
	case c.fault == twice && s.hands:
		return s.held // nobody waits for more
	case s.promised(c).effect > 0:
		return s.holds
	}
	return s.held
}

// find returns the scenario of that name.
func find(name string) *scenario {
	for _, s := range scenarios() {
		if s.name == name {
			return s
		}
	}
	panic("no scenario " + name)
}

// scenarios are all.
func scenarios() []*scenario { return slices.Concat(memberships, rounds, productions, additions) }
