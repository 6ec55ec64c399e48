package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A beat holds the contents of one heartbeat.
type beat struct {
	id      string
	members []*member
	spare   []bool // by member: no worker is evicted from its queue; nil is none
	sent    time.Time
	judge   bool  // it may evict other workers
	latest  int64 // ms of Redis time; a later answer means that Redis's clock has jumped
}

// A result is the outcome of a beat.
type result struct {
	next     time.Duration // until the next beat, at the latest
	lapsed   bool          // leases have expired for a reason that may apply to every worker
	answered bool
	refused  bool // the worker is no longer a member
	cut      bool // a reply was lost
	dead     evictions
	err      error
}

// beat renews the lease on every queue of the circle in one exchange, and looks for workers whose
// lease has expired. It returns the latest time for the next beat.
func (c *circle) beat(ctx context.Context) (next time.Duration, err error) {
	b := c.nextBeat()
	f := c.fleet
	if len(b.members) == 0 && !c.registers {
		return f.lease.Beat, nil
	}
	says := store.Beat{Worker: b.id, Registers: c.registers, TTL: c.ttl(), Lease: f.lease.Grant, Grace: f.lease.Beat}
	if b.judge {
		says.Judge = c.redis + (b.sent.Sub(c.witness.beaten) + f.lease.Beat).Milliseconds()
	}
	for _, m := range b.members {
		says.Queues = append(says.Queues, m.queue.Keys)
	}
	says.Spare = b.spare
	answer := says.Beat(ctx, f.Lines.Control, f.Space)
	if answer.Again {
		b.judge = false
		c.witness.cut()
	}

	// If Redis's clock has jumped ahead, that is why the leases of other workers have expired, even
	// if a round has renewed our own since.
	b.latest = c.redis + time.Since(c.witness.beaten).Milliseconds() + f.lease.Beat.Milliseconds()
	r := result{next: 1<<63 - 1, dead: evictions{}}
	for i, m := range b.members {
		one := b
		one.judge = b.judge && (b.spare == nil || !b.spare[i])
		c.receive(one, &r, m, answer.Pulses[i], answer.Errs[i])
	}
	if c.registers {
		c.receiveSelf(b, &r, answer)
	}
	if len(r.dead) > 0 {
		c.recordDead(r.dead)
	}
	if r.cut {
		c.witness.cut()
	}
	if r.answered {
		c.noteAnswer(b.sent)
		wait := c.witness.receive(b.sent, time.Now(), r.lapsed)
		if !b.judge {
			r.next = min(r.next, max(wait, 5*time.Millisecond))
		}
	}
	return r.next, r.err
}

func (c *circle) nextBeat() beat {
	c.gather()
	c.mu.Lock()
	b := beat{id: c.id}
	for _, m := range c.members {
		if m.circle == c {
			b.members = append(b.members, m)
		}
	}
	slices.SortFunc(b.members, func(a, b *member) int { return strings.Compare(a.queue.ID, b.queue.ID) })
	b.spare = c.strangersLocked(b.members, time.Now())
	c.mu.Unlock()
	if b.id != c.beats {
		c.beats, c.redis, c.witness = b.id, 0, witness{beat: c.fleet.lease.Beat}
	}
	b.sent = time.Now()
	b.judge = c.witness.asks(b.sent, c.made()) && c.isOne()
	return b
}

// receive handles the answer about one queue.
func (c *circle) receive(b beat, r *result, m *member, pulse *store.Pulse, err error) {
	switch {
	case errors.Is(err, store.ErrEvicted):
		m.Refused()
		r.answered, r.refused = true, true
	case err != nil:
		m.Unheard()
		r.err = cmp.Or(r.err, c.fleet.Describe("heartbeat", m.queue.Name, err)) // the first one, so that changes aren't logged
		r.cut = r.cut || errors.Is(err, store.ErrUnknown)
	default:
		if r.answered = true; c.isAt(m) { // otherwise another node has answered, by its own clock
			r.lapsed = r.lapsed || pulse.Lapsed || c.redis > 0 && pulse.Now > b.latest
			c.redis = pulse.Now
		}
		m.Pulse(pulse, b.sent)
		if pulse.Over && c.fleet.Over != nil {
			c.fleet.Over(store.Target{Name: m.queue.Name, ID: m.queue.ID, Keys: m.queue.Keys})
		}
		if due := c.fleet.swept(m.queue.ID, pulse.Look, r.dead); b.judge || pulse.Again {
			r.next = min(r.next, due)
		}
	}
}

// receiveSelf handles the answer about the registration.
func (c *circle) receiveSelf(b beat, r *result, answer store.Beaten) {
	switch {
	case answer.Err != nil:
		r.err = cmp.Or(r.err, answer.Err)
		r.cut = r.cut || errors.Is(answer.Err, store.ErrUnknown)
	case !answer.Registered && !r.refused: // otherwise the peer that evicted this id has removed it
		c.outdate()
		c.hurry()
	}
	if len(b.members) == 0 {
		r.answered = answer.Err == nil
	}
}
