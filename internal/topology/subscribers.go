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
	one  *redisconn.Subscriber // to the single server; nil in a cluster
	line func(dial redisconn.Dial) *redisconn.Subscriber
	by   *Router // knows the owners, and asks for them

	mu      sync.Mutex               // protects the fields below
	nodes   map[string]*listenedNode // nodes with listeners
	places  map[*redisconn.Subscription]*place
	closing bool
	timer   *time.Timer // of the next look; nil if none is due
}

// A listenedNode is a node with listeners. Subscribers.mu protects it.
type listenedNode struct {
	*redisconn.Subscriber
	listeners int
}

// A place says on which node a subscription is. Subscribers.mu protects it.
type place struct {
	slot int // or anySlot
	at   string
	here *redisconn.Subscription // its subscription on that node
	gone bool                    // the node no longer has it
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
	p.cluster.onChange(s.changed)
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
	if slot != anySlot && s.by.cluster.owner(slot) == "" {
		s.by.learn(at) // a replica of the owner would confirm the subscription, too
	}
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
	p.here, p.gone = &here, false
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
		if p, is := s.placeOf(l, &here); is && !p.gone { // otherwise it will move, and is synced on the new node
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
func (s *Subscribers) takeLocked(p *place, end func(*redisconn.Subscriber, *redisconn.Subscription)) {
	node := s.nodes[p.at]
	end(node.Subscriber, p.here)
	if node.listeners--; node.listeners == 0 {
		delete(s.nodes, p.at)
	}
}

// placeOf returns where a listener is, unless it has been removed or is elsewhere than here.
func (s *Subscribers) placeOf(l, here *redisconn.Subscription) (p place, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.places[l]; at != nil && at.here == here {
		return *at, true
	}
	return place{}, false
}

// moved records that a node no longer has a subscription, and which node does.
func (s *Subscribers) moved(l, here *redisconn.Subscription, to string) {
	s.mu.Lock()
	if p := s.places[l]; p != nil && p.here == here {
		p.gone = true
	}
	s.mu.Unlock()
	if p, is := s.placeOf(l, here); is && p.slot != anySlot && to != "" {
		s.by.cluster.moved(p.slot, whole(to, p.at))
	}
	s.changed()
}

// A subscription that may be on any node leaves an unreachable node, or one that refuses the login,
// after this time. Until then it is retried on that node.
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
	p, is := s.placeOf(l, here)
	if !is {
		return
	}
	s.by.learn(s.by.home(anySlot, p.at))
	if p.slot == anySlot {
		time.AfterFunc(after, func() { s.move(l, here, s.by.home(anySlot, p.at)) })
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
		if was.slot == anySlot {
			continue
		}
		to := cmp.Or(s.by.cluster.owner(was.slot), was.at)
		if was.gone || to != was.at {
			s.move(l, was.here, to)
		}
	}
}

// move subscribes a listener on another node, or again on the same one, unless that was done in the
// meantime.
func (s *Subscribers) move(l, here *redisconn.Subscription, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[l]; p != nil && p.here == here && !s.closing {
		s.takeLocked(p, (*redisconn.Subscriber).Leave)
		p.at = to
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
		s.takeLocked(p, (*redisconn.Subscriber).Remove)
	}
}

// Close ends all connections and listeners. Later calls of Add fail.
func (s *Subscribers) Close() {
	if s.one != nil {
		s.one.Close()
		return
	}
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
