// Package inbox holds events for readers that may be slow, within bounds.
package inbox

import (
	"slices"
	"sync"

	"github.com/worqr/worqr/inspect"
)

// eventBuffer is how many events may wait for a slow reader, and eventBytes how many bytes they may
// have in total, though a single event may have more. Beyond that, the waiting events are dropped,
// and the reader gets an EventSync.
const (
	eventBuffer = 1024
	eventBytes  = 16 << 20
)

// All has the inboxes of all readers, for events that the peer itself notices.
type All struct {
	mu  sync.Mutex
	all map[*Inbox]bool // protected by mu
}

// Add adds an inbox.
func (s *All) Add(in *Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*Inbox]bool{}
	}
	s.all[in] = true
}

// Remove removes an inbox.
func (s *All) Remove(in *Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, in)
}

// Lost puts an EventLost into the inboxes of a queue's readers.
func (s *All) Lost(queue, sign string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for in := range s.all {
		if len(in.queues) == 0 || slices.Contains(in.queues, queue) {
			in.Put(Item{Event: inspect.Event{Kind: inspect.EventLost, Queue: queue, Evidence: sign}})
		}
	}
}

// An Inbox holds the events that a reader hasn't read yet.
type Inbox struct {
	Some   chan struct{} // holds a value when there are items
	queues []string      // none means all

	mu     sync.Mutex // protects the fields below
	items  []Item
	bytes  int // of items
	synced bool
	over   bool // the last item was put
}

// New returns an inbox for the events of some queues; none means all.
func New(queues []string) *Inbox {
	return &Inbox{Some: make(chan struct{}, 1), queues: slices.Clone(queues)}
}

// An Item is an event, or an error of the subscription.
type Item struct {
	Event inspect.Event
	Err   error
	Last  bool // no item follows
}

func (i *Item) size() int {
	e := &i.Event
	return len(e.Payload) + len(e.Result) + len(e.WorkerID) + len(e.PayloadDigest)
}

// Put adds an item. Beyond the limits, an EventSync replaces the waiting items. After the last item,
// Put adds nothing.
func (in *Inbox) Put(i Item) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return
	}
	in.over = i.Last
	switch {
	case i.Event.Kind == inspect.EventSync:
		in.synced = true
	case i.Err == nil && !in.synced:
		return // EventSync comes first; in a cluster, some nodes send before all are subscribed
	}
	switch {
	case i.Err != nil && len(in.items) > 0 && in.items[len(in.items)-1].Err != nil:
		in.items[len(in.items)-1] = i
	case len(in.items) >= eventBuffer, len(in.items) > 0 && in.bytes+i.size() > eventBytes:
		in.items = append(in.items[:0:0], Item{Event: inspect.Event{Kind: inspect.EventSync}}, i)
		in.bytes = i.size()
	default:
		in.items = append(in.items, i)
		in.bytes += i.size()
	}
	select {
	case in.Some <- struct{}{}:
	default:
	}
}

// Take removes and returns the waiting items.
func (in *Inbox) Take() []Item {
	in.mu.Lock()
	defer in.mu.Unlock()
	items := in.items
	in.items, in.bytes = nil, 0
	return items
}
