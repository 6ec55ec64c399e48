package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/logs"
)

// A Subscriber is a connection for messages. It is there while
// somebody listens, and outlives every failure. What it carries are hints:
// each listener is told when its subscriptions are confirmed, at first and
// after every gap, and then looks for itself.
//
// Each topic is asked for by a command of its own, and Redis answers commands in
// their order. So a refused one is known, and affects no other.
type Subscriber struct {
	dial     Dial
	log      *logs.Log
	upset    logs.Outage
	refusals logs.Outage

	life   sync.Mutex // held while the connection's goroutine is started or stopped
	closed bool       // protected by life

	mu        sync.Mutex // protects the fields below
	listeners map[*Subscription]bool
	topics    map[Topic][]*Subscription
	refused   map[Topic]string   // the gist of the refusal
	asked     []request          // on the connection, and not answered yet; oldest first
	stop      context.CancelFunc // nil while nobody listens
	done      chan struct{}

	write sync.Mutex // held before mu by whoever sends on conn, and to change it
	conn  redis.Conn
}

// A Topic is a channel, or a pattern of channels.
type Topic struct {
	Name    string
	Pattern bool
}

// A request is a command that is to be answered.
type request struct {
	command string // "PING" has no topic
	topic   Topic
	again   bool          // it was refused before
	of      *Subscription // that wants the topic; nil if all do who did before
}

// A Subscription gets the messages of some topics. Its functions are called on the
// connection's goroutine, and must not block.
type Subscription struct {
	Topics  []Topic
	Message func(channel string, data []byte)
	Synced  func()          // subscribed, at first and after every gap
	Failed  func(err error) // there is a gap, or a topic is refused; nil if nobody asks
	Closed  func()          // there will be nothing more; nil if nobody asks
}

const (
	pingEvery  = time.Second
	deadAfter  = 2500 * time.Millisecond // without a sign of life
	askAgain   = 10 * time.Second        // between tries of a refused topic
	loginAgain = 30 * time.Second        // between tries when Redis doesn't let the user in
)

// NewSubscriber returns one that dials when somebody subscribes.
func NewSubscriber(dial Dial, log *logs.Log) *Subscriber {
	return &Subscriber{dial: dial, log: log, listeners: map[*Subscription]bool{}, topics: map[Topic][]*Subscription{}, refused: map[Topic]string{}}
}

// Add subscribes the listener. It does not block on Redis; synced tells.
func (s *Subscriber) Add(l *Subscription) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.mu.Lock()
	s.listeners[l] = true
	for _, t := range l.Topics {
		s.topics[t] = append(slices.Clip(s.topics[t]), l)
	}
	start := s.stop == nil
	var ctx context.Context
	if start {
		ctx, s.stop = context.WithCancel(context.Background())
		s.done = make(chan struct{})
	}
	done := s.done
	s.mu.Unlock()
	if start {
		go s.run(ctx, done)
		return nil
	}
	s.send(l.subscriptions())
	return nil
}

// subscriptions are the requests for the listener's topics.
func (l *Subscription) subscriptions() []request {
	rs := make([]request, len(l.Topics))
	for i, t := range l.Topics {
		rs[i] = request{command: t.command("SUBSCRIBE"), topic: t, of: l}
	}
	return rs
}

// command is the one for channels, or the one for patterns.
func (t Topic) command(name string) string {
	if t.Pattern {
		return "P" + name
	}
	return name
}

// Close ends the connection and all listeners, and has Add fail from now on.
func (s *Subscriber) Close() {
	s.life.Lock()
	defer s.life.Unlock()
	s.closed = true
	s.mu.Lock()
	listeners := s.listeners
	s.listeners, s.topics = map[*Subscription]bool{}, map[Topic][]*Subscription{}
	s.mu.Unlock()
	s.endLocked()
	for l := range listeners {
		if l.Closed != nil {
			l.Closed()
		}
	}
}

// Remove ends the subscriptions of the listener, and waits for the connection's
// goroutine to end if it was the last.
func (s *Subscriber) Remove(l *Subscription) {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	if !s.listeners[l] {
		s.mu.Unlock()
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
			over = append(over, request{command: t.command("UNSUBSCRIBE"), topic: t})
		}
	}
	last := len(s.listeners) == 0
	s.mu.Unlock()
	if last {
		s.endLocked()
		return
	}
	s.send(over)
}

// endLocked ends the connection's goroutine and waits for it. s.life is held.
func (s *Subscriber) endLocked() {
	s.mu.Lock()
	stop, done := s.stop, s.done
	s.stop = nil
	s.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	s.send([]request{{command: "PING"}}) // wakes the receiver
	s.write.Lock()
	conn := s.conn
	s.write.Unlock()
	if conn != nil {
		Interrupt(conn)
	}
	<-done
}

// send makes requests on the connection. Without one there is nothing to do: the next
// asks for all topics. When sending fails, the receiver notices.
func (s *Subscriber) send(rs []request) {
	s.write.Lock()
	defer s.write.Unlock()
	if s.conn == nil || len(rs) == 0 {
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, rs...)
	s.mu.Unlock()
	for _, r := range rs {
		args := []any{r.topic.Name}
		if r.command == "PING" {
			args = nil
		}
		if s.conn.Send(r.command, args...) != nil {
			return
		}
	}
	_ = s.conn.Flush()
}

// run keeps a connection until ctx ends.
func (s *Subscriber) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	retry := NewBackoff()
	for {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		s.upset.Note(s.log, saysUnsubscribed, err)
		for _, l := range s.all() {
			if l.Failed != nil {
				l.Failed(err)
			}
		}
		pause := retry.Next()
		if Refused(err) {
			pause = loginAgain
		} else if time.Since(began) > deadAfter {
			retry.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *Subscriber) all() []*Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	ls := make([]*Subscription, 0, len(s.listeners))
	for l := range s.listeners {
		ls = append(ls, l)
	}
	return ls
}

// session is the life of one connection. It always ends with an error.
func (s *Subscriber) session(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, deadAfter)
	defer cancel()
	c, err := s.dial(dialing)
	if err != nil {
		return err
	}
	s.write.Lock()
	s.mu.Lock()
	s.asked = nil // before anybody can ask on this one
	s.mu.Unlock()
	s.conn = c
	s.write.Unlock()
	for _, l := range s.all() {
		s.send(l.subscriptions())
	}
	pinging := make(chan struct{})
	defer func() {
		close(pinging)
		s.write.Lock()
		s.conn = nil
		s.write.Unlock()
		_ = c.Close() // nothing is expected of it any more
	}()
	go s.ping(c, pinging)
	for ctx.Err() == nil {
		reply, err := redis.ReceiveWithTimeout(c, deadAfter)
		if err := s.receive(reply, Discreet(err)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ping has a dead connection noticed, and asks for refused topics once in a while.
func (s *Subscriber) ping(conn redis.Conn, over <-chan struct{}) {
	asked := time.Now()
	for {
		select {
		case <-over:
			return
		case <-time.After(pingEvery):
		}
		requests := []request{{command: "PING"}}
		if time.Since(asked) >= askAgain {
			asked = time.Now()
			s.mu.Lock()
			for t := range s.refused {
				requests = append(requests, request{command: t.command("SUBSCRIBE"), topic: t, again: true})
			}
			s.mu.Unlock()
		}
		s.write.Lock()
		current := s.conn == conn
		s.write.Unlock()
		if current {
			s.send(requests)
		}
	}
}

var errBabble = errors.New("the reply to a subscription isn't Redis protocol")

// receive takes in what Redis says. It fails when the connection is of no more use.
func (s *Subscriber) receive(reply any, err error) error {
	if refusal, ok := errors.AsType[redis.Error](err); ok {
		r, asked := s.answered()
		switch {
		case !asked:
			return refusal
		case r.command == "PING", r.command == r.topic.command("UNSUBSCRIBE"):
			return nil // it is alive
		case Denied(refusal), UnknownCommand(refusal):
			s.deny(r, refusal)
			return nil
		}
		return refusal
	}
	if err != nil {
		return err
	}
	parts, ok := reply.([]any)
	if !ok { // of a PING, with no subscription
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
		s.dispatch(Topic{string(words[1]), false}, string(words[1]), words[2])
		return nil
	case len(words) == 4 && string(words[0]) == "pmessage":
		s.dispatch(Topic{string(words[1]), true}, string(words[2]), words[3])
		return nil
	}
	r, asked := s.answered()
	switch {
	case !asked || len(words) == 0:
		return errBabble
	case r.command == r.topic.command("SUBSCRIBE"):
		s.confirm(r)
	}
	return nil
}

// answered returns the request that an answer is for.
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

// of returns the listeners of a Topic.
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

// confirm takes in that a Topic is subscribed.
func (s *Subscriber) confirm(r request) {
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

// deny takes in that a topic is refused. It is told to its listeners unless they know.
func (s *Subscriber) deny(r request, err error) {
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

// A RefusalError is that of one topic. The others of a listener are often refused alike.
type RefusalError struct {
	Topic Topic
	Err   error
}

func (e *RefusalError) Error() string { return fmt.Sprintf("subscribe to %s: %v", e.Topic.Name, e.Err) }
func (e *RefusalError) Unwrap() error { return e.Err }

// settle tells a listener whose last topic is answered that it is subscribed, as
// far as Redis allows it: it answers in the order of the requests. A topic that was
// refused before, and is not any more, ends a gap.
func (s *Subscriber) settle(r request, confirmed bool) {
	for _, l := range s.of(r.topic) {
		if r.again && confirmed || l == r.of && r.topic == l.Topics[len(l.Topics)-1] && s.some(l) {
			l.Synced()
		}
	}
}

// some reports whether any topic of the listener is not refused.
func (s *Subscriber) some(l *Subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(l.Topics, func(t Topic) bool { return s.refused[t] == "" })
}
