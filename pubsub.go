package worqr

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/inbox"
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
func (p *Peer) observe(queues []string) (_ *inbox.Inbox, stop func(), _ error) {
	if p.bad != nil {
		return nil, nil, p.bad
	}
	var some []store.Keys
	for _, name := range slices.Compact(slices.Sorted(slices.Values(queues))) {
		q := p.Queue(name)
		if q.bad != nil {
			return nil, nil, q.bad
		}
		some = append(some, q.keys)
	}
	events := inbox.New(queues)
	var told atomic.Value // the last error since the last sync; in a cluster each node reports it
	unobserve, err := p.lines.Observe(p.space, some, store.Observer{
		Synced: func() {
			told.Store("")
			events.Put(inbox.Item{Event: inspect.Event{Kind: inspect.EventSync}})
		},
		Failed: func(err error, gist string) {
			if told.Swap(gist) != gist {
				events.Put(inbox.Item{Err: err})
			}
		},
		Closed:  func() { events.Put(inbox.Item{Err: store.ErrClosed, Last: true}) },
		Message: func(e inspect.Event) { events.Put(inbox.Item{Event: e}) },
	})
	if err != nil {
		return nil, nil, err
	}
	p.inboxes.Add(events)
	return events, func() { p.inboxes.Remove(events); unobserve() }, nil
}
