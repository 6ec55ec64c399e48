// Package search visits every order of events in small fleets that use package spec, checks the invariants of
// docs/protocol.md in each state, and then lets a new worker complete the work.
package search

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// A finding is the result of a search.
type finding struct {
	states, moves, depth int
	wrong                string // the first violation; "" after a complete search
	trace                []string
}

func (f finding) String() string {
	text := fmt.Sprintf("%d states, %d moves, depth %d", f.states, f.moves, f.depth)
	if f.wrong != "" {
		text += "\n" + f.wrong + "\n  " + strings.Join(f.trace, "\n  ")
	}
	return text
}

// A visit is how a state was first reached.
type visit struct {
	from int32
	way  int32 // which of the moves
}

// explore visits every state of a scope, the nearest first, so that a trace is as short as possible. It stores a hash of
// each: among ten million, two collide with a probability of three in a million.
func explore(sc *scope, limit int) (f finding) {
	seed, seen, visits := maphash.MakeSeed(), map[uint64]bool{}, []visit{{}}
	var text []byte
	isNewText := func() bool {
		h := maphash.Bytes(seed, text)
		is := !seen[h]
		seen[h] = true
		return is
	}
	isNew := func(s *state) bool {
		text = s.append(text[:0])
		return isNewText()
	}
	layer, number := []state{sc.start()}, int32(0)
	isNew(&layer[0])
	for len(layer) > 0 && f.wrong == "" {
		var ahead []state
		for i := range layer {
			way := int32(0)
			sc.next(&layer[i], func(what string, to state) {
				f.moves++
				if way++; f.wrong != "" || to.wrong == "" && !isNew(&to) {
					return
				}
				visits = append(visits, visit{number, way})
				ahead = append(ahead, to)
				if f.wrong = to.wrong; f.wrong == "" {
					f.wrong = to.check()
				}
				if text = to.appendRedis(text[:0]); f.wrong == "" && isNewText() { // many states differ only in what workers know
					f.wrong = to.checkRedis()
				}
				if len(visits) > limit && f.wrong == "" {
					f.wrong = fmt.Sprintf("the scope is too large: more than %d states", limit)
				}
				if f.wrong != "" {
					f.trace = sc.trace(visits)
				}
			})
			if number++; f.wrong != "" {
				break
			}
		}
		layer = ahead
		f.depth++
	}
	f.states = len(visits)
	return f
}

// trace makes the moves to the last state again.
func (sc *scope) trace(visits []visit) (trace []string) {
	var ways []int32
	for at := int32(len(visits) - 1); at != 0; at = visits[at].from {
		ways = append([]int32{visits[at].way}, ways...)
	}
	s := sc.start()
	for _, want := range ways {
		way, here := int32(0), s
		sc.next(&here, func(what string, to state) {
			if way++; way == want {
				trace, s = append(trace, what), to
			}
		})
	}
	return append(append(trace, "then Redis holds"), s.q.Lines()...)
}
