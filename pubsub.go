package worqr

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

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

	life sync.Mutex // held while the connection's goroutine is started or stopped

	mu        sync.Mutex // protects the fields below
	listeners map[*listener]bool
	stop      context.CancelFunc // nil while nobody listens
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
	return &subscriber{dial: dial, log: log, listeners: map[*listener]bool{}}
}

// add has the listener hear. It does not block on Redis; synced tells.
func (s *subscriber) add(l *listener) {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	s.listeners[l] = true
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
		return
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.subscribe([]*listener{l})
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

// unheard returns what only l heard. s.mu is held.
func (s *subscriber) unheard(l *listener) (channels, patterns []any) {
	for _, c := range l.channels {
		heard := false
		for o := range s.listeners {
			heard = heard || slices.Contains(o.channels, c)
		}
		if !heard {
			channels = append(channels, c)
		}
	}
	for _, c := range l.patterns {
		heard := false
		for o := range s.listeners {
			heard = heard || slices.Contains(o.patterns, c)
		}
		if !heard {
			patterns = append(patterns, c)
		}
	}
	return channels, patterns
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

func (s *subscriber) dispatch(m redis.Message) {
	for _, l := range s.all() {
		if m.Pattern == "" && slices.Contains(l.channels, m.Channel) || m.Pattern != "" && slices.Contains(l.patterns, m.Pattern) {
			l.message(m.Channel, m.Data)
		}
	}
}

// confirmed tells the listeners whose last name this is. Redis confirms in the
// order of the requests.
func (s *subscriber) confirmed(name string) {
	for _, l := range s.all() {
		last := ""
		if len(l.channels) > 0 {
			last = l.channels[len(l.channels)-1]
		} else if len(l.patterns) > 0 {
			last = l.patterns[len(l.patterns)-1]
		}
		if name == last {
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
	r.queue.peer.sub.add(r.ear)
}

func (r *rounds) unlisten() {
	if r.ear != nil {
		r.queue.peer.sub.remove(r.ear)
	}
}

// An EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	// EventSync: from here on no event is missed, until the next EventSync. It
	// comes first, and after any gap; look for yourself what you have missed.
	EventSync EventKind = "sync"
	// EventWork: Count tasks were enqueued.
	EventWork EventKind = "work"
	// EventDone: Worker has finished a task.
	EventDone EventKind = "done"
	// EventCancel: a payload was canceled.
	EventCancel EventKind = "cancel"
	// EventDelete: the queue was deleted.
	EventDelete EventKind = "delete"
)

// An Event is something that happened on a queue.
type Event struct {
	Kind    EventKind
	Queue   string // "" for EventSync
	Worker  string // of EventDone
	Payload []byte // of EventDone and EventCancel
	Result  []byte // of EventDone; nil if there is none
	Count   int    // of EventWork
}

// eventBuffer is how many events wait for a slow reader. With more, they are
// dropped and the reader is told by EventSync.
const eventBuffer = 1024

// Events yields what happens on the named queues, or on all when none is named.
// The first is EventSync, once subscribed: everything published after it is
// yielded, or another EventSync follows. While Redis cannot be reached each new
// error is yielded once; the loop may go on. It ends when ctx ends. Leaving the
// loop unsubscribes.
//
// Events are hints for people and tools: they are not stored, and one that is
// missed does not come again.
func (p *Peer) Events(ctx context.Context, queues ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		l, inbox, err := p.listener(queues)
		if err != nil {
			yield(Event{}, wrap("events", err))
			return
		}
		p.sub.add(l)
		defer p.sub.remove(l)
		for {
			select {
			case <-ctx.Done():
				return
			case <-inbox.some:
			}
			for _, e := range inbox.take() {
				if ctx.Err() != nil || !yield(e.event, wrap("events", e.err)) {
					return
				}
			}
		}
	}
}

// listener returns a listener for all events of the queues, and its inbox.
func (p *Peer) listener(queues []string) (*listener, *inbox, error) {
	if p.bad != nil {
		return nil, nil, p.bad
	}
	in := &inbox{some: make(chan struct{}, 1)}
	l := &listener{
		synced: func() { in.put(item{event: Event{Kind: EventSync}}) },
		failed: func(err error) { in.put(item{err: err}) },
		message: func(channel string, data []byte) {
			if e, ok := p.event(channel, data); ok {
				in.put(item{event: e})
			}
		},
	}
	kinds := []keys.Kind{keys.KindWork, keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete}
	for _, name := range queues {
		q := p.Queue(name)
		if q.bad != nil {
			return nil, nil, q.bad
		}
		for _, k := range kinds {
			l.channels = append(l.channels, q.keys.Channel(k))
		}
	}
	if len(queues) == 0 {
		for _, k := range kinds {
			l.patterns = append(l.patterns, p.space.Pattern(k))
		}
	}
	return l, in, nil
}

// event reads a message. Producers in other languages publish too, so what
// cannot be read is passed over.
func (p *Peer) event(channel string, data []byte) (Event, bool) {
	queue, kind, ok := p.space.ParseChannel(channel)
	e := Event{Queue: queue}
	switch kind {
	case keys.KindWork, keys.KindEnqueue:
		e.Kind = EventWork
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		e.Count = n
		ok = ok && err == nil
	case keys.KindDone:
		e.Kind = EventDone
		var err error
		e.Worker, e.Payload, e.Result, err = readDone(data)
		ok = ok && err == nil
	case keys.KindCancel:
		e.Kind, e.Payload = EventCancel, data
	case keys.KindDelete:
		e.Kind = EventDelete
	default:
		ok = false
	}
	return e, ok
}

// readDone reads the message of a finished task. Redis writes the bytes of a
// payload into it as they are, so where they are not UTF-8, neither is the
// message: then each byte is read as the character of the same number.
func readDone(data []byte) (worker string, payload, result []byte, err error) {
	var m struct {
		WorkerID string  `json:"workerId"`
		Task     string  `json:"task"`
		Result   *string `json:"result"`
	}
	bytesOf := func(s string) []byte { return []byte(s) }
	if !utf8.Valid(data) {
		var wide bytes.Buffer
		for _, b := range data {
			wide.WriteRune(rune(b))
		}
		data = wide.Bytes()
		bytesOf = func(s string) []byte {
			narrow := make([]byte, 0, len(s))
			for _, r := range s {
				narrow = append(narrow, byte(r))
			}
			return narrow
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return "", nil, nil, fmt.Errorf("a done message cannot be read: %w", err)
	}
	if m.Result != nil {
		result = bytesOf(*m.Result)
	}
	return m.WorkerID, bytesOf(m.Task), result, nil
}

// An inbox holds what a reader has still to read.
type inbox struct {
	some chan struct{} // has an element when there are items

	mu    sync.Mutex // protects the fields below
	items []item
}

type item struct {
	event Event
	err   error
}

func (in *inbox) put(i item) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case i.err != nil && len(in.items) > 0 && in.items[len(in.items)-1].err != nil:
		in.items[len(in.items)-1] = i
	case len(in.items) >= eventBuffer:
		in.items = append(in.items[:0:0], item{event: Event{Kind: EventSync}}, i)
	default:
		in.items = append(in.items, i)
	}
	select {
	case in.some <- struct{}{}:
	default:
	}
}

func (in *inbox) take() []item {
	in.mu.Lock()
	defer in.mu.Unlock()
	items := in.items
	in.items = nil
	return items
}
