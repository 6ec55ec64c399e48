package search

import (
	"cmp"
	"math/bits"
	"slices"
)

// canonical returns the state that represents all states that differ only in how high their tokens
// and numbers are, in what can't be observed anymore, or in the order of copies. This ends the
// search, although numbers rise.
func (s state) canonical() state {
	s.forget()
	s.ranks(1, s.tokens)
	s.ranks(1, s.fences)
	for w := range s.peers {
		// A round before the last four is refused. Of the round of its join, only the order matters.
		s.ranks(4, func(visit func(*uint8)) { s.numbers(w, visit) }, &s.past.since[w])
	}
	used := s.ids()
	for i := range s.past.ended {
		if !used[i+1] {
			s.past.ended[i] = none
		}
	}
	slices.SortFunc(s.late[:], func(a, b request) int {
		if a.kind == nothing || b.kind == nothing {
			return int(b.kind) - int(a.kind)
		}
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.worker, b.worker), cmp.Compare(a.number, b.number))
	})
	return s
}

// forget drops the tokens of cancels if none is known and none can come.
func (s *state) forget() {
	for wait := range s.past.waits {
		if !s.past.open(uint8(wait)) && !(s.call.begun && s.call.wait == uint8(wait)) {
			s.past.waits[wait] = 0
		}
	}
	if s.left.cancels > 0 || s.left.keyCancels > 0 || s.call.begun || s.past.waits != [2]uint8{} || s.redis.cancel != [2]uint8{} {
		return
	}
	for w := range s.peers {
		p := &s.peers[w]
		p.seen, p.said = 0, 0
		for i := range p.held {
			p.held[i].covered = [2]uint8{}
		}
		for i := range p.flight {
			p.flight[i].answer.seen = 0
		}
		s.redis.holder[w].said = 0
	}
	s.requests(func(r *request) { r.seen, r.said, r.runs = 0, 0, [maxSlots][2]bool{} })
}

// ranks makes numbers small. It keeps their order, and distances below gap. For others, it keeps only their
// order relative to these.
func (s *state) ranks(gap int, all func(func(*uint8)), others ...*uint8) {
	there := uint64(0)
	all(func(n *uint8) { there |= 1 << *n })
	var rank [64]uint8
	last, at, same := 0, 0, true
	for there &^= 1; there != 0; there &= there - 1 {
		n := bits.TrailingZeros64(there)
		if at == 0 {
			at = 1 // the distance from none doesn't matter
		} else {
			at += min(n-last, gap)
		}
		rank[n], last, same = uint8(at), n, same && at == n
	}
	for _, other := range others {
		below := *other // the next one that isn't above
		for below > 0 && rank[below] == 0 {
			below--
		}
		switch {
		case below == *other || below == 0:
			*other = rank[below]
		default:
			*other = rank[below] + 1 // a free number, since there is a gap
		}
	}
	if !same {
		all(func(n *uint8) { *n = rank[*n] })
	}
}

// tokens visits all tokens.
func (s *state) tokens(visit func(*uint8)) {
	visit(&s.redis.token)
	for i := range s.redis.process {
		visit(&s.redis.process[i].token)
	}
	for i := range s.redis.entry {
		visit(&s.redis.entry[i].score)
	}
	for i := range s.redis.cancel {
		visit(&s.redis.cancel[i])
		visit(&s.past.waits[i])
	}
	for i := range s.redis.stopping {
		visit(&s.redis.stopping[i][0])
		visit(&s.redis.stopping[i][1])
	}
	for w := range s.redis.holder {
		visit(&s.redis.holder[w].said)
	}
	for w := range s.peers {
		p := &s.peers[w]
		visit(&p.seen)
		visit(&p.said)
		for i := range p.held {
			visit(&p.held[i].token)
			visit(&p.held[i].covered[0])
			visit(&p.held[i].covered[1])
		}
		for i := range p.flight {
			a := &p.flight[i].answer
			visit(&a.token)
			visit(&a.seen)
			for i := range a.cancels {
				visit(&a.cancels[i])
			}
		}
	}
	s.requests(func(r *request) {
		visit(&r.seen)
		for i := range r.ends {
			visit(&r.ends[i].token)
		}
		visit(&r.said)
	})
	for i := range s.past.back {
		visit(&s.past.back[i].token)
	}
}

// fences visits everything about when workers left.
func (s *state) fences(visit func(*uint8)) {
	visit(&s.redis.fence)
	for w := range s.peers {
		visit(&s.peers[w].asked)
	}
	for i := range s.late {
		visit(&s.late[i].asked)
	}
}

// numbers visits the numbers of the rounds of one worker.
func (s *state) numbers(w int, visit func(*uint8)) {
	visit(&s.redis.round[w])
	visit(&s.peers[w].number)
	s.requests(func(r *request) {
		if int(r.worker) == w && r.kind != nothing {
			visit(&r.number)
		}
	})
}
