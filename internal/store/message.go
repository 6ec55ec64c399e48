package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

// ReadMessage reads a message. Producers in other languages publish too, so it skips what it
// can't read.
func ReadMessage(s Space, channel string, data []byte) (inspect.Event, bool) {
	queue, kind, ok := s.ParseChannel(channel)
	m := inspect.Event{Queue: queue, Kind: inspect.EventKind(kind)}
	var err error
	switch kind {
	case keys.KindWork, keys.KindEnqueue:
		m.Kind = inspect.EventWork
		m.Count, err = strconv.Atoi(strings.TrimSpace(string(data)))
	case keys.KindDone:
		err = readDone(&m, data)
	case keys.KindCancel:
		payload, digest, size := ReadCancel(data)
		if m.Payload, m.PayloadSize = payload, size; payload == nil {
			m.PayloadDigest = digest
		}
	case keys.KindDelete:
	default:
		return m, false
	}
	return m, ok && err == nil
}

// readDone reads the message of a finished task. Redis writes the bytes of a
// payload into it unchanged. If they aren't UTF-8, neither is the
// message: then each byte is read as the character with that code point.
func readDone(m *inspect.Event, data []byte) error {
	var of struct {
		WorkerID   string  `json:"workerId"`
		Task       *string `json:"task"`
		TaskSize   int     `json:"taskSize"`
		Result     *string `json:"result"`
		ResultSize int     `json:"resultSize"`
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
	if err := json.Unmarshal(data, &of); err != nil {
		return fmt.Errorf("a done message can't be read: %w", err)
	}
	m.WorkerID, m.PayloadSize, m.ResultSize = of.WorkerID, of.TaskSize, of.ResultSize
	if of.Task != nil {
		m.Payload = bytesOf(*of.Task)
		m.PayloadSize = len(m.Payload)
	}
	if of.Result != nil {
		m.Result = bytesOf(*of.Result)
		m.ResultSize = len(m.Result)
	}
	return nil
}

// An Observer receives messages, on one goroutine per cluster node. Its functions must not block.
type Observer struct {
	Message func(inspect.Event)
	Synced  func()                       // subscribed, at first and after every gap
	Failed  func(err error, gist string) // there is a gap, or a channel is refused; the gist stays the same when that repeats
	Closed  func()                       // there will be no more messages
}

// observed are the kinds of messages that observers receive.
var observed = []keys.Kind{keys.KindWork, keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete}

// Observe passes all messages about some queues to an observer, or about all if none
// is given, until stop is called.
func (l *Lines) Observe(s Space, queues []Keys, o Observer) (stop func(), err error) {
	if s.Scattered() {
		return l.watch(s, queues, o)
	}
	of := observing(s, o)
	for _, k := range observed {
		if len(queues) == 0 {
			of.Topics = append(of.Topics, redisconn.Topic{Name: s.Pattern(k), Pattern: true})
		}
		for _, q := range queues {
			of.Topics = append(of.Topics, redisconn.Topic{Name: q.Channel(k)})
		}
	}
	return func() { l.Sub.Remove(of) }, l.Sub.AddAll(of)
}

// observing returns a subscription for an observer, without its topics.
func observing(s Space, o Observer) *redisconn.Subscription {
	return &redisconn.Subscription{
		Synced: o.Synced, Closed: o.Closed,
		Failed: func(err error) {
			gist := logs.Gist(err)
			if refused, ok := errors.AsType[*redisconn.RefusalError](err); ok {
				gist = logs.Gist(refused.Err)
			}
			o.Failed(err, gist)
		},
		Message: func(channel string, data []byte) {
			if m, ok := ReadMessage(s, channel, data); ok {
				o.Message(m)
			}
		},
	}
}

// A watch observes queues of a cluster, each on its node. If it observes all queues, it reads the
// list of queues once in a while, and after each gap.
type watch struct {
	lines *Lines
	space Space
	o     Observer
	ctx   context.Context // of reading the list of queues
	end   context.CancelFunc
	turn  chan struct{} // a signal to read the list of queues now; holds one
	named bool          // queues were given

	mu     sync.Mutex // protects the fields below. All functions of the observer but Message are called under it
	all    map[string]*post
	listed bool // the list of queues was read since the last gap; true if queues were given
	ended  bool
}

// A post is one subscription of a watch.
type post struct {
	of     *redisconn.Subscription
	synced bool // it is subscribed, as far as the watch knows
}

// readQueues is how often the list of queues is read again.
const readQueues = 10 * time.Second

// everywhere is the name of the post for messages that all nodes pass on.
const everywhere = ""

// watch is Observe in a cluster.
func (l *Lines) watch(s Space, queues []Keys, o Observer) (stop func(), err error) {
	w := &watch{lines: l, space: s, o: o, turn: make(chan struct{}, 1), all: map[string]*post{}, named: len(queues) > 0, listed: len(queues) > 0}
	w.ctx, w.end = context.WithCancel(context.Background())
	posts := map[string]Keys{}
	for _, q := range queues {
		posts[q.Waiting()] = q
	}
	if !w.named {
		posts[everywhere] = Keys{}
	}
	w.mu.Lock()
	err = w.postLocked(posts)
	w.mu.Unlock()
	if err != nil {
		w.stop()
		return nil, err
	}
	if !w.named {
		go w.read()
	}
	return w.stop, nil
}

// postLocked subscribes to queues, and ends the subscriptions of all others.
func (w *watch) postLocked(queues map[string]Keys) error {
	for name, q := range queues {
		if w.all[name] != nil {
			continue
		}
		p := &post{}
		p.of = w.subscription(name, q, p)
		w.all[name] = p
		add := func() error { return w.lines.Sub.Add(q, p.of) }
		if name == everywhere {
			add = func() error { return w.lines.Sub.AddAll(p.of) }
		}
		if err := add(); err != nil {
			return err
		}
	}
	for name, p := range w.all {
		if _, there := queues[name]; !there {
			w.lines.Sub.Remove(p.of)
			delete(w.all, name)
		}
	}
	return nil
}

// subscription returns the subscription of a post.
func (w *watch) subscription(name string, q Keys, p *post) *redisconn.Subscription {
	of := observing(w.space, w.o)
	for _, k := range observed {
		switch {
		case name == everywhere: // messages that aren't published by scripts
			of.Topics = append(of.Topics, redisconn.Topic{Name: w.space.Pattern(k), Pattern: true})
		case w.named:
			of.Topics = append(of.Topics, topics(q, q.Channel(k))...)
		default:
			of.Topics = append(of.Topics, redisconn.Topic{Name: q.Channel(k), Sharded: true})
		}
	}
	failed, closed := of.Failed, of.Closed
	of.Synced = func() { w.synced(name, p) }
	of.Moved = func(redisconn.Topic, string) { w.gap(p, false, nil) }
	of.Failed = func(err error) {
		_, refused := errors.AsType[*redisconn.RefusalError](err) // one channel was refused: the others work
		w.gap(p, refused, func() { failed(err) })
	}
	of.Closed = func() { w.closed(closed) }
	return of
}

// synced records that a post is subscribed. Once all are, it notifies the observer.
func (w *watch) synced(name string, p *post) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.synced = true
	if name == everywhere {
		w.listed = false // queues may have been added in the meantime
		select {
		case w.turn <- struct{}{}:
		default:
		}
		return
	}
	w.tellLocked()
}

func (w *watch) tellLocked() {
	if w.ended || !w.listed {
		return
	}
	for _, p := range w.all {
		if !p.synced {
			return
		}
	}
	w.o.Synced()
}

// gap records that a post lost its subscription, unless still is true, and notifies the observer.
func (w *watch) gap(p *post, still bool, tell func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.synced = p.synced && still
	if tell != nil && !w.ended {
		tell()
	}
}

// closed records that the connections are closed, and notifies the observer once.
func (w *watch) closed(tell func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		w.end()
		tell()
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.end()
	for _, p := range w.all {
		w.lines.Sub.Remove(p.of)
	}
	clear(w.all)
}

// read reads the list of queues until the watch ends.
func (w *watch) read() {
	retry := NewBackoff()
	for {
		next := readQueues
		if err := w.look(); err != nil {
			next = retry.Next()
		} else {
			retry.Reset()
		}
		select {
		case <-w.ctx.Done():
			return
		case <-w.turn:
		case <-time.After(next):
		}
	}
}

// look reads the list of queues, and subscribes to each of them.
func (w *watch) look() error {
	w.mu.Lock()
	there := w.all[everywhere] != nil && w.all[everywhere].synced
	w.mu.Unlock()
	if !there {
		return nil // once it's synced, synced signals turn
	}
	ctx, cancel := context.WithTimeout(w.ctx, readQueues)
	defer cancel()
	queues := map[string]Keys{everywhere: {}}
	for name, err := range Queues(ctx, w.lines.Calls, w.space) {
		if err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.ended {
				w.o.Failed(err, logs.Gist(err))
			}
			return err
		}
		queues[name] = w.space.Queue(name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	first := !w.listed
	w.listed = true
	if err := w.postLocked(queues); err != nil {
		return err
	}
	if first {
		w.tellLocked() // new posts notify the observer once they are synced
	}
	return nil
}
