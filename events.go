package worqr

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/worqr/worqr/internal/keys"
)

// An EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	// EventSync: from here on no event is missed, until the next EventSync. It
	// comes first, and after any gap; look for yourself what you have missed.
	EventSync EventKind = "sync"
	// EventWork: Count tasks were enqueued, by one call or by several that
	// travelled together.
	EventWork EventKind = "work"
	// EventDone: Worker has finished a task. An observer that is connected to a
	// replica may miss all but the first of those that end together.
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
		if err := p.sub.add(l); err != nil {
			yield(Event{}, wrap("events", err))
			return
		}
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
	told := "" // of what failed since the last sync; one goroutine calls both
	l := &listener{
		synced: func() {
			told = ""
			in.put(item{event: Event{Kind: EventSync}})
		},
		failed: func(err error) {
			if is := gist(err); is != told {
				told = is
				in.put(item{err: err})
			}
		},
		message: func(channel string, data []byte) {
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
