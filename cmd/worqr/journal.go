package main

import (
	"fmt"
	"sync"
	"time"
)

// A note is an event, in words.
type note struct {
	at   time.Duration // since the demo began
	tone shade         // good or bad
	text string
	mark string // one word for the time line; "" for none
}

// A journal holds the notes.
type journal struct {
	began time.Time
	tell  func(note) // called for each note, one at a time

	mu    sync.Mutex // protects notes
	notes []note
}

func (j *journal) add(t shade, mark, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := note{time.Since(j.began), t, fmt.Sprintf(format, args...), mark}
	j.notes = append(j.notes, n)
	j.tell(n)
}

// all returns the notes added until now. They don't change anymore.
func (j *journal) all() []note {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.notes[:len(j.notes):len(j.notes)]
}

// ms formats a duration for a note.
func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
