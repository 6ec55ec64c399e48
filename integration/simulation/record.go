package simulation

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A record has the events at the server in order: requests, faults, and the log lines of processes. Use it to
// debug a failure, since the seed alone doesn't determine how goroutines interleave. Each item is a line:
//
//	@ <µs since the beginning> <process> <words>      a request
//	+ <µs since the beginning> <process> <words>      a late copy of one
//	! <µs since the beginning> <what> <argument>      a fault of the server
//	# <µs since the beginning> <process> <text>       anything else
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
	r.line(mark, at, from, fmt.Sprintf("%.200q", args)) // for a script its header
}

func (r *record) act(at time.Duration, what, argument string) { r.line('!', at, what, argument) }

func (r *record) note(at time.Duration, from, text string) {
	r.line('#', at, from, strings.ReplaceAll(text, "\n", " "))
}
