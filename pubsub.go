package worqr

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/inbox"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Events yields what happens on the named queues, or on all, beginning with EventSync. While Redis
// can't be reached or refuses a channel, it yields an error, and the loop may continue. It ends
// when ctx ends or the peer is closed. Events aren't stored. For clusters, see docs/guarantees.md.
func (p *Peer) Events(ctx context.Context, queues ...string) iter.Seq2[inspect.Event, error] {
	return func(yield func(inspect.Event, error) bool) {
		events, stop, err := p.observe(queues)
		if err != nil {
			yield(inspect.Event{}, wrap("events", err))
			return
		}
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-events.Some:
			}
			for _, e := range events.Take() {
				if ctx.Err() != nil || !yield(e.Event, wrap("events", e.Err)) || e.Last {
					return
				}
			}
		}
	}
}

// observe subscribes to all events of the queues, and returns the inbox for them.
func (p *Peer) observe(queues []string) (_ *inbox.Inbox, stop func(), err error) {
	if p.bad != nil {
		return nil, nil, p.bad
	}
	h := &hearing{peer: p, inbox: inbox.New(queues)}
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
	p.inboxes.Add(h.inbox)
	ctx, end := context.WithCancel(context.Background())
	go h.follow(ctx)
	return h.inbox, func() { p.inboxes.Remove(h.inbox); end() }, nil
}

// A hearing is one reader's subscription: its queues, and their known parts.
type hearing struct {
	peer   *Peer
	inbox  *inbox.Inbox
	queues []*Queue
	told   atomic.Value // the last error since the last sync; in a cluster each node reports it

	// Owned by follow.
	heard  map[store.Keys]bool
	synced chan struct{} // holds a value once everything is subscribed
	stop   func()
}

// parts returns the queues and all their parts, including those that only other peers use.
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
		Closed: func() { h.inbox.Put(inbox.Item{Err: store.ErrClosed, Last: true}) },
		Message: func(m store.Message) {
			if e := eventOf(m); !repeated(e, m.Queue) {
				h.inbox.Put(inbox.Item{Event: e})
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
		h.inbox.Put(inbox.Item{Err: err})
	}
}

// readParts is the interval between reads of the queues' part counts.
const readParts = 10 * time.Second

// follow subscribes to new parts until ctx ends. The reader gets an EventSync once all parts are
// subscribed.
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
			if failures++; failures > 2 { // fewer may just be a cut connection, which the subscription reports
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
			h.inbox.Put(inbox.Item{Event: inspect.Event{Kind: inspect.EventSync}})
		}
		failures = 0
		retry.Reset()
	}
}

// look reads how many parts the queues have. If some of them aren't subscribed to, it subscribes
// again. If it can't read that number, it includes only the parts of this peer's own spreads.
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
	if err = h.begin(parts); err != nil { // the peer was closed in the meantime
		h.inbox.Put(inbox.Item{Err: err, Last: true})
	}
	return true, err
}

// repeated reports whether a part repeats an event of the whole queue: a cancel or delete is
// published on all parts, and one of them is the plain queue.
func repeated(e inspect.Event, of string) bool {
	return of != e.Queue && (e.Kind == inspect.EventCancel || e.Kind == inspect.EventDelete)
}

func eventOf(m store.Message) inspect.Event {
	return inspect.Event{Kind: inspect.EventKind(m.Kind), Queue: store.Whole(m.Queue), WorkerID: m.WorkerID, Payload: m.Payload, Result: m.Result, Count: m.Count,
		PayloadSize: m.PayloadSize, ResultSize: m.ResultSize, PayloadDigest: m.PayloadDigest, ResultDigest: m.ResultDigest}
}
