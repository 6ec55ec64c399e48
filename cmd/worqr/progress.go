package main

import (
	"fmt"
	"io"
	"time"

	"github.com/worqr/worqr/cmd/worqr/internal/words"
)

// A progress shows the progress of a long command on a terminal.
type progress struct {
	out   io.Writer // nil without a terminal
	doing string
	total int // 0 if it isn't known
	done  int
	began time.Time
	next  time.Time
}

// clear clears the rest of a line.
const clear = "\x1b[K"

// redraw is the interval between updates.
const redraw = 100 * time.Millisecond

// progress starts to show how many tasks a command has done. Quick commands show nothing.
func (con *console) progress(doing string, total int) *progress {
	p := &progress{doing: doing, total: total, began: time.Now()}
	p.next = p.began.Add(3 * redraw)
	if isTerminal(con.errs) {
		p.out = con.errs
	}
	return p
}

// add counts tasks.
func (p *progress) add(n int) {
	p.done += n
	if now := time.Now(); p.out != nil && now.After(p.next) {
		p.next = now.Add(redraw)
		_, _ = io.WriteString(p.out, "\r"+p.text(now)+clear) // if that fails, no one watches
	}
}

// end clears the line.
func (p *progress) end() {
	if p.out != nil {
		_, _ = io.WriteString(p.out, "\r"+clear) // as in add
	}
}

func (p *progress) text(now time.Time) string {
	rate := float64(p.done) / max(now.Sub(p.began).Seconds(), 0.001)
	if p.total <= 0 {
		return fmt.Sprintf("%s: %s (%s/s)", p.doing, words.Counted(p.done, "task"), words.Grouped(int(rate)))
	}
	return fmt.Sprintf("%s: %s of %s (%s/s)", p.doing, words.Grouped(p.done), words.Counted(p.total, "task"), words.Grouped(int(rate)))
}
