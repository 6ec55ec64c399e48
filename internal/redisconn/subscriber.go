package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/logs"
)

// A Subscriber is a connection for messages. It's open while it has listeners, and reconnects after
// every failure. Messages are only hints: each listener is notified when its subscriptions are
// confirmed, at first and after every gap, and then checks the state itself.
//
// Each topic is subscribed with its own command, and Redis answers commands in order. So it's clear
// which topic is refused, and others aren't affected.
//
// No method waits for the connection, since a Pool may call the Subscriber's methods: Add and
// Remove leave sending and closing to its goroutine, which ends with the last listener.
type Subscriber struct {
	dial     Dial
	log      *logs.Log
	upset    logs.Outage
	refusals logs.Outage
	some     chan struct{} // holds a value when there are requests to send

	mu        sync.Mutex // protects the fields below
	closed    bool
	done      chan struct{} // closed when run ends; nil if it doesn't run
	end       func()        // ends the session
	listeners map[*Subscription]bool
	topics    map[Topic][]*Subscription
	refused   map[Topic]string // the gist of the refusal
	connected bool
	wanted    []request // to send on the connection
	asked     []request // sent and not answered yet; oldest first

	// The result of the session; owned by the goroutine of run.
	open, confirmed, denied bool
	futile                  int // consecutive sessions that ended before a subscription was confirmed
}

// A Topic is a channel, or a pattern of channels.
type Topic struct {
	Name    string
	Pattern bool
	Sharded bool // owned by one node of a cluster
}

// A request is a command that will be answered.
type request struct {
	command string // "PING" has no topic
	topic   Topic
	again   bool          // it was refused before
	of      *Subscription // the listener that wants the topic; nil: all previous ones do
}

// A Subscription is a listener for the messages of some topics. All but Closed are called on the
// connection's goroutine, and must not block. No lock is held then: they may take one under which others call Add.
type Subscription struct {
	Topics  []Topic
	Message func(channel string, data []byte)
	Synced  func()          // the topics are subscribed, at first and after every gap
	Failed  func(err error) // there is a gap, or a topic is refused; may be nil
	Closed  func()          // no more messages will come; may be nil

	// Moved reports that another node has a sharded topic, and which node, if known: the topic is
	// no longer subscribed here. It may be nil.
	Moved func(t Topic, to string)
}

const (
	pingEvery  = time.Second
	pongWithin = 1500 * time.Millisecond
	deadAfter  = pingEvery + pongWithin // without a sign of life
	askAgain   = 10 * time.Second       // between tries of a refused topic
	loginAgain = 5 * time.Second        // at most, between tries when Redis refuses the login, or all subscriptions
	mostFutile = 3                      // futile sessions after which the server seems to refuse all subscriptions
)

// NewSubscriber returns a Subscriber that dials when it gets a listener.
func NewSubscriber(dial Dial, log *logs.Log) *Subscriber {
	return &Subscriber{
		dial: dial, log: log, some: make(chan struct{}, 1), end: func() {},
		listeners: map[*Subscription]bool{}, topics: map[Topic][]*Subscription{}, refused: map[Topic]string{},
	}
}

// Add adds a listener. It doesn't wait for Redis; Synced reports when the topics are subscribed.
func (s *Subscriber) Add(l *Subscription) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.listeners[l] = true
	for _, t := range l.Topics {
		s.topics[t] = append(slices.Clip(s.topics[t]), l)
	}
	if s.done == nil {
		s.done = make(chan struct{})
		go s.run()
	}
	s.sendLocked(l.subscriptions())
	return nil
}

func (l *Subscription) subscriptions() []request {
	rs := make([]request, len(l.Topics))
	for i, t := range l.Topics {
		rs[i] = request{command: t.command("SUBSCRIBE"), topic: t, of: l}
	}
	return rs
}

// Close ends the connection and all listeners. Later calls of Add fail. It waits until the
// connection is closed, unless a Pool hangs.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.closed = true
	listeners, done := s.listeners, s.done
	s.listeners = nil
	clear(s.topics)
	s.end()
	s.mu.Unlock()
	for l := range listeners {
		if l.Closed != nil {
			l.Closed()
		}
	}
	if done != nil {
		select {
		case <-done:
		case <-time.After(deadAfter):
		}
	}
}

// Remove ends the subscriptions of the listener. It doesn't wait for a running function of the
// listener.
func (s *Subscriber) Remove(l *Subscription) { s.remove(l, false) }

// Leave is Remove for a listener whose sharded topics another node has: the server ends their subscriptions on its own.
func (s *Subscriber) Leave(l *Subscription) { s.remove(l, true) }

func (s *Subscriber) remove(l *Subscription, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listeners[l] {
		return
	}
	delete(s.listeners, l)
	var over []request
	for _, t := range l.Topics {
		// A copy, since dispatch may be going through the old one.
		rest := slices.DeleteFunc(slices.Clone(s.topics[t]), func(o *Subscription) bool { return o == l })
		if s.topics[t] = rest; len(rest) == 0 {
			delete(s.topics, t)
			delete(s.refused, t)
			if !moved || !t.Sharded {
				over = append(over, request{command: t.command("UNSUBSCRIBE"), topic: t})
			}
		}
	}
	if len(s.listeners) == 0 {
		s.end()
		return
	}
	s.sendLocked(over)
}

// sendLocked queues requests for the connection. Without a connection there's nothing to send: the
// next one subscribes to all topics.
func (s *Subscriber) sendLocked(rs []request) {
	if len(rs) == 0 {
		return
	}
	if s.connected {
		s.wanted = append(s.wanted, rs...)
	}
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// run keeps a connection while there are listeners.
func (s *Subscriber) run() {
	retry := NewBackoff()
	for {
		ctx, more := s.begin()
		if !more {
			return
		}
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			continue
		}
		err, known := s.blame(err)
		if !known {
			s.upset.Note(s.log, saysUnsubscribed, err)
		}
		pause := retry.Next()
		if Refused(err) || s.futile >= mostFutile {
			pause = Jitter(loginAgain)
		} else if time.Since(began) > deadAfter {
			retry.Reset()
		}
		s.rest(ctx, pause, err)
	}
}

// begin returns the context of the next session, unless there are no listeners.
func (s *Subscriber) begin() (ctx context.Context, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	if len(s.listeners) == 0 {
		close(s.done)
		s.done = nil
		return nil, false
	}
	ctx, s.end = context.WithCancel(context.Background())
	return ctx, true
}

// session runs one connection until it ends. It always returns an error.
func (s *Subscriber) session(ctx context.Context) error {
	s.open, s.confirmed, s.denied = false, false, false
	dialing, cancel := context.WithTimeout(ctx, deadAfter)
	defer cancel()
	c, err := s.dial(dialing)
	if err != nil {
		return &absentError{err}
	}
	if s.futile > 0 { // check whether it answers at all
		if _, err := redis.DoWithTimeout(c, deadAfter, "PING"); err != nil && (!Answered(err) || passes(err)) {
			_ = c.Close()
			return err
		}
	}
	s.open = true
	s.mu.Lock()
	s.asked, s.wanted, s.connected = nil, nil, true
	for l := range s.listeners {
		s.sendLocked(l.subscriptions())
	}
	s.mu.Unlock()
	every := pings(c)
	over, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		s.write(ctx, c, every, over)
	}()
	defer func() {
		s.mu.Lock()
		s.connected = false
		s.mu.Unlock()
		close(over)
		Interrupt(c) // the writer may be using it
		<-written
		_ = c.Close() // it isn't needed anymore
	}()
	for ctx.Err() == nil {
		reply, err := redis.ReceiveWithTimeout(c, every+pongWithin)
		if err := s.receive(reply, Discreet(err)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// pings returns the time between two pings of a connection. A steady one never fails silently, so it needs none. Those
// of worqrtest are steady: otherwise, a virtual day would consist of pings.
func pings(c redis.Conn) time.Duration {
	if _, steady := c.(interface{ Steady() }); steady {
		return time.Hour
	}
	return pingEvery
}

// write sends requests, pings to detect a dead connection, and retries refused topics now and then.
// If sending fails, the receiver notices.
func (s *Subscriber) write(ctx context.Context, conn redis.Conn, every time.Duration, over <-chan struct{}) {
	ping := time.NewTicker(every)
	defer ping.Stop()
	retried := time.Now()
	for {
		var requests []request
		select {
		case <-over:
			return
		case <-ctx.Done():
			s.send(conn, []request{{command: "PING"}}) // wakes the receiver
			Interrupt(conn)
			return
		case <-s.some:
		case <-ping.C:
			requests = []request{{command: "PING"}}
			if time.Since(retried) >= askAgain {
				retried = time.Now()
				requests = append(requests, s.retries()...)
			}
		}
		s.send(conn, requests)
	}
}

func (s *Subscriber) retries() (again []request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.refused {
		again = append(again, request{command: t.command("SUBSCRIBE"), topic: t, again: true})
	}
	return again
}

// send sends the wanted requests, and then rs.
func (s *Subscriber) send(conn redis.Conn, rs []request) {
	s.mu.Lock()
	rs = append(s.wanted, rs...)
	s.wanted = nil
	s.asked = append(s.asked, rs...)
	s.mu.Unlock()
	if len(rs) == 0 {
		return
	}
	for _, r := range rs {
		args := []any{r.topic.Name}
		if r.command == "PING" {
			args = nil
		}
		if conn.Send(r.command, args...) != nil {
			return
		}
	}
	_ = conn.Flush()
}

var errBabble = errors.New("the reply to a subscription isn't Redis protocol")

// receive handles a reply or message. It returns an error if the connection is useless.
func (s *Subscriber) receive(reply any, err error) error {
	if refusal, ok := errors.AsType[redis.Error](err); ok {
		r, asked := s.answered()
		switch {
		case !asked:
			return refusal
		case s.elsewhere(r, refusal):
			return nil
		case r.command == "PING", r.command == r.topic.command("UNSUBSCRIBE"):
			return nil // the connection is alive
		case passes(refusal):
			return refusal
		}
		s.deny(r, refusal)
		return nil
	}
	if err != nil {
		return err
	}
	parts, ok := reply.([]any)
	if !ok { // the reply to a PING, without a subscription
		if r, asked := s.answered(); !asked || r.command != "PING" {
			return errBabble
		}
		return nil
	}
	words := make([][]byte, len(parts))
	for i, p := range parts {
		words[i], _ = p.([]byte)
	}
	switch {
	case len(words) == 3 && string(words[0]) == "message":
		s.dispatch(Topic{Name: string(words[1])}, string(words[1]), words[2])
		return nil
	case len(words) == 3 && string(words[0]) == "smessage":
		s.dispatch(Topic{Name: string(words[1]), Sharded: true}, string(words[1]), words[2])
		return nil
	case leaves(words):
		return s.ended(Topic{Name: string(words[1]), Sharded: true})
	case len(words) == 4 && string(words[0]) == "pmessage":
		s.dispatch(Topic{Name: string(words[1]), Pattern: true}, string(words[2]), words[3])
		return nil
	}
	r, asked := s.answered()
	switch {
	case !asked || !r.isAnswer(words):
		return errBabble
	case r.command == r.topic.command("SUBSCRIBE"):
		s.confirm(r)
	}
	return nil
}

func (r *request) isAnswer(words [][]byte) bool {
	if r.command == "PING" {
		return len(words) == 2 && string(words[0]) == "pong"
	}
	return len(words) == 3 && strings.EqualFold(string(words[0]), r.command) && string(words[1]) == r.topic.Name
}

// answered removes and returns the request that an answer belongs to.
func (s *Subscriber) answered() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return request{}, false
	}
	r, s.asked = s.asked[0], s.asked[1:]
	return r, true
}

const (
	saysUnsubscribed = "not subscribed; tasks and cancels are noticed at the next heartbeat"
	saysRefused      = "Redis refuses a subscription"
)

func (s *Subscriber) of(t Topic) []*Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[t]
}

func (s *Subscriber) dispatch(t Topic, channel string, data []byte) {
	for _, l := range s.of(t) {
		l.Message(channel, data)
	}
}

func (s *Subscriber) confirm(r request) {
	s.confirmed = true
	s.mu.Lock()
	delete(s.refused, r.topic)
	none := len(s.refused) == 0
	s.mu.Unlock()
	s.upset.Note(s.log, saysUnsubscribed, nil)
	if none {
		s.refusals.Note(s.log, saysRefused, nil)
	}
	s.settle(r, true)
}

// deny handles the refusal of a topic. It notifies the listeners, unless they know already.
func (s *Subscriber) deny(r request, err error) {
	s.denied = true
	is := logs.Gist(err)
	s.mu.Lock()
	ls := s.topics[r.topic]
	known := s.refused[r.topic] == is
	if len(ls) > 0 {
		s.refused[r.topic] = is
	}
	s.mu.Unlock()
	s.upset.Note(s.log, saysUnsubscribed, nil)
	if !known {
		s.refusals.Note(s.log, saysRefused, err, "channel", r.topic.Name)
	}
	if !known || !r.again {
		for _, l := range ls {
			if l.Failed != nil {
				l.Failed(&RefusalError{r.topic, err})
			}
		}
	}
	s.settle(r, false)
}

// A RefusalError is the refusal of one topic. A listener's other topics are often refused alike.
type RefusalError struct {
	Topic Topic
	Err   error
}

func (e *RefusalError) Error() string { return fmt.Sprintf("subscribe to %s: %v", e.Topic.Name, e.Err) }
func (e *RefusalError) Unwrap() error { return e.Err }

// settle notifies a listener whose last topic is answered that it is subscribed, as far as Redis
// permits it: Redis answers in the order of the requests. If a topic was refused before and is now
// confirmed, that ends a gap.
func (s *Subscriber) settle(r request, confirmed bool) {
	for _, l := range s.of(r.topic) {
		if r.again && confirmed || l == r.of && r.topic == l.Topics[len(l.Topics)-1] && s.hears(l) {
			l.Synced()
		}
	}
}

// hears reports whether at least one topic of the listener isn't refused.
func (s *Subscriber) hears(l *Subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(l.Topics, func(t Topic) bool { return s.refused[t] == "" })
}
