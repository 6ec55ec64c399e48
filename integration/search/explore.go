// Package search explores every interleaving of small fleets on package spec, checks the invariants
// of docs/protocol.md in each state, and expects to find a bug when a guard is removed. README.md
// has the details and the results.
package search

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// A move is one step of a system: its label, and the state after it.
type move[S comparable] struct {
	label label
	to    S
	fault bool // it's optional: a system must be able to end without it
}

// A label describes a move; it is formatted only for traces.
type label struct {
	format string
	args   [3]int
	n      int // of args
	of     fmt.Stringer
}

func (l label) String() string {
	var args []any
	for _, a := range l.args[:l.n] {
		args = append(args, a)
	}
	if l.of != nil {
		args = append(args, l.of)
	}
	return fmt.Sprintf(l.format, args...)
}

// A system has states that can all be visited.
type system[S comparable] interface {
	start() S
	// next gives every move that is possible, always in the same order.
	next(s S, give func(move[S]))
	// wrong returns the invariant that doesn't hold; "" if all do.
	wrong(s S) string
	// done reports whether nothing is left to do. From every state, such a state must be reachable
	// without faults.
	done(s S) bool
	// show prints a state for people.
	show(s S) string
}

// A finding is the result of a search.
type finding struct {
	states, moves, depth int
	took                 time.Duration
	wrong                string // the violated invariant; "" after a complete search
	trace                []step // the shortest way to it
}

// A step of a trace is a move, and the state after it.
type step struct{ what, state string }

// explore visits every state of a system, nearest first, until an invariant is
// violated; so traces are as short as possible. It stores only a 64-bit hash of
// each visited state: among ten million, two collide with a probability of three
// in a million.
func explore[S comparable](sys system[S], limit int) finding {
	began := time.Now()
	x := exploration[S]{sys: sys, seed: maphash.MakeSeed(), index: map[uint64]uint32{}}
	first := sys.start()
	x.visit(first, 0, 0)

	var f finding
	layer, from := []S{first}, uint32(0)
	end := func(at uint32, wrong string) finding {
		f.states, f.took, f.wrong = len(x.parents), time.Since(began), wrong
		if wrong != "" {
			f.trace = x.trace(at)
		}
		return f
	}
	if w := sys.wrong(first); w != "" {
		return end(0, w)
	}
	for len(layer) > 0 {
		var ahead []S
		for i, s := range layer {
			here, way := from+uint32(i), uint16(0)
			var bad uint32
			var why string
			sys.next(s, func(m move[S]) {
				f.moves++
				there, seen := x.visit(m.to, here, way)
				if !seen {
					ahead = append(ahead, m.to)
					if why == "" {
						if why = sys.wrong(m.to); why != "" {
							bad = there
						}
					}
				}
				if !m.fault && there != here {
					x.edges = append(x.edges, [2]uint32{here, there})
				}
				way++
			})
			if why != "" {
				return end(bad, why)
			}
			if len(x.parents) > limit {
				return end(here, fmt.Sprintf("the scope is too large: more than %d states", limit))
			}
		}
		from += uint32(len(layer))
		layer = ahead
		f.depth++
	}
	f.depth--
	if at, ok := x.stuck(); ok {
		return end(at, "progress: from here, the work can't be completed")
	}
	return end(0, "")
}

// An exploration has the visited states, by number.
type exploration[S comparable] struct {
	sys     system[S]
	seed    maphash.Seed
	index   map[uint64]uint32 // by hash
	parents []uint32          // the state from which each was first reached
	ways    []uint16          // the index of the move
	dones   []bool
	edges   [][2]uint32 // moves without faults
}

// visit gives a state a number, and reports whether it had one.
func (x *exploration[S]) visit(s S, parent uint32, way uint16) (_ uint32, seen bool) {
	h := maphash.Comparable(x.seed, s)
	if there, seen := x.index[h]; seen {
		return there, true
	}
	there := uint32(len(x.parents))
	x.index[h] = there
	x.parents, x.ways, x.dones = append(x.parents, parent), append(x.ways, way), append(x.dones, x.sys.done(s))
	return there, false
}

// stuck returns the first state from which no done state is reachable.
func (x *exploration[S]) stuck() (uint32, bool) {
	n := len(x.parents)
	// The moves reversed: those into state i are from into[first[i]:first[i+1]].
	first, into := make([]uint32, n+1), make([]uint32, len(x.edges))
	for _, e := range x.edges {
		first[e[1]+1]++
	}
	for i := range n {
		first[i+1] += first[i]
	}
	at := append([]uint32(nil), first...)
	for _, e := range x.edges {
		into[at[e[1]]] = e[0]
		at[e[1]]++
	}
	reached := make([]bool, n)
	var open []uint32
	for i, d := range x.dones {
		if d {
			reached[i] = true
			open = append(open, uint32(i))
		}
	}
	for len(open) > 0 {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		for _, j := range into[first[i]:first[i+1]] {
			if !reached[j] {
				reached[j] = true
				open = append(open, j)
			}
		}
	}
	for i, r := range reached {
		if !r {
			return uint32(i), true
		}
	}
	return 0, false
}

// trace repeats the moves from the start to a state, and returns the steps.
func (x *exploration[S]) trace(to uint32) (steps []step) {
	var ways []uint16
	for at := to; at != 0; at = x.parents[at] {
		ways = append(ways, x.ways[at])
	}
	s := x.sys.start()
	steps = append(steps, step{"start", x.sys.show(s)})
	for _, way := range slices.Backward(ways) {
		var taken move[S]
		x.sys.next(s, func(m move[S]) {
			if way == 0 {
				taken = m
			}
			way--
		})
		s = taken.to
		steps = append(steps, step{taken.label.String(), x.sys.show(s)})
	}
	return steps
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n      ")
}

// String describes the search, with the way to the violation.
func (f finding) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d states, %d moves, depth %d, %v", f.states, f.moves, f.depth, f.took.Round(time.Millisecond))
	if f.wrong != "" {
		fmt.Fprintf(b, "\n%s\n", f.wrong)
		for i, s := range f.trace {
			fmt.Fprintf(b, "%3d  %s\n%s\n", i, s.what, indent(s.state))
		}
	}
	return b.String()
}
