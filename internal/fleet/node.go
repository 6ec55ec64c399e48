package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A node is a server, or a node of a cluster, with those of the worker's queues that are there. Each
// node has its own clock and may stall independently. That's why each has its own heartbeats, and
// its own witness decides whether the worker may evict others there.
type node struct {
	worker    *worker
	home      string
	registers bool          // the registration is renewed with its heartbeats
	due       chan struct{} // some heartbeat is due earlier than expected; capacity 1
	beats     logs.Outage   // failed heartbeats
	evicts    logs.Outage   // failed evictions

	// Protected by worker.mu.
	worked   string // the id of the worker that the witness is about
	witness  witness
	turned   time.Time     // when its loop last began a turn
	answered time.Time     // when the last answered heartbeat was sent, or the node was found
	ahead    time.Duration // of this peer's clock, before the node's; 0 if it's less than a second
	toEvict  []*member     // queues whose dead workers it has been asked to evict
	evicting bool          // a loop does that
}

// enterLocked returns the node at a home, whose loop runs until it has no queues anymore or the worker ends.
func (w *worker) enterLocked(home string) *node {
	n := w.nodes[home]
	if n == nil {
		n = &node{worker: w, home: home, registers: home == store.Somewhere, due: make(chan struct{}, 1), turned: time.Now(), answered: time.Now()}
		w.nodes[home] = n
		w.loops.Go(n.keep)
	}
	return n
}

// soon begins a turn of the node's loop.
func (n *node) soon() {
	select {
	case n.due <- struct{}{}:
	default:
	}
}

// beatNow sends a heartbeat for one queue, as an attempt on it must stop.
func (w *worker) beatNow(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.members[id]; m != nil {
		m.due = time.Now()
		m.node.soon()
	}
}

// keep sends the heartbeats of the node: regularly those of all queues in one exchange, and in between
// those of queues whose heartbeat is due.
func (n *node) keep() {
	every := n.worker.fleet.times.Beat
	retry := store.NewBackoff()
	var regular time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-n.worker.ctx.Done():
			return
		case <-timer.C:
		case <-n.due:
		}
		n.worker.gather()
		all := !time.Now().Before(regular)
		b := n.next(all)
		if all && n.retire() {
			return
		}
		var err error
		if all && n.registers || len(b.members) > 0 {
			ctx, cancel := context.WithTimeout(n.worker.ctx, n.worker.patience())
			err = n.send(ctx, b)
			cancel()
			if n.worker.ctx.Err() != nil {
				return
			}
			n.note(&n.beats, "heartbeats fail; retrying", err)
		}
		switch now := time.Now(); {
		case err != nil: // try at least four times within a third of a lease
			regular = now.Add(min(retry.Next(), every/4))
		case all:
			retry.Reset()
			regular = n.regular(now)
		}
		timer.Reset(time.Until(n.earliest(regular)))
	}
}

// regular returns when the next regular heartbeat is due. It waits if the worker may evict others a moment later: when
// connections keep being cut, there may be no other chance.
func (n *node) regular(now time.Time) time.Time {
	every := n.worker.fleet.times.Beat
	at := now.Add(store.Jitter(every/5) + every*4/5)
	n.worker.mu.Lock()
	defer n.worker.mu.Unlock()
	if ripe := n.witness.ripe(); ripe.After(at) && !ripe.After(now.Add(every)) {
		return ripe
	}
	return at
}

// note leaves a note about an error, or its end, for the log.
func (n *node) note(upset *logs.Outage, what string, err error) {
	attrs := []any{"worker", n.worker.fleet.ID()}
	if n.home != store.Somewhere {
		attrs = append(attrs, "node", n.home)
	}
	n.worker.fleet.notes.Add(func() { upset.Note(n.worker.fleet.Log, what, err, attrs...) })
}

// retire removes the node if it has no queues anymore, and reports whether it had none. A queue that comes back gets a new one.
func (n *node) retire() bool {
	n.worker.mu.Lock()
	defer n.worker.mu.Unlock()
	if n.registers {
		return false
	}
	for _, m := range n.worker.members {
		if m.node == n {
			return false
		}
	}
	delete(n.worker.nodes, n.home)
	return true
}

// earliest returns when the next heartbeat is due: the regular one, or that of a queue.
func (n *node) earliest(regular time.Time) time.Time {
	n.worker.mu.Lock()
	defer n.worker.mu.Unlock()
	for _, m := range n.worker.members {
		if m.node == n && !m.due.IsZero() && m.due.Before(regular) {
			regular = m.due
		}
	}
	return regular
}

// A beat is one heartbeat, on some queues.
type beat struct {
	store.Heartbeat
	members []*member
	sent    time.Time
}

// next composes the next heartbeat: on all queues, or on those on which one is due.
func (n *node) next(all bool) *beat {
	now, made := time.Now(), n.made()
	n.worker.mu.Lock()
	defer n.worker.mu.Unlock()
	n.turned = now
	if n.worked != n.worker.id {
		n.worked, n.witness = n.worker.id, witness{beat: n.worker.fleet.times.Beat}
	}
	b := &beat{sent: now}
	b.Worker, b.Registers, b.TTL, b.Lease = n.worker.id, all && n.registers, n.worker.ttl(), n.worker.fleet.times.Grant
	for _, m := range n.worker.members {
		due := !m.due.IsZero() && !m.due.After(now)
		if m.node != n || !all && !due {
			continue
		}
		b.members = append(b.members, m)
		if due {
			m.due = time.Time{}
		}
	}
	slices.SortFunc(b.members, func(x, y *member) int { return strings.Compare(x.queue.ID, y.queue.ID) })
	for _, m := range b.members {
		b.Queues = append(b.Queues, m.queue.Shared)
		b.Judge = append(b.Judge, n.judgesLocked(m, now, made) > 0)
	}
	return b
}

// judgesLocked returns Redis's time until which a call that is sent now may evict workers from a queue; 0 if it
// may not. made is when the connection was made.
func (n *node) judgesLocked(m *member, now, made time.Time) int64 {
	if now.Before(m.spared) || n.home == store.Somewhere && n.worker.fleet.Lines.InCluster() { // then its queues are on several nodes
		return 0
	}
	return n.witness.judges(now, made)
}

// made returns when the connection for the node's heartbeats was made.
func (n *node) made() time.Time { return n.worker.fleet.Lines.Control.Made(n.home) }

// send sends a heartbeat, which renews the leases, and handles the answers.
func (n *node) send(ctx context.Context, b *beat) (err error) {
	f := n.worker.fleet
	heard := b.Send(ctx, f.Lines.Control, f.Space)
	now, made := time.Now(), n.made()
	n.worker.mu.Lock()
	seen := n.witness
	n.worker.mu.Unlock()
	var lapsed, answered, evicted bool
	redis, ahead := seen.redis, time.Duration(0)
	for i, m := range b.members {
		pulse, failed := heard.Pulses[i], heard.Errs[i]
		switch {
		case errors.Is(failed, store.ErrNoMember):
			answered, evicted = true, true
			m.session.Evicted()
		case failed != nil:
			err = cmp.Or(err, f.Describe("heartbeat", m.queue.Name, failed)) // the first one, so that changes aren't logged
			m.session.Unheard()
		default:
			answered = true
			if n.isAt(m) { // otherwise another node has answered, by its own clock
				lapsed = lapsed || pulse.Deadline < pulse.Now || seen.hasJumped(pulse.Now, now)
				redis, ahead = pulse.Now, aheadOf(pulse.Now, b.sent, now)
			}
			n.receive(m, pulse, b.sent)
		}
	}
	if b.Registers {
		err = cmp.Or(err, heard.Err)
		answered = answered || len(b.members) == 0 && heard.Err == nil
		if heard.Err == nil && !heard.Registered && !evicted { // otherwise the peer that evicted this id has removed it
			n.worker.outdate()
			n.worker.hurry()
		}
	}
	if redis != seen.redis {
		n.clock(ahead)
	}
	if answered {
		n.worker.mu.Lock()
		defer n.worker.mu.Unlock()
		n.answered = b.sent
		n.witness.redis = redis
		n.witness.answered(b.sent, now, made, lapsed)
	}
	return err
}

// drift is a difference between clocks that matters.
const drift = time.Second

// aheadOf returns by how much this machine's clock is ahead of the time of Redis that came between two moments, at least;
// negative if it's behind. How long the call took isn't part of that.
func aheadOf(redis int64, sent, answered time.Time) time.Duration {
	theirs := time.UnixMilli(redis)
	return max(sent.Round(0).Sub(theirs), 0) - max(theirs.Sub(answered.Round(0)), 0)
}

// clock records how wrong this peer's clock is, for its registration, and leaves a note if that has changed.
func (n *node) clock(ahead time.Duration) {
	w := n.worker
	w.mu.Lock()
	before := n.ahead
	if ahead.Abs() < drift && (before == 0 || ahead.Abs() < drift/2) { // so that it doesn't change all the time
		ahead = 0
	}
	ahead = ahead.Round(drift)
	changed := (ahead-before).Abs() >= 2*drift || (ahead == 0) != (before == 0)
	if changed {
		n.ahead, w.announced = ahead, time.Time{}
		w.hurry()
	}
	w.mu.Unlock()
	switch f := w.fleet; {
	case !changed:
	case ahead == 0:
		f.notes.Add(func() { f.Log.Info("worqr: this machine's clock agrees with Redis's again", "worker", f.ID()) })
	case before == 0:
		f.notes.Add(func() {
			f.Log.Warn("worqr: this machine's clock differs from Redis's; synchronize them", "worker", f.ID(), "name", f.Name, "ahead", ahead)
		})
	}
}

// aheadLocked returns by how much this peer's clock is ahead of that of a server, the one that differs most.
func (w *worker) aheadLocked() (most time.Duration) {
	for _, n := range w.nodes {
		if n.ahead.Abs() > most.Abs() {
			most = n.ahead
		}
	}
	return most
}

// ClockAhead returns by how much this peer's clock is ahead of Redis's.
func (f *Fleet) ClockAhead() time.Duration {
	w := f.present()
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.aheadLocked()
}

func (n *node) receive(m *member, pulse *store.Pulse, sent time.Time) {
	m.session.Pulse(pulse, sent)
	if f := n.worker.fleet; pulse.Unasserted && f.Over != nil {
		f.notes.Add(func() { f.Over(store.Target{Name: m.queue.Name, ID: m.queue.ID, Keys: m.queue.Keys}) })
	}
	n.worker.mu.Lock()
	defer n.worker.mu.Unlock()
	m.busy = pulse.Held > 0 || pulse.More != 0 || pulse.Unrecorded
	if pulse.Evict {
		n.evictFromLocked(m)
	}
}

// gather moves each queue to the node that has it now, in a cluster. That node sends a heartbeat
// immediately, since the last one may have been a while ago. Until what was granted there has run out, no worker is
// evicted from the queue: leases were counted by another clock, and the workers may still be looking for it.
func (w *worker) gather() {
	if !w.fleet.Lines.InCluster() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		home := w.fleet.Lines.Control.Home(m.queue.Keys)
		if home == store.Somewhere || home == m.node.home {
			continue // keep it where it is
		}
		now := time.Now()
		m.node, m.due, m.spared = w.enterLocked(home), now, now.Add(w.fleet.times.Grant)
		m.node.soon()
	}
}

// isAt reports whether a queue is still at the node.
func (n *node) isAt(m *member) bool {
	return n.home == store.Somewhere || n.worker.fleet.Lines.Control.Home(m.queue.Keys) == n.home
}
