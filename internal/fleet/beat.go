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

// A result is what came of it.
type result struct {
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
	r := result{next: 1<<63 - 1, dead: evictions{}}
	for i, m := range b.members {
		w.receive(b, &r, m, answer.Pulses[i], answer.Errs[i])
	}
	w.receiveSelf(b, &r, answer)
	if r.cut {
		w.witness.cut()
	}
	if r.answered {
		wait := w.witness.receive(b.sent, time.Now(), r.lapsed)
		if !b.judge {
			r.next = min(r.next, max(wait, 5*time.Millisecond))
		}
	}
	return r.next, r.err
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

// receive takes in the answer about one queue.
func (w *worker) receive(b beat, r *result, m *member, pulse *store.Pulse, err error) {
	switch {
	case errors.Is(err, store.ErrEvicted):
		m.Refused()
		r.answered, r.refused = true, true
	case err != nil:
		r.err = cmp.Or(r.err, w.fleet.Describe("heartbeat", m.queue.Name, err)) // always the same one, or each would be logged
		r.cut = r.cut || errors.Is(err, store.ErrUnknown)
	default:
		r.answered = true
		r.lapsed = r.lapsed || pulse.Lapsed || w.redis > 0 && pulse.Now > b.latest
		w.redis = pulse.Now
		m.Pulse(pulse, b.sent)
		if due := w.fleet.swept(m.queue.ID, pulse.Look, r.dead); b.judge || pulse.Again {
			r.next = min(r.next, due)
		}
	}
}

// receiveSelf takes in the answer about the registration, and who was evicted.
func (w *worker) receiveSelf(b beat, r *result, answer store.Beaten) {
	switch {
	case answer.Err != nil:
		r.err = cmp.Or(r.err, answer.Err)
		r.cut = r.cut || errors.Is(answer.Err, store.ErrUnknown)
	case !answer.Registered && !r.refused: // else who has failed this id has removed it
		w.outdate()
		w.hurry()
	}
	if len(r.dead) > 0 {
		w.reportLater(r.dead)
	}
	if len(b.members) == 0 {
		r.answered = answer.Err == nil
	}
}
