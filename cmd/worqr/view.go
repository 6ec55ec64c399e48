package main

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// A style formats for terminals, or for other output. It uses only the terminal's
// own colors, and none that is pale on a light or a dark background.
type style struct{ ansi bool }

// styleFor respects https://no-color.org.
func styleFor(terminal bool) style {
	return style{terminal && os.Getenv("NO_COLOR") == ""}
}

// A shade is the parameter of an escape sequence.
type shade int

const (
	plain   shade = 0
	bold    shade = 1
	dim     shade = 2
	bad     shade = 31 // red
	good    shade = 32 // green
	special shade = 35 // magenta
)

func (s style) write(how shade, text string) string {
	if !s.ansi || how == plain || text == "" {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", how, text)
}

// A picture is the demo at one moment.
type picture struct {
	elapsed, total time.Duration
	where          string
	waiting, rate  int
	scheduled      []string // in words
	failed         []string // in words
	backlog, rates []int    // since the beginning, for the time line
	seats          []seat
	notes          []note
	sum            summary
}

const (
	margin = 2
	gutter = 18 // the width to the left of a time line or of a peer's tasks
	below  = 2  // lines below the notes
	busy   = 24 // the value of a time line with the full height
)

// render draws the picture in lines, at most width wide, and at most height of
// them.
func (p *picture) render(width, height int, st style) []string {
	c := canvas{width: width - margin, st: st}
	at := fmt.Sprintf("%.0f of %.0f s", p.elapsed.Seconds(), p.total.Seconds())
	title := "worqr demo"
	gap := max(c.width-margin-len(title)-len(at), 1) // all ASCII
	c.line(span{title, bold}, span{strings.Repeat(" ", gap), plain}, span{at, dim})
	c.line(span{"three peers, one queue, " + p.where, dim})
	c.blank()
	room := max(c.width-gutter, 1)
	c.line(span{"waiting    ", plain}, span{fmt.Sprintf("%4d ", p.waiting), bold}, span{sparkline(p.backlog, busy, room), plain})
	c.line(span{"finished/s ", plain}, span{fmt.Sprintf("%4d ", p.rate), bold}, span{sparkline(p.rates, busy, room), plain})
	for _, marks := range timeline(p.notes, p.total, room) {
		c.line(span{strings.Repeat(" ", gutter-margin) + marks, dim})
	}
	c.few("scheduled", p.scheduled, special)
	c.few("failed", p.failed, bad)
	c.blank()
	for i, s := range p.seats {
		c.seat(peerName(i+1), s)
	}
	c.blank()
	c.line(span{"what happened", dim})
	c.notes(p.notes, max(height-len(c.lines)-below, 1))
	for len(c.lines) < height-1 {
		c.blank()
	}
	s := p.sum
	c.line(span{fmt.Sprintf("%d enqueued  %d finished  %d canceled  %d retried  %d failed  %d returned",
		s.Enqueued, s.Finished, s.Canceled, s.Retried, s.Failed, s.Returned), plain})
	return c.lines[:min(len(c.lines), height)]
}

// A canvas collects lines that fit.
type canvas struct {
	width int
	st    style
	lines []string
}

// A span is a piece of a line in one style.
type span struct {
	text string
	how  shade
}

func (c *canvas) blank() { c.lines = append(c.lines, "") }

// line cuts off what doesn't fit. Escapes have no width, so it's cut before it's
// styled.
func (c *canvas) line(spans ...span) {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", margin))
	room := c.width - margin
	for _, s := range spans {
		text := fit(s.text, room)
		room -= utf8.RuneCountInString(text)
		b.WriteString(c.st.write(s.how, text))
	}
	c.lines = append(c.lines, b.String())
}

func fit(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	if room < 1 {
		return ""
	}
	return string([]rune(text)[:room-1]) + "…"
}

// few writes how many there are, and which ones.
func (c *canvas) few(label string, which []string, how shade) {
	c.line(span{fmt.Sprintf("%-11s", label), plain}, span{fmt.Sprintf("%4d ", len(which)), bold},
		span{strings.Join(which, "  "), how})
}

func (c *canvas) seat(name string, s seat) {
	tasks, held := "", 0
	for _, t := range s.tasks {
		if t != "" {
			held++
		}
		tasks += fmt.Sprintf("%-13s", t)
	}
	state, how := span{"works   ", good}, plain
	switch {
	case s.killed && held > 0:
		state, how = span{"killed  ", bad}, bad
	case s.killed:
		state, how, tasks = span{"killed  ", bad}, dim, "other peers have its tasks"
	case held == 0:
		state, tasks = span{"idle    ", dim}, ""
	}
	c.line(span{name + "  ", bold}, state, span{tasks, how})
}

// notes writes the last notes, as many as fit.
func (c *canvas) notes(notes []note, room int) {
	for _, n := range notes[max(len(notes)-room, 0):] {
		c.line(span{fmt.Sprintf("%5.1f s  ", n.at.Seconds()), dim}, span{n.text, n.tone})
	}
}

// sparkline draws the values as bars. The highest value has the full height,
// unless it's below least.
func sparkline(values []int, least, width int) string {
	steps := []rune("▁▂▃▄▅▆▇█")
	most := least
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for x := range min(len(values)*width/samples, width) {
		v := values[min(x*samples/width, len(values)-1)]
		b.WriteRune(steps[v*(len(steps)-1)/most])
	}
	return b.String()
}

// timeline writes the marks of notes below their times: on the second line if
// there's no room on the first, and not at all if there's none there either.
func timeline(notes []note, total time.Duration, width int) (lines [2]string) {
	for _, n := range notes {
		if n.mark == "" {
			continue
		}
		at := int(n.at * time.Duration(width) / max(total, 1))
		for i, l := range lines {
			if gap := at - utf8.RuneCountInString(l); gap > 0 || l == "" {
				lines[i] += strings.Repeat(" ", gap) + "↑ " + n.mark
				break
			}
		}
	}
	return lines
}

// tell prints the whole story, at the end.
func tell(story []note, width int, st style) string {
	c := canvas{width: width - margin, st: st}
	c.notes(story, len(story))
	return strings.Join(c.lines, "\n") + "\n"
}
