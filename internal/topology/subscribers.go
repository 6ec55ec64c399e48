package topology

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Subscribers are connections for messages: one to the single server, or one to each node of a
// cluster that has listeners. In a cluster, each subscription is on the node that owns the slot of
// its queue, since only that node's reply to PUBLISH counts it. It moves with the slot; then there
// is a gap, followed by Synced.
type Subscribers struct {
	one   *redisconn.Subscriber // to the single server; nil in a cluster
	line  func(dial redisconn.Dial) *redisconn.Subscriber
	by    *Router // knows the owners, and asks for them
	leave func()  // ends the notifications of changes

	mu      sync.Mutex               // protects the fields below
	nodes   map[string]*listenedNode // nodes with listeners
	places  map[*redisconn.Subscription]*place
	closing bool
	timer   *time.Timer // of the next look; nil if none is due
}

// A listenedNode is a node with listeners.
type listenedNode struct {
	*redisconn.Subscriber
	listeners int
}

// A place says on which node a subscription is.
type place struct {
	slot int // or anySlot
	at   string
	here *redisconn.Subscription // its subscription on that node
	gone bool                    // the node no longer has it
	left time.Time               // when it last left a node; zero if it never has
	due  time.Time               // if it is gone and may be on any node: when it leaves
	held time.Time               // when it was confirmed, while the listener isn't to be notified yet; zero otherwise
}

// lookAfter is the delay between a change and the move of subscriptions: several changes come
// together, and if nodes redirect a subscription to each other, this limits the rate.
const lookAfter = 20 * time.Millisecond

// NewSubscribers returns the connections for messages of the servers. line makes one; by is a router
// to the same servers.
func NewSubscribers(p *Servers, by *Router, line func(dial redisconn.Dial) *redisconn.Subscriber) *Subscribers {
	s := &Subscribers{line: line, by: by, nodes: map[string]*listenedNode{}, places: map[*redisconn.Subscription]*place{}}
	if p.cluster == nil {
		s.one = line(p.dial)
		return s
	}
	s.leave = p.cluster.onChange(s.changed)
	return s
}

// Add subscribes the listener of a queue.
func (s *Subscribers) Add(q keys.Queue, l *redisconn.Subscription) error {
	if s.one != nil {
		return s.one.Add(l)
	}
	return s.add(q.Slot(), l)
}

// AddAll subscribes a listener to messages that every node delivers.
func (s *Subscribers) AddAll(l *redisconn.Subscription) error {
	if s.one != nil {
		return s.one.Add(l)
	}
	return s.add(anySlot, l)
}

func (s *Subscribers) add(slot int, l *redisconn.Subscription) error {
	at := s.by.home(slot, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return redisconn.ErrClosed
	}
	p := &place{slot: slot, at: at}
	s.places[l] = p
	return s.putLocked(l, p)
}

// putLocked subscribes a listener on its node. It doesn't wait for the node.
func (s *Subscribers) putLocked(l *redisconn.Subscription, p *place) error {
	node := s.nodes[p.at]
	if node == nil {
		node = &listenedNode{Subscriber: s.line(s.by.cluster.dial(p.at))}
		s.nodes[p.at] = node
	}
	node.listeners++
	here := *l
	p.here, p.gone, p.held = &here, false, time.Time{}
	sharded := func(t redisconn.Topic) bool { return t.Sharded }
	if p.slot != anySlot && !slices.ContainsFunc(l.Topics, sharded) {
		// With this topic, the node reports that it doesn't have the slot, or no longer has it.
		here.Topics = append([]redisconn.Topic{{Name: l.Topics[0].Name, Sharded: true}}, l.Topics...)
	}
	here.Failed = func(err error) {
		if _, refused := errors.AsType[*redisconn.RefusalError](err); !refused {
			s.failed(l, &here, err)
		}
		if l.Failed != nil {
			l.Failed(err)
		}
	}
	here.Synced = func() {
		s.stay(l, &here)
		if !s.elsewhere(l, &here) && !s.hold(l, &here) {
			l.Synced()
		}
	}
	here.Moved = func(t redisconn.Topic, to string) {
		if l.Moved != nil {
			l.Moved(t, to)
		}
		s.moved(l, &here, to)
	}
	return node.Add(&here)
}

// takeLocked ends a subscription on its node. A node without listeners is forgotten: its connection
// ends with the last subscription.
func (s *Subscribers) takeLocked(p *place) {
	node := s.nodes[p.at]
	node.Remove(p.here)
	if node.listeners--; node.listeners == 0 {
		delete(s.nodes, p.at)
	}
}

// elsewhere reports whether a node has reported that it doesn't have a subscription. Its other
// confirmations are then useless: the subscription will move, and is synced on the new node.
func (s *Subscribers) elsewhere(l, here *redisconn.Subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[l]
	return p == nil || p.here != here || p.slot != anySlot && p.gone
}

// holdFor is how long a confirmation is held back while the owner of the slot isn't known.
const holdFor = askMost

// hold reports whether to notify a listener later that it is subscribed: a replica of the owner
// confirms subscriptions as the owner does, and as long as no owner is known, the node may be a
// replica.
func (s *Subscribers) hold(l, here *redisconn.Subscription) bool {
	s.mu.Lock()
	p := s.places[l]
	held := p != nil && p.here == here && p.slot != anySlot && s.by.cluster.owner(p.slot) == "" && !s.by.cluster.isRefused()
	if held {
		p.held = time.Now()
	}
	s.mu.Unlock()
	if held {
		s.changed()
	}
	return held
}

// release notifies a listener that it is subscribed, if that was held back.
func (s *Subscribers) release(l, here *redisconn.Subscription) {
	s.mu.Lock()
	p := s.places[l]
	held := p != nil && p.here == here && !p.held.IsZero() && !p.gone && !s.closing
	if held {
		p.held = time.Time{}
	}
	s.mu.Unlock()
	if held {
		l.Synced()
	}
}

// moved records that a node no longer has a subscription, and which node does.
func (s *Subscribers) moved(l, here *redisconn.Subscription, to string) {
	s.mu.Lock()
	p := s.places[l]
	slot, at := anySlot, ""
	if p != nil && p.here == here {
		p.gone, slot, at = true, p.slot, p.at
	}
	s.mu.Unlock()
	if slot != anySlot && to != "" {
		s.by.cluster.moved(slot, whole(to, at))
	}
	s.changed()
}

// A subscription that may be on any node leaves an unreachable node, or one that refuses the login,
// this long after it left the previous one. Until then it is retried on that node.
const (
	leaveAfter  = time.Second
	loginsAfter = 30 * time.Second
)

// failed records that a node can't be reached; another may have replaced it.
func (s *Subscribers) failed(l, here *redisconn.Subscription, err error) {
	after := leaveAfter
	if redisconn.Refused(err) {
		after = loginsAfter
	}
	s.mu.Lock()
	p, at := s.places[l], ""
	if p != nil && p.here == here {
		at = p.at
		if p.slot == anySlot && !p.gone {
			p.gone, p.due = true, p.left.Add(after)
			time.AfterFunc(time.Until(p.due), s.changed)
		}
	}
	s.mu.Unlock()
	if at != "" {
		s.by.learn(s.by.home(anySlot, at))
		s.changed()
	}
}

// stay records that a subscription that may be on any node is confirmed where it is.
func (s *Subscribers) stay(l, here *redisconn.Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[l]; p != nil && p.here == here && p.slot == anySlot {
		p.gone = false
	}
}

// changed schedules a call of look.
func (s *Subscribers) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil && !s.closing {
		s.timer = time.AfterFunc(lookAfter, s.look)
	}
}

// look moves subscriptions to the nodes that have their queues.
func (s *Subscribers) look() {
	s.mu.Lock()
	s.timer = nil
	all := map[*redisconn.Subscription]place{}
	for l, p := range s.places {
		all[l] = *p
	}
	s.mu.Unlock()
	for l, was := range all {
		to := was.at
		if was.slot == anySlot && was.gone {
			if time.Now().Before(was.due) {
				continue // look will run again then
			}
			to = s.by.home(anySlot, was.at)
		} else if was.slot != anySlot {
			to = cmp.Or(s.by.cluster.owner(was.slot), was.at)
		}
		switch {
		case was.gone || to != was.at:
			s.move(l, was.here, to)
		case was.held.IsZero():
		case s.by.cluster.owner(was.slot) != "" || s.by.cluster.isRefused() || time.Since(was.held) > holdFor:
			s.release(l, was.here)
		default:
			s.by.learn(was.at)
			s.changed() // run again
		}
	}
}

// move subscribes a listener on another node, or again on the same one, unless that was done in the
// meantime.
func (s *Subscribers) move(l, here *redisconn.Subscription, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[l]; p != nil && p.here == here && !s.closing {
		s.takeLocked(p)
		p.at, p.left = to, time.Now()
		_ = s.putLocked(l, p) // it fails only if all are closed
	}
}

// Remove ends the subscriptions of a listener. It doesn't wait for a running function of the
// listener.
func (s *Subscribers) Remove(l *redisconn.Subscription) {
	if s.one != nil {
		s.one.Remove(l)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[l]; p != nil {
		delete(s.places, l)
		s.takeLocked(p)
	}
}

// Close ends all connections and listeners. Later calls of Add fail.
func (s *Subscribers) Close() {
	if s.one != nil {
		s.one.Close()
		return
	}
	s.leave()
	s.mu.Lock()
	s.closing = true
	if s.timer != nil {
		s.timer.Stop()
	}
	nodes := slices.Collect(maps.Values(s.nodes))
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, node := range nodes {
		all.Go(node.Close)
	}
	all.Wait()
}
