package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// A stage shows the demo.
type stage interface {
	note(n note)      // an event
	paint(p *picture) // the current state
	close()           // restores the terminal
}

// A screen is a terminal that is redrawn.
type screen struct {
	out  io.Writer
	size func() (width, height int)
	st   style
}

const (
	enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, no cursor
	leave = "\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	clear = "\x1b[K" // to the end of the line
	rest  = "\x1b[J" // to the end of the screen
)

func openScreen(f *os.File) *screen {
	s := &screen{out: f, st: styleFor(true), size: func() (int, int) { return sizeOf(f) }}
	s.write(enter)
	return s
}

// sizeOf returns the size of a terminal.
func sizeOf(f *os.File) (width, height int) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w < 1 || h < 1 {
		return 80, 24
	}
	return w, h
}

func (s *screen) note(note) {} // shown with the next picture

func (s *screen) paint(p *picture) {
	width, height := s.size()
	s.write(home + strings.Join(p.render(width, height, s.st), clear+"\r\n") + clear + rest)
}

func (s *screen) close() { s.write(leave) }

// write ignores errors: if the terminal is gone, the demo is killed with it.
func (s *screen) write(text string) { _, _ = io.WriteString(s.out, text) }

// A log is a stage without a terminal: a line for each note and each second.
type log struct {
	mu   sync.Mutex // protects the fields below
	out  io.Writer
	next time.Duration // when the next picture is due
}

func (l *log) note(n note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.out, "%5.1f s  %s\n", n.at.Seconds(), n.text) // as in screen.write
}

func (l *log) paint(p *picture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.elapsed < l.next {
		return
	}
	l.next = p.elapsed.Truncate(time.Second) + time.Second
	running, killed := 0, 0
	for _, s := range p.seats {
		for _, t := range s.tasks {
			switch {
			case t == "":
			case s.killed:
				killed++
			default:
				running++
			}
		}
	}
	held := ""
	if killed > 0 {
		held = fmt.Sprintf("%d held by the killed peer, ", killed)
	}
	_, _ = fmt.Fprintf(l.out, "%5.1f s  %d waiting, %d scheduled, %d running, %s%d failed, %d finished, %d canceled, %d/s\n",
		p.elapsed.Seconds(), p.waiting, len(p.scheduled), running, held, len(p.failed), p.sum.Finished, p.sum.Canceled, p.rate)
}

func (l *log) close() {}

// A jsonLog is a stage for programs: a line of JSON for each note.
type jsonLog struct{ out io.Writer }

func (l *jsonLog) note(n note) {
	_ = printJSON(l.out, struct { // as in screen.write
		At   seconds `json:"at_seconds"`
		Text string  `json:"text"`
	}{seconds(n.at), n.text})
}

func (l *jsonLog) paint(*picture) {}

func (l *jsonLog) close() {}
