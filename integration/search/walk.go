package search

import (
	"math/rand/v2"

	"github.com/worqr/worqr/integration/spec"
)

// A Call is one of a path, in the words of a scenario, with what Redis holds before and after it.
type Call struct {
	Words         string
	Hear          []string // the workers that hear that they are woken
	Before, After spec.Queue
}

// Walk returns the calls of one path, of at most so many events, in one of the scopes.
func Walk(r *rand.Rand, events int) (calls []Call) {
	sc := scopes[r.IntN(len(scopes))]
	sc.records = true
	s := sc.start()
	for range events {
		var all []state
		sc.next(&s, func(_ string, to state) { all = append(all, to) })
		if len(all) == 0 {
			break
		}
		s = all[r.IntN(len(all))]
		calls, s.calls = append(calls, s.calls...), nil
	}
	return calls
}

// record makes a call, and notes it.
func (s *state) record(words string, call func()) {
	c := Call{Words: words, Before: held(&s.q)}
	for _, id := range ids {
		if s.hears(id) >= 0 {
			c.Hear = append(c.Hear, id)
		}
	}
	call()
	c.After = held(&s.q)
	s.calls = append(s.calls[:len(s.calls):len(s.calls)], c)
}

func held(q *spec.Queue) spec.Queue {
	of, failed := *q, *q.Failed
	of.Failed = &failed
	return of
}
