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

// A trip follows calls until each is answered.
type trip struct {
	*Router
	ctx     context.Context // the caller's
	life    context.Context // the router's
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

const (
	maxHops    = 16                     // redirections followed without a pause
	firstPause = 20 * time.Millisecond  // before the first retry; then it doubles
	lastPause  = 100 * time.Millisecond // longest pause, so that a promotion is noticed immediately
	longPause  = 400 * time.Millisecond // the same with a single server, for which many callers may wait at the same time
)

// trip returns a new trip. The replies are those of an exchange with the single server; nil in a cluster.
func (r *Router) trip(ctx context.Context, calls []redisconn.Call, replies []redisconn.Reply) *trip {
	t := &trip{Router: r, ctx: ctx, replies: replies, until: time.Now().Add(r.timeout)}
	r.mu.Lock()
	t.life = r.life
	r.mu.Unlock()
	for i := range calls {
		p := &parcel{call: &calls[i], i: i, slot: anySlot}
		if r.one == nil {
			if key, ok := p.call.Key(); ok {
				p.slot = keys.Slot(key)
			}
			p.at = r.home(p.slot, "")
		}
		t.left = append(t.left, p)
	}
	return t
}

// route makes calls in a cluster.
func (r *Router) route(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	t := r.trip(ctx, calls, make([]redisconn.Reply, len(calls)))
	t.send()
	t.follow()
	return t.replies
}

// follow retries calls that were redirected or postponed.
func (t *trip) follow() {
	most := lastPause
	if t.one != nil {
		most = longPause
	}
	for pause := firstPause; ; pause = min(2*pause, most) {
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
			case <-time.After(min(redisconn.Jitter(pause), time.Until(t.until))):
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
		switch {
		case err != nil:
			t.replies[p.i].Err = after(err, p.why)
		case t.one == nil:
			t.replies[p.i].Err = redisconn.Astray(cmp.Or(p.why, errForgotten))
		}
	}
	return true
}

// after returns the error of a call that wasn't carried out: what ended it, and why the last server
// had postponed it.
func after(over, why error) error {
	if why == nil {
		return over
	}
	return fmt.Errorf("%w; the last answer was: %s", over, why)
}

// Patient makes the router retry calls that the single server has postponed, as when it briefly
// lacks replicas after a failover. It returns the router.
func (r *Router) Patient() *Router {
	r.patient = true
	return r
}

// isPutOff reports whether the single server has refused a call that it, or its replacement, will
// accept later. Without sentinels, only missing replicas count, since the server's role doesn't
// change.
func (r *Router) isPutOff(reply redisconn.Reply) bool {
	if reply.Err == nil || !r.patient {
		return false
	}
	why := redisconn.Postponed(reply.Err)
	return why == redisconn.Alone || why != "" && r.watched
}

func (r *Router) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// send makes the remaining calls: one exchange per node, all concurrently.
func (t *trip) send() {
	by := map[string][]*parcel{}
	for _, p := range t.left {
		to := p.at
		if p.ask { // by itself
			to = fmt.Sprint(to, " ", p.i)
		}
		by[to] = append(by[to], p)
	}
	var all sync.WaitGroup
	for _, some := range by {
		all.Go(func() { t.exchange(some) })
	}
	all.Wait()
}

// exchange makes some calls on one server.
func (t *trip) exchange(some []*parcel) {
	line, err := t.lineFor(some[0].at)
	if err != nil {
		for _, p := range some {
			t.replies[p.i] = redisconn.Reply{Err: err}
		}
		return
	}
	if p := some[0]; p.ask {
		calls, _ := p.call.Asking()
		t.replies[p.i] = line.Do(t.ctx, calls...)[1]
		return
	}
	calls := make([]redisconn.Call, len(some))
	for i, p := range some {
		calls[i] = *p.call
	}
	for i, reply := range line.Do(t.ctx, calls...) {
		t.replies[some[i].i] = reply
	}
}

// lineFor returns the line to a server.
func (t *trip) lineFor(at string) (*redisconn.Line, error) {
	if t.one != nil {
		return t.one, nil
	}
	n := t.to(at)
	if n == nil {
		return nil, redisconn.ErrClosed
	}
	if err := t.reach(n, at); err != nil {
		return nil, err
	}
	t.reached(at, true)
	return n.Line, nil
}

// reach checks that a node answers before anything is sent to it that can't be undone. It doesn't
// wait long for a silent node, since other nodes may know its replacement.
func (t *trip) reach(n *node, at string) error {
	if !n.Made().IsZero() && t.cluster.met.Load() {
		return nil
	}
	within := min(t.within, t.timeout/4)
	ctx, cancel := context.WithTimeout(t.ctx, within)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	err := t.meet(ctx, n, at)
	if err == nil || redisconn.Answered(err) || errors.Is(err, redisconn.ErrPlain) || errors.Is(err, redisconn.ErrClosed) {
		return err
	}
	return unreached(err, at, within)
}

// unreached explains why a call wasn't sent.
func unreached(err error, at string, within time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("connect to %s: no reply within %v", at, within)
	}
	why := strings.TrimPrefix(err.Error(), redisconn.ErrUnknown.Error()+": ") // only the outcome of the PING is unknown
	if !strings.Contains(why, at) {
		why = "connect to " + at + ": " + why
	}
	return errors.New(why)
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
	if t.one != nil {
		return t.judgeOne(p)
	}
	asked := p.ask
	p.ask = false
	if err == nil || errors.Is(err, redisconn.ErrUnknown) {
		if p.slot != anySlot && !asked && t.cluster.owner(p.slot) != from {
			t.learn(from) // it was the right node only by chance
			if err == nil && t.cluster.isRefused() {
				t.cluster.moved(p.slot, from) // nodes don't report it otherwise
			}
		}
		return answered
	}
	to, redirected := redisconn.Redirected(err)
	redirected = redirected && to.Slot < keys.Slots
	postponed := redisconn.Postponed(err) != ""
	switch {
	case redisconn.Answered(err) && !redirected && !postponed, errors.Is(err, redisconn.ErrPlain):
		return answered
	case errors.Is(err, redisconn.ErrClosed):
		return elsewhere // the unused connection was just closed; there will be another one
	case t.ctx.Err() != nil || t.life.Err() != nil:
		p.blame(err)
		return later
	}
	p.hops++
	if redirected || postponed {
		t.heed(p.slot, from, err)
	}
	switch {
	case redirected:
		return t.redirect(p, to, err)
	case postponed:
		p.why, p.hops = err, 0
		p.at = t.home(p.slot, "")
		return later
	}
	// It wasn't sent. Another node may know the current owner of the slot.
	t.reached(from, false)
	p.why = err
	p.at = t.home(anySlot, from)
	t.learn(p.at)
	if p.hops > maxHops || t.isDown(p.at) {
		return later
	}
	return elsewhere
}

// judgeOne decides what a reply of the single server means.
func (t *trip) judgeOne(p *parcel) verdict {
	reply := &t.replies[p.i]
	if t.isPutOff(*reply) {
		p.why = reply.Err
		return later
	}
	if err := reply.Err; err != nil && !redisconn.Answered(err) && !errors.Is(err, redisconn.ErrUnknown) {
		reply.Err = after(err, p.why)
	}
	return answered
}

// redirect handles a redirection of a call to another node.
func (t *trip) redirect(p *parcel, to redisconn.Redirection, err error) verdict {
	from, at := p.at, whole(to.Address, p.at)
	if at == "" { // this node may know it soon, or other nodes may know it
		p.blame(fmt.Errorf("%s doesn't know where the owner of slot %d is", from, to.Slot))
		p.at = t.home(anySlot, from)
		return later
	}
	if _, may := p.call.Asking(); to.Ask && !may {
		p.blame(err)
		return later
	}
	p.at, p.ask = at, to.Ask
	if !to.Ask && t.isDown(at) { // other nodes may soon know a new owner
		p.blame(fmt.Errorf("%s, which has slot %d, doesn't answer", at, to.Slot))
		p.at = t.home(anySlot, at)
		return later
	}
	p.blame(err)
	if p.hops > maxHops || p.at == from {
		return later
	}
	return elsewhere
}

// blame records why a call wasn't carried out. That a node can't be reached says more than what others answer.
func (p *parcel) blame(err error) {
	if _, redirection := redisconn.Redirected(p.why); p.why == nil || redirection {
		p.why = err
	}
}
