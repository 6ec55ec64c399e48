package simulation

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A record is what has happened at the server, in its order: requests, what was
// done to it, and what processes said beside. A failure can be read there, and
// the part of the server in it be repeated (Replay), while the seed alone does not
// fix how goroutines interleave.
//
// Each item is a line, and a request has its bytes behind that:
//
//	@ <µs since the beginning> <process> <bytes>      a request
//	+ <µs since the beginning> <process> <bytes>      a late copy of one
//	! <µs since the beginning> <what> <argument>      something was done to the server
//	# <µs since the beginning> <process> <text>       for people
type record struct {
	mu  sync.Mutex
	all bytes.Buffer
	raw []byte
}

func newRecord() *record { return &record{} }

func (r *record) request(at time.Duration, from string, again bool, args []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mark := '@'
	if again {
		mark = '+'
	}
	r.raw = appendCommand(r.raw[:0], args)
	fmt.Fprintf(&r.all, "%c %d %s %d\n", mark, at.Microseconds(), from, len(r.raw))
	r.all.Write(r.raw)
	r.all.WriteByte('\n')
}

func (r *record) act(at time.Duration, what, argument string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.all, "! %d %s %s\n", at.Microseconds(), what, argument)
}

func (r *record) note(at time.Duration, from, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.all, "# %d %s %s\n", at.Microseconds(), from, strings.ReplaceAll(text, "\n", " "))
}

// An item is one of a record.
type item struct {
	mark byte
	at   time.Duration
	who  string // the process, or what was done
	args []string
	text string
}

// read yields the items of a record.
func readRecord(from io.Reader, yield func(item) error) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var it item
		var us int64
		mark, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		at, rest, _ := strings.Cut(rest, " ")
		if _, err := fmt.Sscan(at, &us); err != nil || len(mark) != 1 {
			return fmt.Errorf("no line of a record: %q", line)
		}
		it.mark, it.at = mark[0], time.Duration(us)*time.Microsecond
		it.who, it.text, _ = strings.Cut(rest, " ")
		if it.mark == '@' || it.mark == '+' {
			var n int
			if _, err := fmt.Sscan(it.text, &n); err != nil {
				return fmt.Errorf("no length of a request: %q", line)
			}
			raw := make([]byte, n+1)
			if _, err := io.ReadFull(in, raw); err != nil {
				return err
			}
			if it.args, _, err = readCommand(raw[:n]); err != nil {
				return err
			}
		}
		if err := yield(it); err != nil {
			return err
		}
	}
}
