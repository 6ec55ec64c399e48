package simulation

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A record is what has happened at the server, in its order: requests, what was
// done to it, and what processes said beside. A failure is to be read there, since the
// seed alone does not fix how goroutines interleave. Each item is a line:
//
//	@ <µs since the beginning> <process> <words>      a request
//	+ <µs since the beginning> <process> <words>      a late copy of one
//	! <µs since the beginning> <what> <argument>      something was done to the server
//	# <µs since the beginning> <process> <text>       what else there is to know
type record struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *record) line(mark rune, at time.Duration, who, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.all, "%c %d %s %s\n", mark, at.Microseconds(), who, what)
}

func (r *record) request(at time.Duration, from string, again bool, args []string) {
	mark := '@'
	if again {
		mark = '+'
	}
	r.line(mark, at, from, fmt.Sprintf("%.200q", args)) // of a script its header
}

func (r *record) act(at time.Duration, what, argument string) { r.line('!', at, what, argument) }

func (r *record) note(at time.Duration, from, text string) {
	r.line('#', at, from, strings.ReplaceAll(text, "\n", " "))
}
