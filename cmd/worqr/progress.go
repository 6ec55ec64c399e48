package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/words"
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

const barWidth = 24

func (p *progress) text(now time.Time) string {
	rate := float64(p.done) / max(now.Sub(p.began).Seconds(), 0.001)
	if p.total <= 0 {
		return fmt.Sprintf("%s: %s (%s/s)", p.doing, words.Counted(p.done, "task"), words.Grouped(int(rate)))
	}
	part := min(float64(p.done)/float64(p.total), 1)
	full := int(part * barWidth)
	text := fmt.Sprintf("%s [%s%s] %3.0f %%  %s of %s (%s/s", p.doing, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part, words.Grouped(p.done), words.Grouped(p.total), words.Grouped(int(rate)))
	if left := p.total - p.done; left > 0 && rate > 0 {
		text += ", " + age(time.Duration(float64(left)/rate*float64(time.Second))) + " left"
	}
	return text + ")"
}
