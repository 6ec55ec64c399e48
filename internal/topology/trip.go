package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A trip follows calls through a cluster until each is answered.
type trip struct {
	*Router
	ctx     context.Context // the caller's
	life    context.Context // the router's
	calls   []redisconn.Call
	replies []redisconn.Reply
	left    []*parcel // unanswered calls
	until   time.Time // deadline for retries
}

// A parcel is a call that isn't answered yet.
type parcel struct {
	call *redisconn.Call
	i    int    // the call's index
	slot int    // or anySlot
	at   string // the target node
	ask  bool   // the next try asks a node that doesn't own the slot yet
	hops int
	why  error // why it wasn't carried out; an unreachable node takes precedence over a redirection
}

// trip returns a new trip, or nil if the router is closed.
func (r *Router) trip(ctx context.Context, calls []redisconn.Call) *trip {
	t := &trip{Router: r, ctx: ctx, calls: calls, replies: make([]redisconn.Reply, len(calls)), until: time.Now().Add(r.timeout)}
	r.mu.Lock()
	t.life = r.life
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return nil
	}
	parcels := make([]parcel, len(calls))
	for i := range calls {
		p := &parcels[i]
		p.call, p.i, p.slot = &calls[i], i, anySlot
		if key, ok := p.call.Key(); ok {
			p.slot = keys.Slot(key)
		}
		p.at = r.home(p.slot, "")
		t.left = append(t.left, p)
	}
	return t
}

func closedReplies(n int) []redisconn.Reply {
	return slices.Repeat([]redisconn.Reply{{Err: redisconn.ErrClosed}}, n)
}

func (r *Router) route(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	t := r.trip(ctx, calls)
	if t == nil {
		return closedReplies(len(calls))
	}
	t.send()
	t.follow()
	return t.replies
}

// follow retries calls that were redirected or postponed.
func (t *trip) follow() {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		now := false
		t.left = slices.DeleteFunc(t.left, func(p *parcel) bool {
			next := t.judge(p)
			now = now || next == elsewhere
			return next == answered
		})
		if len(t.left) == 0 {
			return
		}
		if !now {
			select {
			case <-t.ctx.Done():
			case <-t.life.Done():
			case <-time.After(redisconn.Jitter(pause)):
			}
		}
		if t.over() {
			return
		}
		t.send()
	}
}

// over reports whether the trip must end. If so, the remaining calls fail.
func (t *trip) over() bool {
	var err error
	switch {
	case t.ctx.Err() != nil:
		err = context.Cause(t.ctx)
	case t.isClosed():
		err = redisconn.ErrClosed
	case t.life.Err() == nil && time.Now().Before(t.until):
		return false
	}
	for _, p := range t.left {
		t.replies[p.i] = redisconn.Reply{Err: redisconn.Astray(p.why)}
		if err != nil {
			t.replies[p.i].Err = after(err, p.why)
		}
	}
	return true
}

func (r *Router) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// send makes the remaining calls: one exchange per node, all concurrently.
func (t *trip) send() {
	rest := slices.Clone(t.left)
	var all sync.WaitGroup
	for len(rest) > 0 {
		first := rest[0]
		together := func(p *parcel) bool { return p == first || p.at == first.at && !p.ask && !first.ask }
		some := slices.DeleteFunc(slices.Clone(rest), func(p *parcel) bool { return !together(p) })
		rest = slices.DeleteFunc(rest, together)
		if len(rest) == 0 { // usually there is only one node
			t.exchange(some)
			break
		}
		all.Go(func() { t.exchange(some) })
	}
	all.Wait()
}

// exchange makes some calls on one node.
func (t *trip) exchange(some []*parcel) {
	n, at := t.to(some[0].at), some[0].at
	err := redisconn.ErrClosed
	if n != nil {
		err = t.reach(n, at)
	}
	if err != nil {
		for _, p := range some {
			t.replies[p.i] = redisconn.Reply{Err: err}
		}
		return
	}
	t.reached(at, true)
	if p := some[0]; p.ask {
		calls, _ := p.call.Asking()
		replies := n.line.Do(t.ctx, calls...)
		t.replies[p.i] = replies[len(replies)-1]
		return
	}
	calls := t.calls
	if len(some) < len(calls) {
		calls = make([]redisconn.Call, len(some))
		for i, p := range some {
			calls[i] = *p.call
		}
	}
	for i, reply := range n.line.Do(t.ctx, calls...) {
		t.replies[some[i].i] = reply
	}
}

// reach checks that a node answers before anything is sent to it that can't be undone. It doesn't
// wait long for a silent node, since other nodes may know its replacement.
func (t *trip) reach(n *node, at string) error {
	there := !n.line.Made().IsZero()
	if there && t.cluster.met.Load() {
		return nil
	}
	within := min(t.within, t.timeout/4)
	ctx, cancel := context.WithTimeout(t.ctx, within)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	if !there {
		_, err := n.line.One(ctx, redisconn.Command("PING"))
		switch {
		case redisconn.Usable(err):
		case redisconn.Answered(err), errors.Is(err, redisconn.ErrClosed):
			return err
		case err != nil:
			return &unreachedError{err, at, within}
		}
	}
	switch err := t.meet(ctx, at); {
	case err == nil, errors.Is(err, redisconn.ErrPlain), errors.Is(err, redisconn.ErrClosed):
		return err
	default:
		return &unreachedError{err, at, within}
	}
}

// An unreachedError explains why a call wasn't sent.
type unreachedError struct {
	err    error
	at     string
	within time.Duration
}

func (e *unreachedError) Error() string {
	if errors.Is(e.err, context.DeadlineExceeded) {
		return fmt.Sprintf("connect to %s: no reply within %v", e.at, e.within)
	}
	why := strings.TrimPrefix(e.err.Error(), redisconn.ErrUnknown.Error()+": ") // only the outcome of the PING is unknown
	if !strings.Contains(why, e.at) {
		why = "connect to " + e.at + ": " + why
	}
	return why
}

// A verdict is what to do with a call.
type verdict int

const (
	answered  verdict = iota
	elsewhere         // send it to another node
	later             // send it again after a while
)

// judge decides what a reply means for its call.
func (t *trip) judge(p *parcel) verdict {
	err, from := t.replies[p.i].Err, p.at
	if err == nil || errors.Is(err, redisconn.ErrUnknown) {
		if p.slot != anySlot && !p.ask && t.cluster.owner(p.slot) != from {
			t.learn(from) // it was the right node only by chance
			if err == nil && t.cluster.isRefused() {
				t.cluster.moved(p.slot, from) // nodes don't report it otherwise
			}
		}
		return answered
	}
	asked := p.ask
	p.ask = false
	p.hops++
	if to, ok := redisconn.Redirected(err); ok && to.Slot < keys.Slots {
		return t.redirect(p, to, err)
	}
	if why := redisconn.Postponed(err); why != "" {
		p.why, p.hops = err, 0
		p.at = t.home(p.slot, "")
		if why != "TRYAGAIN" && !asked {
			t.learn(t.home(anySlot, from))
		}
		return later
	}
	if redisconn.Answered(err) || errors.Is(err, redisconn.ErrPlain) {
		return answered
	}
	p.why = err
	if t.ctx.Err() != nil || t.life.Err() != nil {
		return later
	}
	if errors.Is(err, redisconn.ErrClosed) {
		return elsewhere // the unused connection was just closed; there will be another one
	}
	// It wasn't sent. Another node may know the current owner of the slot.
	t.reached(from, false)
	p.at = t.home(anySlot, from)
	t.learn(p.at)
	if p.hops > maxHops || t.isDown(p.at) {
		return later
	}
	return elsewhere
}

// redirect handles a redirection of a call to another node.
func (t *trip) redirect(p *parcel, to redisconn.Redirection, err error) verdict {
	from, at := p.at, whole(to.Address, p.at)
	if at == "" {
		err = t.unknown(to.Slot, from)
	}
	p.why = cmp.Or(p.why, err)
	if _, redirection := redisconn.Redirected(p.why); redirection {
		p.why = err
	}
	if at == "" { // this node may know it soon, or other nodes may know it
		p.at = t.home(anySlot, from)
		t.learn(p.at)
		return later
	}
	if to.Ask {
		// A call with several keys would be refused there, too: the keys are moving.
		if _, p.ask = p.call.Asking(); !p.ask {
			return later
		}
		p.at = at
	} else {
		t.cluster.moved(to.Slot, at)
		t.learn(at)
		p.at = at
		if t.isDown(at) { // other nodes may soon know a new owner
			if _, redirection := redisconn.Redirected(p.why); redirection {
				p.why = fmt.Errorf("%s, which has slot %d, doesn't answer", at, to.Slot)
			}
			p.at = t.home(anySlot, at)
			return later
		}
	}
	if p.hops > maxHops || p.at == from {
		return later
	}
	return elsewhere
}

// unknown returns the error for a redirection to an owner whose address the node doesn't know.
func (r *Router) unknown(slot int, from string) error {
	if last := r.cluster.owner(slot); last != "" && last != from {
		return fmt.Errorf("%s had slot %d, and %s doesn't know where its owner is now", last, slot, from)
	}
	return fmt.Errorf("%s doesn't know where the owner of slot %d is", from, slot)
}
