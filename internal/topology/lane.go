package topology

import (
	"errors"
	"sync"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Lane carries the rounds of one queue over the line to its server, without waiting for answers. It is
// safe for concurrent use.
//
// Rounds are made in the order in which they are sent. If the connection breaks, all in flight fail, and
// so do those that were sent before the first of them has failed. So nothing overtakes what is repeated.
//
// A round whose slot has moved, or is moving, fails, too: the lane learns the new owner, and it's up to
// the sender to repeat it. That's all it does about an ASK: a round has several keys, one of which never
// exists, so the node that the slot moves to would refuse it, and the repeat has to wait until the move
// has ended. What is sent to another node waits until nothing is in flight to the previous one. Only when
// a node refuses a round and carries out the next, since it has become the owner in between, is the order
// another one; the numbers of rounds make that harmless.
type Lane struct {
	router *Router
	slot   int

	mu     sync.Mutex // protects the fields below
	at     string     // the node of the last round
	line   *redisconn.Line
	flight int      // rounds that were sent to it, and whose callbacks haven't returned
	held   []*round // they wait until nothing is in flight
	broken int      // how often rounds have failed, each time counting as one those that were sent before
}

// A round is the calls of one Send.
type round struct {
	calls  []redisconn.Call
	done   func([]redisconn.Reply)
	broken int    // of its lane, when it was sent
	at     string // the node
}

// Lane returns the lane for a queue. Its order doesn't extend to other lanes of that queue.
func (r *Router) Lane(q keys.Queue) *Lane {
	l := &Lane{router: r, slot: q.Slot()}
	l.at, l.line = r.lineOf(l.slot)
	return l
}

// lineOf returns the node for a slot, as far as it's known, and its line.
func (r *Router) lineOf(slot int) (at string, l *redisconn.Line) {
	if r.one != nil {
		return "", r.one
	}
	at = r.home(slot, "")
	if n := r.to(at); n != nil {
		return at, n.Line
	}
	return at, endedLine
}

var errForgotten = errors.New("the connection to the node was closed, since it had no slots")

// endedLine is a closed line.
var endedLine = func() *redisconn.Line {
	l := redisconn.NewLine(nil, 0)
	l.Close()
	return l
}()

// Silent reports whether the queue's server has given no sign of life for the timeout, on the line.
func (l *Lane) Silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line.Heard() >= l.router.timeout
}

// Send makes the calls of a round, and doesn't block. It calls done once, with a reply for each call, in
// the order of the Sends. done runs on a goroutine that all lanes share, never within Send; it must
// not block, and may call Send. The arguments must not change until then.
func (l *Lane) Send(calls []redisconn.Call, done func([]redisconn.Reply)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &round{calls: calls, done: done, broken: l.broken}
	if len(l.held) > 0 || l.flight > 0 && l.router.one == nil && l.router.home(l.slot, "") != l.at {
		l.held = append(l.held, b)
		return
	}
	l.sendLocked(b)
}

// sendLocked sends a round to the node of those in flight or, if there are none, to the one that has the slot.
func (l *Lane) sendLocked(b *round) {
	if l.flight == 0 {
		l.at, l.line = l.router.lineOf(l.slot)
	}
	l.flight++
	b.at = l.at
	stale := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return b.broken != l.broken
	}
	l.line.Send(b.calls, stale, func(replies []redisconn.Reply) { l.ended(b, replies) })
}

func (l *Lane) ended(b *round, replies []redisconn.Reply) {
	failed := false
	for i, r := range replies {
		if errors.Is(r.Err, redisconn.ErrClosed) && l.router.one == nil && !l.router.isClosed() {
			replies[i].Err = errForgotten
		}
		failed = l.router.heed(l.slot, b.at, r.Err) || failed
	}
	l.mu.Lock()
	if failed && b.broken == l.broken {
		l.broken++
	}
	l.mu.Unlock()
	b.done(replies)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flight--; l.flight == 0 {
		held := l.held
		l.held = nil
		for _, b := range held {
			l.sendLocked(b)
		}
	}
}

// heed reports whether an error means that a call has to be repeated, and learns from it where the slot
// is. at is the node that the call was sent to.
func (r *Router) heed(slot int, at string, err error) bool {
	why := redisconn.Postponed(err)
	to, redirected := redisconn.Redirected(err)
	switch {
	case err == nil:
		return false
	case redisconn.Answered(err) && why == "" && !redirected && !redisconn.Unloaded(err):
		return false
	case r.one != nil:
	case redirected && to.Slot < keys.Slots:
		if owner := whole(to.Address, at); !to.Ask && owner != "" {
			r.cluster.moved(to.Slot, owner)
			r.learn(owner)
		} else if !to.Ask {
			r.learn(r.home(anySlot, at))
		}
	case why == "TRYAGAIN":
	case why != "", errors.Is(err, redisconn.ErrUnknown):
		r.learn(r.home(anySlot, at))
	case redisconn.Away(err): // it couldn't be reached
		r.reached(at, false)
		r.learn(r.home(anySlot, at))
	}
	return true
}
