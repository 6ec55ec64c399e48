package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A beat is what a worker says with one heartbeat.
type beat struct {
	id      string
	members []*member
	sent    time.Time
	judge   bool  // it may evict others
	latest  int64 // ms of Redis time at which it is answered at the latest, unless the clock of Redis has jumped
}

// A heard is what was answered to it.
type heard struct {
	next     time.Duration // until the next beat, at the latest
	lapsed   bool          // leases have lapsed for a reason that may hold for all
	answered bool
	refused  bool // the worker is no member any more
	cut      bool // a reply was lost
	dead     evictions
	err      error
}

// beat renews the lease on every queue in one exchange, and looks for workers
// whose lease has lapsed. It returns when to beat again at the latest.
func (w *worker) beat(ctx context.Context) (next time.Duration, err error) {
	b := w.nextBeat()
	f := w.fleet
	says := store.Beat{Worker: b.id, TTL: w.ttl(), Lease: f.lease.Grant, Grace: f.lease.Beat}
	if b.judge {
		says.Judge = w.redis + (b.sent.Sub(w.witness.beaten) + f.lease.Beat).Milliseconds()
	}
	for _, m := range b.members {
		says.Queues = append(says.Queues, m.queue.Keys)
	}
	answer := says.Beat(ctx, f.Lines.Control, f.Space)

	// Where the clock of Redis has jumped ahead others have lapsed for that, even if our
	// own lease was renewed by a round since.
	b.latest = w.redis + time.Since(w.witness.beaten).Milliseconds() + f.lease.Beat.Milliseconds()
	h := heard{next: 1<<63 - 1, dead: evictions{}}
	for i, m := range b.members {
		w.hear(b, &h, m, answer.Pulses[i], answer.Errs[i])
	}
	w.heardSelf(b, &h, answer)
	if h.cut {
		w.witness.cut()
	}
	if h.answered {
		wait := w.witness.hears(b.sent, time.Now(), h.lapsed)
		if !b.judge {
			h.next = min(h.next, max(wait, 5*time.Millisecond))
		}
	}
	return h.next, h.err
}

// nextBeat is what to say now.
func (w *worker) nextBeat() beat {
	w.mu.Lock()
	b := beat{id: w.id}
	b.members = slices.SortedFunc(maps.Values(w.members), func(a, b *member) int { return strings.Compare(a.queue.ID, b.queue.ID) })
	w.mu.Unlock()
	if b.id != w.beats {
		w.beats, w.witness = b.id, witness{beat: w.fleet.lease.Beat}
	}
	b.sent = time.Now()
	b.judge = w.witness.asks(b.sent, w.fleet.Lines.Control.Made())
	return b
}

// hear takes in the answer about one queue.
func (w *worker) hear(b beat, h *heard, m *member, pulse *store.Pulse, err error) {
	switch {
	case errors.Is(err, store.ErrEvicted):
		m.Refused()
		h.answered, h.refused = true, true
	case err != nil:
		h.err = cmp.Or(h.err, w.fleet.Describe("beat", m.queue.Name, err)) // always the same one, or each would be logged
		h.cut = h.cut || errors.Is(err, store.ErrUnknown)
	default:
		h.answered = true
		h.lapsed = h.lapsed || pulse.Lapsed || w.redis > 0 && pulse.Now > b.latest
		w.redis = pulse.Now
		m.Pulse(pulse, b.sent)
		if due := w.fleet.swept(m.queue.ID, pulse.Look, h.dead); b.judge || pulse.Again {
			h.next = min(h.next, due)
		}
	}
}

// heardSelf takes in the answer about the registration, and who was evicted.
func (w *worker) heardSelf(b beat, h *heard, answer store.Beaten) {
	switch {
	case answer.Err != nil:
		h.err = cmp.Or(h.err, answer.Err)
		h.cut = h.cut || errors.Is(answer.Err, store.ErrUnknown)
	case !answer.Registered && !h.refused: // else who has failed this id has removed it
		w.outdate()
		w.hurry()
	}
	if len(h.dead) > 0 {
		w.reportLater(h.dead)
	}
	if len(b.members) == 0 {
		h.answered = answer.Err == nil
	}
}
