package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/matryer/is"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[a-zA-Z]")

// busiest is a picture with more of everything than the demo ever has.
func busiest() *picture {
	p := &picture{
		elapsed: 13 * time.Second, total: 14 * time.Second, waiting: 9876, rate: 543,
		where: "Redis at rediss://somebody:xxxxx@" + strings.Repeat("a-long-name.", 9) + "example.com:6379/15",
		seats: make([]seat, peers),
		sum:   summary{Enqueued: 12345, Finished: 12344, Canceled: 1, Retried: 2, Failed: 1, Returned: 12, Twice: 12},

		scheduled: []string{"mail 002 in 0.5 s", "backup 004 in 11.4 s"},
		failed:    []string{"invoice 003: the customer has no address"},
	}
	for i := range p.seats {
		for k := range p.seats[i].tasks {
			p.seats[i].tasks[k] = photo(123450 + 10*i + k).String()
		}
	}
	p.seats[1].killed = true
	for i := range samples {
		p.backlog, p.rates = append(p.backlog, i*i), append(p.rates, 40-i%7)
	}
	for i := range 40 {
		n := note{at: time.Duration(i) * 333 * time.Millisecond, tone: []shade{plain, bad, good, special}[i%4], text: fmt.Sprintf("note %d, %s", i, strings.Repeat("which is long ", i%9))}
		if i%8 == 0 {
			n.mark = "mark"
		}
		p.notes = append(p.notes, n)
	}
	return p
}

func TestViewFits(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {80, 10}, {40, 24}, {200, 60}, {5, 3}} {
		for _, st := range []style{{}, {ansi: true}} {
			is := is.New(t)
			lines := busiest().render(size.width, size.height, st)
			is.True(len(lines) <= size.height)
			for _, l := range lines {
				if w := utf8.RuneCountInString(escapes.ReplaceAllString(l, "")); w > size.width {
					t.Errorf("a line of %d at a width of %d: %q", w, size.width, l)
				}
			}
		}
	}
}

func TestNoColor(t *testing.T) {
	is := is.New(t)
	t.Setenv("NO_COLOR", "")
	is.True(styleFor(true).ansi)
	is.True(!styleFor(false).ansi)
	t.Setenv("NO_COLOR", "1")
	is.True(!escapes.MatchString(strings.Join(busiest().render(80, 24, styleFor(true)), "\n")))
}

func TestScreenLeavesTheTerminalAsItWas(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	s := &screen{out: &out, size: func() (int, int) { return 80, 24 }}
	s.paint(busiest())
	s.close()
	is.Equal(strings.Count(out.String(), "\n"), 23) // one more would scroll
	is.True(strings.HasSuffix(out.String(), leave))
}
