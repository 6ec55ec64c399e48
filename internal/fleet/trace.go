package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A Half is a queue, by the name that users know, or its failed queue.
type Half struct {
	Queue  string
	Failed bool
}

// half returns the Half for the id of a queue.
func half(id string) Half {
	name, failed := strings.CutSuffix(id, failedHalf)
	return Half{name, failed}
}

// publics returns the names of queues as users know them, sorted, without duplicates.
func publics(ids []string) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = half(id).Queue
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// traced begins what a Trace gets about a queue and a worker.
func traced(id, worker string) worqrtrace.Queue {
	h := half(id)
	return worqrtrace.Queue{At: time.Now(), Queue: h.Queue, OnFailed: h.Failed, WorkerID: worker}
}

func (f *Fleet) left(m *member, err error) {
	t := traced(m.queue.ID, m.id)
	t.Err = f.Describe("leave", m.queue.Name, err)
	f.Trace.Left(t)
}

func (f *Fleet) returned(id string, tasks int) {
	if tasks > 0 {
		t := traced(id, f.ID())
		t.Tasks = tasks
		f.Trace.TasksReturned(t)
	}
}

// evictedOther reports that this peer has evicted another worker.
func (f *Fleet) evictedOther(w store.Worker, o *eviction) {
	f.Trace.WorkerFailed(worqrtrace.Worker{
		At: time.Now(), WorkerID: w.ID, Name: w.Name, Host: w.Host, PID: w.PID, Queues: publics(o.queues), Tasks: o.tasks,
	})
}
