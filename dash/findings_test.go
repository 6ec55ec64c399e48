package dash

import (
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A finding disappears when a newer snapshot contradicts it, and not before.
func TestOutdated(t *testing.T) {
	t.Parallel()
	checked := time.Now()
	later := checked.Add(time.Second)
	worker := []*inspect.Worker{{Lease: time.Second}}
	for _, c := range []struct {
		kind  inspect.FindingKind
		state queueState
		want  bool
	}{
		{"expired-worker", queueState{counts: inspect.QueueStats{Workers: 1}, workers: worker}, true},
		{"expired-worker", queueState{counts: inspect.QueueStats{Workers: 2}, workers: worker}, false},
		{"backlog", queueState{}, true},
		{"backlog", queueState{counts: inspect.QueueStats{Waiting: 1}}, false},
		{"stalled", queueState{counts: inspect.QueueStats{Waiting: 1, IdleWorkers: 1}}, true},
		{"stalled", queueState{counts: inspect.QueueStats{Waiting: 1}}, false},
		{"overdue", queueState{}, true},
		{"starved", queueState{counts: inspect.QueueStats{IdleWorkers: 1, Waiting: 1}}, true},
		{"retrying", queueState{counts: inspect.QueueStats{Scheduled: 1}}, false},
		{"long-run", queueState{}, true},
		{"orphan", queueState{}, false},
	} {
		c.state.name, c.state.at = "q", later
		s := &snapshot{At: later, queues: []*queueState{&c.state}}
		f := inspect.Finding{Kind: c.kind, Queue: "q"}
		if got := outdated(f, s, checked); got != c.want {
			t.Errorf("%s: %v, want %v", c.kind, got, c.want)
		}
		if outdated(f, s, later) || outdated(inspect.Finding{Kind: c.kind}, s, checked) {
			t.Errorf("%s: outdated by a snapshot that isn't newer, or without a queue", c.kind)
		}
	}
	is := is.New(t)
	gone := inspect.Finding{Kind: "orphan", Queue: "gone (failed)"}
	is.True(outdated(gone, &snapshot{At: later}, checked))
	is.True(!outdated(gone, &snapshot{At: later, more: true}, checked))
	is.True(!outdated(gone, &snapshot{At: later, err: errNotYet}, checked))
}

// Each exception belongs to a kind of finding that exists.
func TestFresh(t *testing.T) {
	t.Parallel()
	for _, kinds := range []iter.Seq[inspect.FindingKind]{maps.Keys(fresh)} {
		for kind := range kinds {
			if !slices.Contains(worqr.FindingKinds(), kind) {
				t.Errorf("%s is no finding", kind)
			}
		}
	}
}
