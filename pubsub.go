package worqr

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"

	"github.com/worqr/worqr/internal/store"
)

// An EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	// EventSync comes first and after each gap: no event is missed until the next EventSync.
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
// When many tasks end at once, EventDone may do the same with smaller ones, without a
// digest above 1 KiB.
type Event struct {
	Kind     EventKind
	Queue    string // "" for EventSync
	WorkerID string // of EventDone
	Payload  []byte // of EventDone and EventCancel; nil if it's large
	Result   []byte // of EventDone; nil if there is none or it's large
	Count    int    // of EventWork

	// Sizes in bytes. Digests are SHA-1 in hex, of large values only, and may be missing.
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

// Events yields what happens on the named queues, or on all if none is named, beginning
// with EventSync. While Redis can't be reached, or refuses a channel, it yields an error,
// and the loop may continue. It ends when ctx ends, and after Close. Events aren't stored.
func (p *Peer) Events(ctx context.Context, queues ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		inbox, stop, err := p.observe(queues)
		if err != nil {
			yield(Event{}, wrap("events", err))
			return
		}
		defer stop()
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

// observe subscribes to all events of the queues, and returns the inbox for them.
func (p *Peer) observe(queues []string) (_ *inbox, stop func(), err error) {
	if p.bad != nil {
		return nil, nil, p.bad
	}
	var of []store.Keys
	for _, name := range slices.Compact(slices.Sorted(slices.Values(queues))) {
		q := p.Queue(name)
		if q.bad != nil {
			return nil, nil, q.bad
		}
		of = append(of, q.keys)
	}
	in := &inbox{some: make(chan struct{}, 1)}
	told := "" // of what failed since the last sync; one goroutine calls both
	stop, err = p.lines.Observe(p.space, of, store.Observer{
		Synced: func() {
			told = ""
			in.put(item{event: Event{Kind: EventSync}})
		},
		Failed: func(err error, gist string) {
			if gist != told {
				told = gist
				in.put(item{err: err})
			}
		},
		Closed:  func() { in.put(item{err: store.ErrClosed, last: true}) },
		Message: func(m store.Message) { in.put(item{event: eventOf(m)}) },
	})
	return in, stop, err
}

func eventOf(m store.Message) Event {
	return Event{Kind: EventKind(m.Kind), Queue: m.Queue, WorkerID: m.WorkerID, Payload: m.Payload, Result: m.Result, Count: m.Count,
		PayloadSize: m.PayloadSize, ResultSize: m.ResultSize, PayloadDigest: m.PayloadDigest, ResultDigest: m.ResultDigest}
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
