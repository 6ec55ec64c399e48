package redisconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
// Remove leave sending and closing to its goroutine.
type Subscriber struct {
	dial     Dial
	log      *logs.Log
	upset    logs.Outage
	refusals logs.Outage
	turn     chan struct{} // holds a value while a feed has a connection or makes one

	mu     sync.Mutex // protects the fields below, and those of feed
	closed bool
	feed   *feed // nil without listeners
}

// A feed lasts from a Subscriber's first listener to its last.
type feed struct {
	sub  *Subscriber
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{} // closed when its goroutine has ended
	some chan struct{} // holds a value when there are requests to send

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
	left    bool          // the server has reported that the sharded topic is no longer subscribed
	of      *Subscription // the listener that wants the topic; nil: all previous ones do
}

// A Subscription is a listener for the messages of some topics. Its functions are called on the
// connection's goroutine, and must not block.
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
	loginAgain = 30 * time.Second       // between tries when Redis refuses the login, or all subscriptions
	mostFutile = 3                      // futile sessions after which the server seems to refuse all subscriptions
)

// NewSubscriber returns a Subscriber that dials when it gets a listener.
func NewSubscriber(dial Dial, log *logs.Log) *Subscriber {
	return &Subscriber{dial: dial, log: log, turn: make(chan struct{}, 1)}
}

// Add adds a listener. It doesn't wait for Redis; Synced reports when the topics are subscribed.
func (s *Subscriber) Add(l *Subscription) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	f := s.feed
	if f == nil {
		f = &feed{
			sub: s, done: make(chan struct{}), some: make(chan struct{}, 1),
			listeners: map[*Subscription]bool{}, topics: map[Topic][]*Subscription{}, refused: map[Topic]string{},
		}
		f.ctx, f.stop = context.WithCancel(context.Background())
		s.feed = f
		go f.run()
	}
	f.listeners[l] = true
	for _, t := range l.Topics {
		f.topics[t] = append(slices.Clip(f.topics[t]), l)
	}
	f.sendLocked(l.subscriptions())
	return nil
}

// subscriptions returns the requests for the listener's topics.
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
	f := s.feed
	s.closed, s.feed = true, nil
	s.mu.Unlock()
	if f == nil {
		return
	}
	f.stop()
	for l := range f.listeners { // they don't change anymore
		if l.Closed != nil {
			l.Closed()
		}
	}
	select {
	case <-f.done:
	case <-time.After(deadAfter):
	}
}

// Remove ends the subscriptions of the listener. It doesn't wait for a running function of the
// listener.
func (s *Subscriber) Remove(l *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feed
	if f == nil || !f.listeners[l] {
		return
	}
	delete(f.listeners, l)
	if len(f.listeners) == 0 {
		s.feed = nil
		f.stop()
		return
	}
	var over []request
	for _, t := range l.Topics {
		// A copy, since dispatch may be going through the old one.
		rest := slices.DeleteFunc(slices.Clone(f.topics[t]), func(o *Subscription) bool { return o == l })
		if f.topics[t] = rest; len(rest) == 0 {
			delete(f.topics, t)
			delete(f.refused, t)
			r := request{command: t.command("UNSUBSCRIBE"), topic: t}
			if over = append(over, r); r.ends() {
				over = append(over, request{command: "PING"})
			}
		}
	}
	f.sendLocked(over)
}

// sendLocked queues requests for the connection. Without a connection there's nothing to send: the
// next one subscribes to all topics.
func (f *feed) sendLocked(rs []request) {
	if len(rs) == 0 {
		return
	}
	if f.connected {
		f.wanted = append(f.wanted, rs...)
	}
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// run keeps a connection until the feed is stopped. There is one connection at a time.
func (f *feed) run() {
	defer close(f.done)
	select {
	case f.sub.turn <- struct{}{}:
		defer func() { <-f.sub.turn }()
	case <-f.ctx.Done():
		return
	}
	retry := NewBackoff()
	for {
		began := time.Now()
		err := f.session()
		if f.ctx.Err() != nil {
			return
		}
		err, known := f.blame(err)
		if !known {
			f.sub.upset.Note(f.sub.log, saysUnsubscribed, err)
		}
		pause := retry.Next()
		if Refused(err) || f.futile >= mostFutile {
			pause = loginAgain
		} else if time.Since(began) > deadAfter {
			retry.Reset()
		}
		if !f.rest(pause, err) {
			return
		}
	}
}

func (f *feed) all() []*Subscription {
	f.sub.mu.Lock()
	defer f.sub.mu.Unlock()
	return slices.Collect(maps.Keys(f.listeners))
}

// session runs one connection until it ends. It always returns an error.
func (f *feed) session() error {
	f.open, f.confirmed, f.denied = false, false, false
	dialing, cancel := context.WithTimeout(f.ctx, deadAfter)
	defer cancel()
	c, err := f.sub.dial(dialing)
	if err != nil {
		return &absentError{err}
	}
	if f.futile > 0 { // check whether it answers at all
		if _, err := redis.DoWithTimeout(c, deadAfter, "PING"); err != nil && (!Answered(err) || passes(err)) {
			_ = c.Close()
			return err
		}
	}
	f.open = true
	f.sub.mu.Lock()
	f.asked, f.wanted, f.connected = nil, nil, true
	for l := range f.listeners {
		f.sendLocked(l.subscriptions())
	}
	f.sub.mu.Unlock()
	every := pings(c)
	over, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		f.write(c, every, over)
	}()
	defer func() {
		f.sub.mu.Lock()
		f.connected = false
		f.sub.mu.Unlock()
		close(over)
		Interrupt(c) // the writer may be using it
		<-written
		_ = c.Close() // it isn't needed anymore
	}()
	for f.ctx.Err() == nil {
		reply, err := redis.ReceiveWithTimeout(c, every+pongWithin)
		if err := f.receive(reply, Discreet(err)); err != nil {
			return err
		}
	}
	return f.ctx.Err()
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
func (f *feed) write(conn redis.Conn, every time.Duration, over <-chan struct{}) {
	ping := time.NewTicker(every)
	defer ping.Stop()
	retried := time.Now()
	for {
		var requests []request
		select {
		case <-over:
			return
		case <-f.ctx.Done():
			f.send(conn, []request{{command: "PING"}}) // wakes the receiver
			Interrupt(conn)
			return
		case <-f.some:
		case <-ping.C:
			requests = []request{{command: "PING"}}
			if time.Since(retried) >= askAgain {
				retried = time.Now()
				requests = append(requests, f.refusals()...)
			}
		}
		f.send(conn, requests)
	}
}

// refusals returns requests for the refused topics.
func (f *feed) refusals() (again []request) {
	f.sub.mu.Lock()
	defer f.sub.mu.Unlock()
	for t := range f.refused {
		again = append(again, request{command: t.command("SUBSCRIBE"), topic: t, again: true})
	}
	return again
}

// send sends the wanted requests, and then rs.
func (f *feed) send(conn redis.Conn, rs []request) {
	f.sub.mu.Lock()
	rs = append(f.wanted, rs...)
	f.wanted = nil
	f.asked = append(f.asked, rs...)
	f.sub.mu.Unlock()
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
func (f *feed) receive(reply any, err error) error {
	if refusal, ok := errors.AsType[redis.Error](err); ok {
		if f.ended(nil, refusal) {
			return nil
		}
		r, asked := f.answered()
		switch {
		case !asked:
			return refusal
		case f.elsewhere(r, refusal):
			return nil
		case r.command == "PING", r.command == r.topic.command("UNSUBSCRIBE"):
			return nil // the connection is alive
		case passes(refusal):
			return refusal
		}
		f.deny(r, refusal)
		return nil
	}
	if err != nil {
		return err
	}
	parts, ok := reply.([]any)
	if !ok { // the reply to a PING, without a subscription
		f.ended(nil, nil)
		if r, asked := f.answered(); !asked || r.command != "PING" {
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
		f.dispatch(Topic{Name: string(words[1])}, string(words[1]), words[2])
		return nil
	case len(words) == 3 && string(words[0]) == "smessage":
		f.dispatch(Topic{Name: string(words[1]), Sharded: true}, string(words[1]), words[2])
		return nil
	case f.ended(words, nil):
		return nil
	case leaves(words): // no listener has requested that
		return f.moved(Topic{Name: string(words[1]), Sharded: true}, "")
	case len(words) == 4 && string(words[0]) == "pmessage":
		f.dispatch(Topic{Name: string(words[1]), Pattern: true}, string(words[2]), words[3])
		return nil
	}
	r, asked := f.answered()
	switch {
	case !asked || len(words) == 0:
		return errBabble
	case r.command == r.topic.command("SUBSCRIBE"):
		f.confirm(r)
	}
	return nil
}

// answered removes and returns the request that an answer belongs to.
func (f *feed) answered() (r request, ok bool) {
	f.sub.mu.Lock()
	defer f.sub.mu.Unlock()
	if len(f.asked) == 0 {
		return request{}, false
	}
	r, f.asked = f.asked[0], f.asked[1:]
	return r, true
}

const (
	saysUnsubscribed = "not subscribed; tasks and cancels are noticed at the next heartbeat"
	saysRefused      = "Redis refuses a subscription"
)

func (f *feed) of(t Topic) []*Subscription {
	f.sub.mu.Lock()
	defer f.sub.mu.Unlock()
	return f.topics[t]
}

func (f *feed) dispatch(t Topic, channel string, data []byte) {
	for _, l := range f.of(t) {
		l.Message(channel, data)
	}
}

// confirm handles the confirmation of a Topic.
func (f *feed) confirm(r request) {
	f.confirmed = true
	f.sub.mu.Lock()
	delete(f.refused, r.topic)
	none := len(f.refused) == 0
	f.sub.mu.Unlock()
	f.sub.upset.Note(f.sub.log, saysUnsubscribed, nil)
	if none {
		f.sub.refusals.Note(f.sub.log, saysRefused, nil)
	}
	f.settle(r, true)
}

// deny handles the refusal of a topic. It notifies the listeners, unless they know already.
func (f *feed) deny(r request, err error) {
	f.denied = true
	is := logs.Gist(err)
	f.sub.mu.Lock()
	ls := f.topics[r.topic]
	known := f.refused[r.topic] == is
	if len(ls) > 0 {
		f.refused[r.topic] = is
	}
	f.sub.mu.Unlock()
	f.sub.upset.Note(f.sub.log, saysUnsubscribed, nil)
	if !known {
		f.sub.refusals.Note(f.sub.log, saysRefused, err, "channel", r.topic.Name)
	}
	if !known || !r.again {
		for _, l := range ls {
			if l.Failed != nil {
				l.Failed(&RefusalError{r.topic, err})
			}
		}
	}
	f.settle(r, false)
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
func (f *feed) settle(r request, confirmed bool) {
	for _, l := range f.of(r.topic) {
		if r.again && confirmed || l == r.of && r.topic == l.Topics[len(l.Topics)-1] && f.hears(l) {
			l.Synced()
		}
	}
}

// hears reports whether at least one topic of the listener isn't refused.
func (f *feed) hears(l *Subscription) bool {
	f.sub.mu.Lock()
	defer f.sub.mu.Unlock()
	return slices.ContainsFunc(l.Topics, func(t Topic) bool { return f.refused[t] == "" })
}
