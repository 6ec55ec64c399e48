package worqr

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A subscriber is the one subscribed connection of a peer. It is there while
// somebody listens, and outlives every failure. What it carries are hints:
// each listener is told when its subscriptions are confirmed, at first and
// after every gap, and then looks for itself.
type subscriber struct {
	dial  redisconn.Dial
	log   *slog.Logger
	upset complaint

	life   sync.Mutex // held while the connection's goroutine is started or stopped
	closed bool       // protected by life

	mu        sync.Mutex // protects the fields below
	listeners map[*listener]bool
	hear      map[string][]*listener // by channel or pattern
	stop      context.CancelFunc     // nil while nobody listens
	done      chan struct{}

	write sync.Mutex // held by whoever sends on conn, and to change it
	conn  *redis.PubSubConn
}

// A listener hears some channels and patterns.
type listener struct {
	channels []string
	patterns []string
	message  func(channel string, data []byte)
	synced   func()          // subscribed, at first and after every gap
	failed   func(err error) // there is a gap
}

const (
	pingEvery = time.Second
	deadAfter = 2500 * time.Millisecond // without a sign of life
	refused   = 30 * time.Second        // between tries when SUBSCRIBE is not allowed
)

func newSubscriber(dial redisconn.Dial, log *slog.Logger) *subscriber {
	return &subscriber{dial: dial, log: log, listeners: map[*listener]bool{}, hear: map[string][]*listener{}}
}

// add has the listener hear. It does not block on Redis; synced tells.
func (s *subscriber) add(l *listener) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return redisconn.ErrClosed
	}
	s.mu.Lock()
	s.listeners[l] = true
	for _, name := range slices.Concat(l.channels, l.patterns) {
		s.hear[name] = append(s.hear[name][:len(s.hear[name]):len(s.hear[name])], l)
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
	s.write.Lock()
	defer s.write.Unlock()
	s.subscribe([]*listener{l})
	return nil
}

// close has add fail from now on.
func (s *subscriber) close() {
	s.life.Lock()
	defer s.life.Unlock()
	s.closed = true
}

// remove has the listener hear nothing more, and waits for the connection's
// goroutine to end if it was the last.
func (s *subscriber) remove(l *listener) {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	if !s.listeners[l] {
		s.mu.Unlock()
		return
	}
	delete(s.listeners, l)
	channels, patterns := s.unheard(l)
	stop, done := s.stop, s.done
	last := len(s.listeners) == 0
	if last {
		s.stop = nil
	}
	s.mu.Unlock()
	if last {
		stop()
		s.write.Lock()
		if s.conn != nil {
			_ = s.conn.Ping("") // has the receiver look up; it may be gone already
			redisconn.Interrupt(s.conn.Conn)
		}
		s.write.Unlock()
		<-done
		return
	}
	s.write.Lock()
	defer s.write.Unlock()
	if s.conn == nil {
		return
	}
	// When sending fails, the receiver notices.
	if len(channels) > 0 {
		_ = s.conn.Unsubscribe(channels...)
	}
	if len(patterns) > 0 {
		_ = s.conn.PUnsubscribe(patterns...)
	}
}

// unheard forgets what the listener hears, and returns what only it heard. s.mu
// is held.
func (s *subscriber) unheard(l *listener) (channels, patterns []any) {
	for _, c := range l.channels {
		if s.forget(c, l) {
			channels = append(channels, c)
		}
	}
	for _, c := range l.patterns {
		if s.forget(c, l) {
			patterns = append(patterns, c)
		}
	}
	return channels, patterns
}

func (s *subscriber) forget(name string, l *listener) (last bool) {
	// A copy, since dispatch may be going through the old one.
	rest := slices.DeleteFunc(slices.Clone(s.hear[name]), func(o *listener) bool { return o == l })
	if len(rest) > 0 {
		s.hear[name] = rest
		return false
	}
	delete(s.hear, name)
	return true
}

// subscribe asks for what the listeners hear. Redis confirms each name, also
// when it was asked for before. s.write is held.
func (s *subscriber) subscribe(ls []*listener) {
	if s.conn == nil {
		return // the next connection asks for all
	}
	for _, l := range ls {
		// When sending fails, the receiver notices.
		if len(l.patterns) > 0 {
			_ = s.conn.PSubscribe(anys(l.patterns)...)
		}
		if len(l.channels) > 0 {
			_ = s.conn.Subscribe(anys(l.channels)...)
		}
	}
}

func anys(names []string) []any {
	as := make([]any, len(names))
	for i, n := range names {
		as[i] = n
	}
	return as
}

// run keeps a connection until ctx ends.
func (s *subscriber) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	retry := newBackoff()
	for {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		s.upset.about(s.log, "not subscribed; work and cancels are noticed with the next beat", err)
		for _, l := range s.all() {
			if l.failed != nil {
				l.failed(err)
			}
		}
		pause := retry.next()
		if _, ok := errors.AsType[redis.Error](err); ok {
			pause = refused
		} else if time.Since(began) > deadAfter {
			retry.reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (s *subscriber) all() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	ls := make([]*listener, 0, len(s.listeners))
	for l := range s.listeners {
		ls = append(ls, l)
	}
	return ls
}

// session is the life of one connection. It always ends with an error.
func (s *subscriber) session(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, deadAfter)
	defer cancel()
	c, err := s.dial(dialing)
	if err != nil {
		return err
	}
	conn := &redis.PubSubConn{Conn: c}
	s.write.Lock()
	s.conn = conn
	s.subscribe(s.all())
	s.write.Unlock()

	pinging := make(chan struct{})
	defer func() {
		close(pinging)
		s.write.Lock()
		s.conn = nil
		s.write.Unlock()
		_ = c.Close() // nothing is expected of it any more
	}()
	go s.ping(conn, pinging)

	for ctx.Err() == nil {
		switch m := conn.ReceiveWithTimeout(deadAfter).(type) {
		case redis.Message:
			s.dispatch(m)
		case redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				s.upset.about(s.log, "not subscribed; work and cancels are noticed with the next beat", nil)
				s.confirmed(m.Channel)
			}
		case error:
			return m
		}
	}
	return ctx.Err()
}

// ping has a dead connection noticed.
func (s *subscriber) ping(conn *redis.PubSubConn, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(pingEvery):
		}
		s.write.Lock()
		if s.conn == conn {
			_ = conn.Ping("") // the receiver notices
		}
		s.write.Unlock()
	}
}

// hearing returns who hears a channel or a pattern.
func (s *subscriber) hearing(name string) []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hear[name]
}

func (s *subscriber) dispatch(m redis.Message) {
	for _, l := range s.hearing(cmp.Or(m.Pattern, m.Channel)) {
		l.message(m.Channel, m.Data)
	}
}

// confirmed tells the listeners whose last name this is. Redis confirms in the
// order of the requests.
func (s *subscriber) confirmed(name string) {
	for _, l := range s.hearing(name) {
		if names := append(l.patterns[:len(l.patterns):len(l.patterns)], l.channels...); name == names[len(names)-1] {
			l.synced()
		}
	}
}

// listen has the rounds hear of work and cancels.
func (r *rounds) listen() {
	k := r.queue.keys
	wake, work, cancel := k.Wake(r.worker), k.Channel(keys.KindWork), k.Channel(keys.KindCancel)
	r.ear = &listener{
		channels: []string{work, cancel, wake},
		synced:   r.resync,
		message: func(channel string, data []byte) {
			switch channel {
			case wake:
				r.hear("wake", data)
			case work:
				r.hear(keys.KindWork, data)
			case cancel:
				r.hear(keys.KindCancel, data)
			}
		},
	}
	_ = r.queue.peer.sub.add(r.ear) // a closed peer has no worker
}

func (r *rounds) unlisten() {
	if r.ear != nil {
		r.queue.peer.sub.remove(r.ear)
	}
}

// hear takes in a message from a channel of the queue.
func (r *rounds) hear(kind keys.Kind, message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case "wake":
		r.look = true
	case keys.KindWork:
		// From a producer that only pushes and publishes. Everybody hears it;
		// the worker that was longest idle answers for all.
		r.look = r.look || time.Now().Before(r.listens)
	case keys.KindCancel:
		if len(r.held) == 0 && r.silence == nil {
			return
		}
		r.cancels.hear(message, r.held)
		r.look = true
	}
	r.kick()
}

// resync follows a confirmed subscription: messages may have been missed.
func (r *rounds) resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look = true
	r.kick()
}
