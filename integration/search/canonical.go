package search

import "slices"

// canonical gives the one state that stands for all that differ only in how
// high their tokens and numbers are, in what nobody can see any more, or in the
// order in which copies are listed. So a search ends although numbers rise.
func (s state) canonical() state {
	s.ranks(1, s.tokens)
	s.ranks(1, s.fences)
	for w := range s.peers {
		s.ranks(2, func(visit func(*uint8)) { s.numbers(w, visit) })
	}
	used := s.ids()
	for i := range s.past.ended {
		if !used[i+1] {
			s.past.ended[i] = none
		}
	}
	if l := &s.redis.lock; l.kind != nowhere {
		if l.kind == onList {
			l.at -= l.offset
		}
		l.offset = 0
	}
	slices.SortFunc(s.late[:], func(a, b request) int {
		if a.kind == nothing || b.kind == nothing {
			return int(b.kind) - int(a.kind)
		}
		for _, d := range []int{int(a.kind) - int(b.kind), int(a.worker) - int(b.worker), int(a.number) - int(b.number)} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	return s
}

// ranks makes numbers small: their order stays, and so do distances below gap.
func (s *state) ranks(gap int, all func(func(*uint8))) {
	var there [64]bool
	all(func(n *uint8) { there[*n] = true })
	var rank [64]uint8
	last, at := 0, 0
	for n := 1; n < len(there); n++ {
		if there[n] {
			at += min(n-last, gap)
			rank[n], last = uint8(at), n
		}
	}
	all(func(n *uint8) { *n = rank[*n] })
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
		visit(&s.redis.cancel[i].token)
	}
	for w := range s.peers {
		p := &s.peers[w]
		visit(&p.seen)
		for i := range p.held {
			visit(&p.held[i].token)
		}
		for i := range p.open {
			visit(&p.open[i])
			visit(&p.acks[i])
		}
		for i := range p.flight {
			a := &p.flight[i].answer
			visit(&a.token)
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
		for i := range r.acks {
			visit(&r.acks[i])
		}
	})
	for i := range s.past.back {
		visit(&s.past.back[i].token)
	}
}

// fences visits all that is known of who went when.
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
	visit(&s.past.since[w])
	s.requests(func(r *request) {
		if int(r.worker) == w && r.kind != nothing {
			visit(&r.number)
		}
	})
}
