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
	"unicode/utf8"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// An EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	// EventSync comes first and after each gap: from here on nothing is missed until the next.
	EventSync EventKind = "sync"
	// EventWork: Count tasks were enqueued, by one call or several.
	EventWork EventKind = "work"
	// EventDone: a worker finished a task. Retries and failures publish nothing.
	EventDone EventKind = "done"
	// EventCancel: a payload was canceled. CancelKey publishes nothing.
	EventCancel EventKind = "cancel"
	// EventDelete: the queue was deleted.
	EventDelete EventKind = "delete"
)

// An Event is something that happened on a queue. Payloads above 64 KiB (above 1 KiB for
// EventCancel) and results above the worker's Options.MaxResult come as size and digest.
type Event struct {
	Kind     EventKind
	Queue    string // "" for EventSync
	WorkerID string // of EventDone
	Payload  []byte // of EventDone and EventCancel; nil if it's large
	Result   []byte // of EventDone; nil if there is none or it's large
	Count    int    // of EventWork

	// In bytes, and SHA-1 in hex of what is large; it may be missing.
	PayloadSize, ResultSize     int
	PayloadDigest, ResultDigest string
}

// eventBuffer is how many events wait for a slow reader, and eventBytes how many bytes
// of what others put into them, but for one event. With more, they are dropped and the reader
// is told by EventSync.
const (
	eventBuffer = 1024
	eventBytes  = 16 << 20
)

// Events yields what happens on the named queues, or on all if none is named, beginning with
// EventSync. While Redis can't be reached, or refuses a channel, it yields that as an error,
// and the loop may go on. It ends when ctx ends, and after Close. Events aren't stored.
func (p *Peer) Events(ctx context.Context, queues ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		l, inbox, err := p.subscription(queues)
		if err != nil {
			yield(Event{}, wrap("events", err))
			return
		}
		if err := p.lines.Sub.Add(l); err != nil {
			yield(Event{}, wrap("events", err))
			return
		}
		defer p.lines.Sub.Remove(l)
		for {
			select {
			case <-ctx.Done():
				return
			case <-inbox.some:
			}
			for _, e := range inbox.take() {
				if ctx.Err() != nil || !yield(e.event, wrap("events", e.err)) || e.last {
					return
				}
			}
		}
	}
}

// subscription returns one for all events of the queues, and its inbox.
func (p *Peer) subscription(queues []string) (*redisconn.Subscription, *inbox, error) {
	if p.bad != nil {
		return nil, nil, p.bad
	}
	in := &inbox{some: make(chan struct{}, 1)}
	told := "" // of what failed since the last sync; one goroutine calls both
	l := &redisconn.Subscription{
		Synced: func() {
			told = ""
			in.put(item{event: Event{Kind: EventSync}})
		},
		Failed: func(err error) {
			is := logs.Gist(err)
			if refused, ok := errors.AsType[*redisconn.RefusalError](err); ok {
				is = logs.Gist(refused.Err)
			}
			if is != told {
				told = is
				in.put(item{err: err})
			}
		},
		Closed: func() { in.put(item{err: redisconn.ErrClosed, last: true}) },
		Message: func(channel string, data []byte) {
			if e, ok := p.event(channel, data); ok {
				in.put(item{event: e})
			}
		},
	}
	kinds := []keys.Kind{keys.KindWork, keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(queues))) {
		q := p.Queue(name)
		if q.bad != nil {
			return nil, nil, q.bad
		}
		for _, k := range kinds {
			l.Topics = append(l.Topics, redisconn.Topic{Name: q.keys.Channel(k)})
		}
	}
	if len(queues) == 0 {
		for _, k := range kinds {
			l.Topics = append(l.Topics, redisconn.Topic{Name: p.space.Pattern(k), Pattern: true})
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
		err = e.readDone(data)
		ok = ok && err == nil
	case keys.KindCancel:
		e.Kind = EventCancel
		payload, digest, size := store.ReadCancel(data)
		if e.Payload, e.PayloadSize = payload, size; payload == nil {
			e.PayloadDigest = digest
		}
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
func (e *Event) readDone(data []byte) error {
	var m struct {
		WorkerID     string  `json:"workerId"`
		Task         *string `json:"task"`
		TaskSize     int     `json:"taskSize"`
		TaskDigest   string  `json:"taskDigest"`
		Result       *string `json:"result"`
		ResultSize   int     `json:"resultSize"`
		ResultDigest string  `json:"resultDigest"`
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
		return fmt.Errorf("a done message cannot be read: %w", err)
	}
	e.WorkerID, e.PayloadSize, e.PayloadDigest = m.WorkerID, m.TaskSize, m.TaskDigest
	if m.Task != nil {
		e.Payload = bytesOf(*m.Task)
		e.PayloadSize = len(e.Payload)
	}
	e.ResultSize, e.ResultDigest = m.ResultSize, m.ResultDigest
	if m.Result != nil {
		e.Result = bytesOf(*m.Result)
		e.ResultSize = len(e.Result)
	}
	return nil
}

// An inbox holds what a reader has still to read.
type inbox struct {
	some chan struct{} // has an element when there are items

	mu    sync.Mutex // protects the fields below
	items []item
	bytes int // of them
}

type item struct {
	event Event
	err   error
	last  bool
}

func (i *item) size() int {
	e := &i.event
	return len(e.Payload) + len(e.Result) + len(e.WorkerID) + len(e.PayloadDigest) + len(e.ResultDigest)
}

func (in *inbox) put(i item) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case i.err != nil && len(in.items) > 0 && in.items[len(in.items)-1].err != nil:
		in.items[len(in.items)-1] = i
	case len(in.items) >= eventBuffer, len(in.items) > 0 && in.bytes+i.size() > eventBytes:
		in.items = append(in.items[:0:0], item{event: Event{Kind: EventSync}}, i)
		in.bytes = i.size()
	default:
		in.items = append(in.items, i)
		in.bytes += i.size()
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
	in.items, in.bytes = nil, 0
	return items
}

// Format implements fmt.Formatter.
func (e Event) Format(s fmt.State, _ rune) { show(s, "event", e) }

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("kind", string(e.Kind)), slog.String("queue", e.Queue), slog.String("worker", e.WorkerID),
		slog.Int("bytes", e.PayloadSize), slog.Int("count", e.Count))
}
