package worqr

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// beat renews the lease on every queue in one exchange, and looks for workers
// whose lease has lapsed. It returns when to beat again at the latest.
func (w *worker) beat(ctx context.Context) (next time.Duration, err error) {
	p := w.peer
	w.mu.Lock()
	id := w.id
	members := slices.SortedFunc(maps.Values(w.members), func(a, b *serving) int { return strings.Compare(a.queue.id, b.queue.id) })
	w.mu.Unlock()

	if id != w.beats {
		w.beats, w.witness = id, witness{beat: p.opts.beat()}
	}
	sent := time.Now()
	judge := w.witness.asks(sent, p.control.Made())
	var until int64 // by the clock of Redis
	if judge {
		until = w.redis + (sent.Sub(w.witness.beaten) + p.opts.beat()).Milliseconds()
	}
	calls := []redisconn.Call{redisconn.Command("PEXPIRE", p.space.Worker(id), w.ttl().Milliseconds())}
	if p.opts.Lease < 0 {
		calls[0] = redisconn.Command("EXISTS", p.space.Worker(id))
	}
	for _, r := range members {
		calls = append(calls, store.BeatCall(r.queue.keys, id, p.opts.granted(), p.opts.beat(), until))
	}
	replies := p.control.Do(ctx, calls...)

	// Where the clock of Redis has jumped ahead others have lapsed for that, even if our
	// own lease was renewed by a round since.
	latest := w.redis + time.Since(w.witness.beaten).Milliseconds() + p.opts.beat().Milliseconds()
	next = time.Duration(1<<63 - 1)
	lapsed, answered, ousted, cut := false, false, false, false
	dead := obituaries{}
	for i, r := range members {
		pulse, e := store.ReadBeat(replies[i+1])
		switch {
		case errors.Is(e, store.ErrEvicted):
			r.Refused()
			answered, ousted = true, true
		case e != nil:
			err = cmp.Or(err, r.queue.wrap("beat", e)) // always the same one, or each would be logged
			cut = cut || errors.Is(e, redisconn.ErrUnknown)
		default:
			answered = true
			lapsed = lapsed || pulse.Lapsed || w.redis > 0 && pulse.Now > latest
			w.redis = pulse.Now
			r.Pulse(pulse, sent)
			if due := p.swept(r.queue, pulse.Look, dead); judge || pulse.Again {
				next = min(next, due)
			}
		}
	}
	there, e := redis.Int(replies[0].Value, replies[0].Err)
	switch {
	case e != nil:
		err = cmp.Or(err, e)
		cut = cut || errors.Is(e, redisconn.ErrUnknown)
	case there == 0 && !ousted: // else who has failed this id has removed it
		w.outdate()
		w.hurry()
	}
	if len(dead) > 0 {
		w.mourn(dead)
	}
	if len(members) == 0 {
		answered = e == nil
	}
	if cut {
		w.witness.cut()
	}
	if answered {
		wait := w.witness.hears(sent, time.Now(), lapsed)
		if !judge {
			next = min(next, max(wait, 5*time.Millisecond))
		}
	}
	return next, err
}
