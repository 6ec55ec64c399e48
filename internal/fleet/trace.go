package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/worqrtrace"
)

// failedHalf is the suffix of the ids of failed queues.
const failedHalf = " (failed)"

// nameOf returns the name of a queue as users know it, and whether it's the failed queue.
func nameOf(id string) (name string, failed bool) { return strings.CutSuffix(id, failedHalf) }

// publics returns the names of queues as users know them, sorted, without duplicates.
func publics(ids []string) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i], _ = nameOf(id)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// traced begins what a Trace gets about a queue and a worker.
func traced(id, worker string) worqrtrace.Queue {
	name, failed := nameOf(id)
	return worqrtrace.Queue{At: time.Now(), Queue: name, OnFailed: failed, WorkerID: worker}
}

func (f *Fleet) left(m *member, err error) {
	t := traced(m.queue.ID, m.id)
	t.Err = f.Describe("leave", m.queue.Name, err)
	f.Trace.Left(t)
}

// returned counts tasks that this peer has returned.
func (f *Fleet) returned(id string, tasks int) {
	if tasks > 0 {
		f.counts.TasksReturned.Add(int64(tasks))
		t := traced(id, f.ID())
		t.Tasks = tasks
		f.Trace.TasksReturned(t)
	}
}
