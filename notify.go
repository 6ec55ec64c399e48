package worqr

import (
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// listen has the rounds hear of work and cancels.
func (r *rounds) listen() {
	k := r.queue.keys
	wake, work, cancel := k.Wake(r.worker), k.Channel(keys.KindWork), k.Channel(keys.KindCancel)
	r.ear = &redisconn.Subscription{
		Topics: []redisconn.Topic{{Name: work}, {Name: cancel}, {Name: wake}},
		Synced: r.resync,
		Message: func(channel string, data []byte) {
			switch channel {
			case wake:
				r.hear("wake", data)
			case work:
				r.hear(keys.KindWork, data)
			case cancel:
				r.hear(keys.KindCancel, data)
			}
		},
	}
	_ = r.queue.peer.sub.Add(r.ear) // a closed peer has no worker
}

func (r *rounds) unlisten() {
	if r.ear != nil {
		r.queue.peer.sub.Remove(r.ear)
	}
}

// hear takes in a message from a channel of the queue.
func (r *rounds) hear(kind keys.Kind, message []byte) {
	var about []hash
	if kind == keys.KindCancel {
		if r.isQuiet() {
			return
		}
		about = readCancel(message)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case "wake":
		r.look = true
	case keys.KindWork:
		// From a producer that only pushes and publishes. Everybody hears it;
		// the worker that was longest idle answers for all.
		r.look = r.look || time.Now().Before(r.listens)
	case keys.KindCancel:
		r.cancels.receive(about, r.held)
		r.look = true
	}
	r.kick()
}

// isQuiet reports whether nothing is held, and nothing may come to be.
func (r *rounds) isQuiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held) == 0 && r.silence == nil
}

// resync follows a confirmed subscription: messages may have been missed.
func (r *rounds) resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = true
	r.kick()
}
