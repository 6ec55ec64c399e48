package main

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// The history of one task, as those who worked on it have seen it, must be one of
// a register: enqueued once, started with rising tokens, finished at most once and
// only with the last of them. Porcupine looks for an order of the calls that
// agrees with this and with the times at which they were made and answered.
//
// What nobody has seen the outcome of is left out: it can only forbid. So are
// returns by other peers, of which the next start tells.
type registerCall struct {
	op    string
	token int64
	lost  bool // a finish that was refused
}

type registerState struct {
	enqueued bool
	done     bool
	live     int64 // the last start
	taken    int64 // what was started up to here is no longer the worker's
}

var register = porcupine.Model{
	Init: func() any { return registerState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, c := state.(registerState), input.(registerCall)
		switch c.op {
		case opEnqueue:
			s.enqueued = true
			return true, s
		case opRun:
			legal := s.enqueued && !s.done && c.token > s.live
			s.live = c.token
			return legal, s
		case opFinish:
			if c.lost {
				s.taken = max(s.taken, c.token)
				return true, s
			}
			legal := !s.done && s.live == c.token && s.taken < c.token
			s.done = true
			return legal, s
		}
		return false, s
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
}

// linear reports whether the history of the task is one of a register.
func (t *account) linear() bool {
	var calls []porcupine.Operation
	add := func(c registerCall, from, to int64) {
		if to == 0 {
			to = math.MaxInt64 / 2
		}
		calls = append(calls, porcupine.Operation{ClientId: len(calls), Input: c, Call: from, Return: to})
	}
	if t.invoked == 0 {
		return len(t.runs) == 0
	}
	add(registerCall{op: opEnqueue}, t.invoked, t.answered)
	for _, r := range t.runs {
		add(registerCall{op: opRun, token: r.token}, t.invoked, r.began)
		if r.finish == okay || r.finish == refused && r.lost {
			add(registerCall{opFinish, r.token, r.lost}, r.finishing, r.finished)
		}
	}
	return porcupine.CheckOperations(register, calls)
}
