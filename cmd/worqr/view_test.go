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

// At 80x24 nothing important is cut off.
func TestViewShowsEverything(t *testing.T) {
	is := is.New(t)
	p := busiest()
	p.where = "an in-memory Redis inside this process"
	lines := p.render(80, 24, style{})
	is.Equal(len(lines), 24)
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		"13 of 14 s", p.where, "9876", "█", "543", "↑ mark",
		"peer 1  works   photo 123450", "peer 2  killed  photo 123460", "peer 3  works   photo 123470",
		"scheduled     2 mail 002 in 0.5 s  backup 004 in 11.4 s",
		"failed        1 invoice 003: the customer has no address",
		"note 39", "12345 enqueued", "1 canceled  2 retried  1 failed  12 returned",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	is.True(!strings.Contains(all, "note 1,")) // the last notes, not the first
}

func TestViewIsEmptyAtFirst(t *testing.T) {
	is := is.New(t)
	is.Equal(len((&picture{total: time.Second, seats: make([]seat, peers)}).render(80, 24, style{})), 24)
}

func TestTimeline(t *testing.T) {
	is := is.New(t)
	notes := []note{{at: 0, mark: "a"}, {at: time.Second}, {at: 5 * time.Second, mark: "b"}}
	is.Equal(timeline(notes, 10*time.Second, 20), [2]string{"↑ a       ↑ b"})
	crowd := []note{{mark: "first"}, {at: 2 * time.Second, mark: "second"}, {at: 3 * time.Second, mark: "third"}, {at: 5 * time.Second, mark: "fourth"}}
	is.Equal(timeline(crowd, 10*time.Second, 20), [2]string{"↑ first   ↑ fourth", "    ↑ second"})
}

func TestSparkline(t *testing.T) {
	is := is.New(t)
	values := make([]int, samples)
	values[samples-1] = 100
	is.Equal(sparkline(values, 10, samples), strings.Repeat("▁", samples-1)+"█")
	is.Equal(sparkline(values[:samples/2], 10, 10), strings.Repeat("▁", 5)) // half of the time
	is.Equal(sparkline(nil, 10, 10), "")
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

func TestLogIsALineASecond(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	l := &log{out: &out}
	p := busiest()
	for _, at := range []time.Duration{0, 100, 900, 1000, 1100, 2050, 2900, 3000} {
		p.elapsed = at * time.Millisecond
		l.paint(p)
	}
	is.Equal(strings.Count(out.String(), "\n"), 4)
	is.True(strings.Contains(out.String(), "9876 waiting, 2 scheduled, 8 running, 4 held by the killed peer, 1 failed,")) // a killed peer runs nothing, and still holds its tasks
}
