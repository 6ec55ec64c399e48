// Package await waits until tasks have ended, for any number of callers at a time.
//
// A watch is one name that callers wait for. It subscribes to its own channel, on the peer's only
// connection for messages. Messages are hints; what Redis has is authoritative. A watch is
// read when a message comes, after each subscription or resubscription, and once in a while in case
// a message was lost. For each queue, one goroutine reads its watches, a page at a time, so that a
// thousand tasks that end together take only a few calls.
package await

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/store"
)

var (
	// ErrNoResult: there is no result, and there won't be one.
	ErrNoResult = errors.New("worqr: no result")

	// ErrUnknown is an ErrNoResult: the key isn't known.
	ErrUnknown = fmt.Errorf("%w: no task waits or runs under the key, and no result is kept", ErrNoResult)

	errNotKept = fmt.Errorf("%w: the task was added without KeepResult", ErrNoResult)
	errExpired = fmt.Errorf("%w: the task has ended, and its result has expired", ErrNoResult)
)

// The intervals between reads of a watch: while messages arrive; while they don't, or after a
// failure; and the minimum, for results that are kept only briefly.
const (
	slowly  = 10 * time.Second
	quickly = time.Second
	often   = 250 * time.Millisecond
)

// patience is how long a new watch waits for its subscription before it's read.
const patience = 200 * time.Millisecond

// A Config is what a Hub needs from its peer.
type Config struct {
	Listen  func(q store.Keys, name string, by store.EndListener) (stop func(), err error)
	Ask     func(ctx context.Context, q store.Keys, names []string) ([]store.Fate, error)
	Timeout time.Duration // how long a caller tries to reach Redis before its first answer
}

// A Hub waits until tasks have ended.
type Hub struct {
	Config

	mu     sync.Mutex            // protects the fields below; Listen and stop are called under it, and mustn't call back
	queues map[store.Keys]*queue // with watches
}

// New returns a Hub. It does no I/O.
func New(c Config) *Hub { return &Hub{Config: c, queues: map[store.Keys]*queue{}} }

// A queue has watches. The lock of its Hub protects it.
type queue struct {
	hub     *Hub
	keys    store.Keys
	watches map[string]*watch
	next    schedule      // the watches by the time of their next read
	some    chan struct{} // holds a value when the first watch has changed
	over    chan struct{} // closed when no watch is left
}

// A watch is a name that callers wait for. The lock of its Hub protects it.
type watch struct {
	name    string
	callers map[*caller]bool
	stop    func()    // ends the subscription
	heard   bool      // messages arrive
	read    bool      // it was read before
	at      time.Time // when to read it
	place   int       // its index in next
}

// Wait blocks until the task under a name has ended, and returns how. It returns nil if the task was
// deleted, or Redis has lost it. If no task waits or runs under the name, it returns how the last one
// ended. It fails with ErrNoResult, when ctx ends, and with store.ErrClosed.
func (h *Hub) Wait(ctx context.Context, q store.Keys, name string) (*store.Ended, error) {
	c := &caller{began: time.Now(), done: make(chan verdict, 1)}
	w, err := h.add(q, name, c)
	if err != nil {
		return nil, err
	}
	defer h.remove(q, w, c)
	select {
	case v := <-c.done:
		return v.ended, v.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// add makes a caller wait for a name.
func (h *Hub) add(keys store.Keys, name string, c *caller) (w *watch, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[keys]
	if q == nil {
		q = &queue{hub: h, keys: keys, watches: map[string]*watch{}, some: make(chan struct{}, 1), over: make(chan struct{})}
	}
	if w = q.watches[name]; w != nil {
		w.callers[c] = true
		if w.heard || w.read { // otherwise it's read soon
			q.lookLocked(w, 0)
		}
		return w, nil
	}
	w = &watch{name: name, callers: map[*caller]bool{c: true}, at: c.began.Add(patience)}
	w.stop, err = h.Listen(keys, name, store.EndListener{
		Look: func() { h.look(q, w, 0) }, Heard: func(arrives bool) { h.heard(q, w, arrives) }, Closed: func() { h.closed(w) },
	})
	if err != nil {
		return nil, err
	}
	q.watches[name] = w
	heap.Push(&q.next, w)
	if h.queues[keys] == nil {
		h.queues[keys] = q
		go q.run()
	}
	q.stir()
	return w, nil
}

// remove ends the wait of a caller.
func (h *Hub) remove(keys store.Keys, w *watch, c *caller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(w.callers, c)
	if len(w.callers) > 0 {
		return
	}
	w.stop()
	q := h.queues[keys]
	delete(q.watches, w.name)
	heap.Remove(&q.next, w.place)
	if len(q.watches) == 0 {
		delete(h.queues, keys)
		close(q.over)
	}
}

// look schedules a read of a watch, unless an earlier one is scheduled.
func (h *Hub) look(q *queue, w *watch, after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q.lookLocked(w, after)
}

func (q *queue) lookLocked(w *watch, after time.Duration) {
	at := time.Now().Add(after)
	if q.watches[w.name] != w || !at.Before(w.at) {
		return
	}
	w.at = at
	heap.Fix(&q.next, w.place)
	if w.place == 0 {
		q.stir()
	}
}

// heard records whether messages arrive. If they don't, a watch that hasn't been read yet is read
// now.
func (h *Hub) heard(q *queue, w *watch, arrives bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.heard = arrives
	switch {
	case arrives:
	case w.read:
		q.lookLocked(w, jittered(quickly))
	default:
		q.lookLocked(w, 0)
	}
}

// closed ends the waits for a name.
func (h *Hub) closed(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range w.callers {
		c.end(nil, store.ErrClosed)
	}
}

// stir makes run check which watch is next.
func (q *queue) stir() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// jittered spreads reads over time: it returns between once and twice the duration.
func jittered(d time.Duration) time.Duration { return d + rand.N(d) }

// run reads the watches of a queue as long as there are some.
func (q *queue) run() {
	retry := store.NewBackoff()
	idle := time.NewTimer(0)
	defer idle.Stop()
	for {
		page, wait, over := q.take()
		if over {
			return
		}
		some := q.some
		if len(page) > 0 {
			wait, some = q.read(page, retry), nil // not before the pause has ended
		}
		idle.Reset(wait)
		select {
		case <-some:
		case <-idle.C:
		case <-q.over:
			return
		}
	}
}

// An inquiry is a read of a watch, for the callers it has now.
type inquiry struct {
	watch   *watch
	callers []*caller
}

// take returns up to MaxEnds watches to read now, or the time until the next one. over reports that
// there are no watches left.
func (q *queue) take() (page []inquiry, wait time.Duration, over bool) {
	h := q.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(q.watches) == 0 {
		return nil, 0, true
	}
	now := time.Now()
	for len(page) < store.MaxEnds && !q.next[0].at.After(now) {
		w := q.next[0]
		page = append(page, inquiry{w, slices.Collect(maps.Keys(w.callers))})
		w.read = true
		w.at = now.Add(jittered(w.pace()))
		heap.Fix(&q.next, 0)
	}
	return page, time.Until(q.next[0].at), false
}

func (w *watch) pace() time.Duration {
	if w.heard {
		return slowly
	}
	return quickly
}

// read reads a page of watches and passes the answers to their callers. It returns how long to
// pause, since Redis may be down.
func (q *queue) read(page []inquiry, retry *store.Backoff) time.Duration {
	names := make([]string, len(page))
	for i, a := range page {
		names[i] = a.watch.name
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), q.hub.Timeout, fmt.Errorf("no reply within %v: %w", q.hub.Timeout, os.ErrDeadlineExceeded))
	defer cancel()
	sent := time.Now()
	ends, err := q.hub.Ask(ctx, q.keys, names)
	now := time.Now()
	for i, a := range page {
		switch {
		case i < len(ends):
			for _, c := range a.callers {
				c.told(&ends[i], sent, now)
			}
			if keeps := ends[i].Keeps() / 4; keeps > 0 { // before its result expires
				q.hub.look(q, a.watch, jittered(max(keeps, often)))
			}
		case err == nil: // they are read next
			q.hub.look(q, a.watch, 0)
		default:
			for _, c := range a.callers {
				c.failed(err, now.Sub(c.began) > q.hub.Timeout)
			}
			q.hub.look(q, a.watch, jittered(quickly))
		}
	}
	if err != nil {
		return retry.Next()
	}
	retry.Reset()
	return 0
}

// A schedule is a heap of watches, ordered by the time of their next read.
type schedule []*watch

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}
func (s *schedule) Push(w any) {
	w.(*watch).place = len(*s)
	*s = append(*s, w.(*watch))
}
func (s *schedule) Pop() any {
	last := len(*s) - 1
	w := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return w
}
