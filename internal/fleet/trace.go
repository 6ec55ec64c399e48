package fleet

import (
	"slices"
	"strings"

	"github.com/worqr/worqr/internal/store"
)

// A Trace is told what happens to workers. Its functions may be nil. They only put something aside,
// so they may be called under a lock.
type Trace struct {
	Joined   func(q Half, worker string)
	Left     func(q Half, worker string, err error) // follows each Joined, unless Evicted does
	Evicted  func(old, id, name string, queues []string)
	Failed   func(w store.Worker, queues []string, tasks int) // another worker was evicted by this peer
	Returned func(q Half, worker string, tasks int)           // of such workers, by this one
}

// A Half is a queue as users know it, or its failed queue.
type Half struct {
	Queue  string
	Failed bool
}

func (h Half) String() string {
	if h.Failed {
		return h.Queue + failedHalf
	}
	return h.Queue
}

// half returns what the id of a queue means.
func half(id string) Half {
	name, failed := strings.CutSuffix(id, failedHalf)
	return Half{store.Whole(name), failed}
}

// publics returns the names of queues as users know them.
func publics(ids []string) []string {
	return distinct(ids, func(h Half) string { return h.Queue })
}

// distinct returns what queues and parts are called, each once and in order.
func distinct(ids []string, called func(Half) string) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = called(half(id))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (t *Trace) joined(q *Queue, worker string) {
	if t.Joined != nil {
		t.Joined(half(q.ID), worker)
	}
}

func (t *Trace) left(m *member, err error) {
	if t.Left != nil {
		t.Left(half(m.queue.ID), m.id, err)
	}
}

func (f *Fleet) returned(id string, tasks int) {
	if f.Trace.Returned != nil && tasks > 0 {
		f.Trace.Returned(half(id), f.ID(), tasks)
	}
}
