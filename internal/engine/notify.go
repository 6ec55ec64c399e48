package engine

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// listen makes the session receive messages about work and cancels.
func (s *Session) listen() {
	stop := s.view.Listen(s.member.Worker, s.notify, func() { s.Wake() }) // earlier messages may have been missed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = stop
}

// Unlisten ends the subscription made by listen.
func (s *Session) Unlisten() {
	s.mu.Lock()
	stop := s.deaf
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// notify handles a message from a channel of the queue.
func (s *Session) notify(n store.Notice, message []byte) {
	var about []hash
	if n == store.IsCanceled {
		if s.isQuiet() {
			return
		}
		about = readCancel(message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n {
	case store.Woken:
		s.look = true
	case store.Work:
		// From a producer that only pushes and publishes. All workers receive it; the one that has
		// been idle longest responds for all.
		s.look = s.look || time.Now().Before(s.listens)
	case store.IsCanceled:
		s.cancels.receiveLocked(about, s.held)
		s.look = true
	}
	s.wakeLocked()
}

// isQuiet reports whether nothing is held and nothing in flight can change that.
func (s *Session) isQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) == 0 && s.idle == nil
}
