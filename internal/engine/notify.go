package engine

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// listen has the session be notified of work and cancels.
func (r *Session) listen() {
	stop := r.queue.store.Listen(r.member.Worker, r.notify, r.resync)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = stop
}

// Unlisten ends that.
func (r *Session) Unlisten() {
	r.mu.Lock()
	stop := r.deaf
	r.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// notify takes in a message from a channel of the queue.
func (r *Session) notify(n store.Notice, message []byte) {
	var about []hash
	if n == store.IsCanceled {
		if r.isQuiet() {
			return
		}
		about = readCancel(message)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch n {
	case store.Woken:
		r.look = true
	case store.Work:
		// From a producer that only pushes and publishes. Everybody hears it;
		// the worker that was longest idle answers for all.
		r.look = r.look || time.Now().Before(r.listens)
	case store.IsCanceled:
		r.cancels.receiveLocked(about, r.held)
		r.look = true
	}
	r.wakeLocked()
}

// isQuiet reports whether nothing is held, and nothing may come to be.
func (r *Session) isQuiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held) == 0 && r.idle == nil
}

// resync follows a confirmed subscription: messages may have been missed.
func (r *Session) resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = true
	r.wakeLocked()
}
