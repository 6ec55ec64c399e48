package fleet

import (
	"slices"
	"strings"

	"github.com/worqr/worqr/internal/store"
)

// A Trace receives what happens to workers. Its functions may be nil. They may be called under a
// lock, so they only put the event aside.
type Trace struct {
	Joined   func(q Half, worker string)
	Left     func(q Half, worker string, err error) // follows each Joined, unless Evicted follows it
	Evicted  func(old, id, name string, queues []string)
	Failed   func(w store.Worker, queues []string, tasks int) // this peer evicted another worker
	Returned func(q Half, worker string, tasks int)           // this peer returned tasks of such workers
}

// A Half is a queue, by the name that users know, or its failed queue.
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

// half returns the Half for the id of a queue.
func half(id string) Half {
	name, failed := strings.CutSuffix(id, failedHalf)
	return Half{store.Whole(name), failed}
}

// publics returns the names of queues as users know them.
func publics(ids []string) []string {
	return distinct(ids, func(h Half) string { return h.Queue })
}

// distinct returns the names of queues and parts, sorted, without duplicates.
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
