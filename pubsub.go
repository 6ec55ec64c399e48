package worqr

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// An EventKind says what happened.
type EventKind string

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
	// EventLost: this peer noticed that Redis lost writes.
	EventLost EventKind = "lost"
)

// An Event is something that happened on a queue. Payloads above 64 KiB (1 KiB for EventCancel) and
// results above Options.MaxResult come as size and digest; so may smaller ones when many tasks end
// at once.
type Event struct {
	Kind     EventKind
	Queue    string // "" for EventSync
	WorkerID string // of EventDone
	Payload  []byte // of EventDone and EventCancel; nil if large
	Result   []byte // of EventDone; nil if large
	Count    int    // of EventWork
	Evidence string // of EventLost: how it shows

	// Sizes in bytes. Digests are SHA-1 in hex, of large values only, and may be missing.
	PayloadSize, ResultSize     int
	PayloadDigest, ResultDigest string
}

// eventBuffer is how many events wait for a slow reader, and eventBytes how many bytes they may
// have together; a single event may have more. Beyond that, the waiting events are dropped, and the
// reader gets an EventSync.
const (
	eventBuffer = 1024
	eventBytes  = 16 << 20
)

// Events yields what happens on the named queues, or on all, beginning with EventSync. While Redis
// can't be reached or refuses a channel, it yields an error, and the loop may continue. It ends
// with ctx or the peer. Events aren't stored. For clusters, see docs/guarantees.md.
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
	h := &hearing{peer: p, inbox: &inbox{some: make(chan struct{}, 1), queues: slices.Clone(queues)}}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(queues))) {
		q := p.Queue(name)
		if q.bad != nil {
			return nil, nil, q.bad
		}
		h.queues = append(h.queues, q)
	}
	if err := h.begin(h.parts(make([]int, len(h.queues)))); err != nil {
		return nil, nil, err
	}
	p.inboxes.add(h.inbox)
	ctx, end := context.WithCancel(context.Background())
	go h.follow(ctx)
	return h.inbox, func() { p.inboxes.remove(h.inbox); end() }, nil
}

// A hearing is one reader's subscription: its queues, and the parts of them that are known.
type hearing struct {
	peer   *Peer
	inbox  *inbox
	queues []*Queue
	told   atomic.Value // the last error since the last sync; in a cluster each node reports it

	// Owned by follow.
	heard  map[store.Keys]bool
	synced chan struct{} // has an element once everything is subscribed
	stop   func()
}

// parts returns the queues, and all their parts, whether this peer has spread them or others.
func (h *hearing) parts(others []int) map[store.Keys]bool {
	all := map[store.Keys]bool{}
	for i, q := range h.queues {
		for _, n := range append(h.peer.spreads.Of(q.name), others[i]) {
			for _, part := range q.with(n) {
				all[part.keys] = true
			}
		}
	}
	return all
}

// begin subscribes to queues and parts.
func (h *hearing) begin(parts map[store.Keys]bool) error {
	h.heard = parts
	synced := make(chan struct{}, 1)
	stop, err := h.peer.lines.Observe(h.peer.space, slices.Collect(maps.Keys(h.heard)), store.Observer{
		Synced: func() {
			select {
			case synced <- struct{}{}:
			default:
			}
		},
		Failed: h.failed,
		Closed: func() { h.inbox.put(item{err: store.ErrClosed, last: true}) },
		Message: func(m store.Message) {
			if e := eventOf(m); !repeated(e, m.Queue) {
				h.inbox.put(item{event: e})
			}
		},
	})
	if err == nil {
		h.synced, h.stop = synced, stop
	}
	return err
}

func (h *hearing) failed(err error, gist string) {
	if h.told.Swap(gist) != gist {
		h.inbox.put(item{err: err})
	}
}

// readParts is how often the numbers of parts are read.
const readParts = 10 * time.Second

// follow also subscribes to new parts, until ctx ends. The reader gets an EventSync once no part is
// missing.
func (h *hearing) follow(ctx context.Context) {
	defer func() { h.stop() }()
	synced, failures, retry := false, 0, store.NewBackoff()
	next := time.NewTimer(readParts)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.synced:
			synced = true
		case <-next.C:
		}
		next.Reset(readParts)
		more, err := h.look(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			if failures++; failures > 2 { // before that, a cut connection, which the subscription reports
				h.failed(err, logs.Gist(err))
			}
			next.Reset(retry.Next())
			continue
		case err != nil:
		case more: // another sync follows
			synced = false
		case synced:
			synced = false
			h.told.Store("")
			h.inbox.put(item{event: Event{Kind: EventSync}})
		}
		failures = 0
		retry.Reset()
	}
}

// look reads how many parts the queues have. If some of them aren't subscribed to, it subscribes
// again. Where that number can't be read, only the parts of this peer's own spreads are included.
func (h *hearing) look(ctx context.Context) (more bool, err error) {
	others := make([]int, len(h.queues))
	for i, q := range h.queues {
		if others[i], err = store.SpreadOver(ctx, h.peer.calls, h.peer.space, q.name); err != nil {
			return false, err
		}
	}
	parts := h.parts(others)
	for part := range parts {
		more = more || !h.heard[part]
	}
	if !more {
		return false, nil
	}
	h.stop()
	return true, h.begin(parts)
}

// repeated reports whether a part repeats an event of the whole queue: a cancel and a delete concern
// all parts, and one of them is the plain queue.
func repeated(e Event, of string) bool {
	return of != e.Queue && (e.Kind == EventCancel || e.Kind == EventDelete)
}

func eventOf(m store.Message) Event {
	return Event{Kind: EventKind(m.Kind), Queue: store.Whole(m.Queue), WorkerID: m.WorkerID, Payload: m.Payload, Result: m.Result, Count: m.Count,
		PayloadSize: m.PayloadSize, ResultSize: m.ResultSize, PayloadDigest: m.PayloadDigest, ResultDigest: m.ResultDigest}
}

// inboxes are the inboxes of all readers, for events that the peer itself notices.
type inboxes struct {
	mu  sync.Mutex
	all map[*inbox]bool // protected by mu
}

func (s *inboxes) add(in *inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*inbox]bool{}
	}
	s.all[in] = true
}

func (s *inboxes) remove(in *inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, in)
}

// lost tells the readers of a queue that Redis has lost writes.
func (s *inboxes) lost(queue, sign string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for in := range s.all {
		if len(in.queues) == 0 || slices.Contains(in.queues, queue) {
			in.put(item{event: Event{Kind: EventLost, Queue: queue, Evidence: sign}})
		}
	}
}

// An inbox holds the events that a reader hasn't read yet.
type inbox struct {
	some   chan struct{} // has an element when there are items
	queues []string      // none means all

	mu     sync.Mutex // protects the fields below
	items  []item
	bytes  int // of items
	synced bool
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
	case i.event.Kind == EventSync:
		in.synced = true
	case i.err == nil && !in.synced:
		return // EventSync comes first; in a cluster, some nodes send before all are subscribed
	}
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

func (e Event) Format(s fmt.State, _ rune) { show(s, "event", e) }

func (e Event) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("kind", string(e.Kind)), slog.String("queue", e.Queue), slog.String("worker", e.WorkerID),
		slog.Int("bytes", e.PayloadSize), slog.Int("count", e.Count), slog.String("evidence", e.Evidence))
}
