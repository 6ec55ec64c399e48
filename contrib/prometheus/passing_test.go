package worqrprom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/worqrtrace"
)

// labelled returns how many queues a metric has, Other among them.
func labelled(got map[string]float64, metric string) (n int) {
	for name := range got {
		if strings.HasPrefix(name, metric+"{") {
			n++
		}
	}
	return n
}

// However many queues come and go, the state of those that exist is exported. If too many exist,
// those that were exported before stay, and the number of the others is.
func TestQueuesPassThrough(t *testing.T) {
	t.Parallel()
	is, ctx := is.New(t), t.Context()
	m := New(nil)
	p := peertest.Open(t, worqr.Options{Trace: m.Trace()})
	m.Watch(p)
	r := registered(t, m)
	scrape := func() map[string]float64 {
		m.state.mu.Lock()
		m.state.at = time.Time{} // as if it were read a second ago
		m.state.mu.Unlock()
		got := gathered(t, r)
		is.Equal(got["worqr_queues_readable"], 1.)
		is.True(labelled(got, "worqr_tasks_enqueued_total") <= mostQueues+1) // and the others
		return got
	}
	waiting := func(name string) string { return fmt.Sprintf("worqr_queue_waiting_tasks{queue=%q}", name) }
	var living []string
	scrapes := 0
	for i := range 10_000 {
		if i%1000 == 500 {
			living = append(living, fmt.Sprint("z-live-", i))
			peertest.Enqueue(t, p.Queue(living[len(living)-1]), "x")
		}
		passing := p.Queue(fmt.Sprint("job-", i))
		peertest.Enqueue(t, passing, "x")
		if i%250 == 0 {
			got := scrape()
			scrapes++
			for _, name := range append(living, passing.Name()) {
				if got[waiting(name)] != 1 {
					t.Fatalf("scrape %d doesn't show %s", scrapes, name)
				}
			}
			is.Equal(got["worqr_queues_omitted"], 0.)
			is.Equal(labelled(got, "worqr_queue_waiting_tasks"), len(living)+1) // none that is gone
		}
		is.NoErr(passing.Delete(ctx))
	}
	for i := range 250 { // by name, they're before the living ones
		peertest.Enqueue(t, p.Queue(fmt.Sprintf("a-%03d", i)), "x")
	}
	for range 2 {
		got := scrape()
		for _, name := range living {
			is.Equal(got[waiting(name)], 1.)
		}
		is.Equal(labelled(got, "worqr_queue_waiting_tasks"), mostQueues)
		is.Equal(got["worqr_queues_omitted"], float64(250+len(living)-mostQueues))
		is.Equal(got[waiting("a-000")], 1.)
		is.Equal(got[waiting("a-249")], 0.)
	}
	is.NoErr(p.Queue(living[0]).Delete(ctx))
	next := fmt.Sprintf("a-%03d", mostQueues-len(living)) // takes its place
	is.Equal(scrape()[waiting(next)], 1.)
}

// The counts of a served queue have a label of their own, whatever other queues the process used.
func TestServedQueuesHaveLabels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := New(&Options{MaxQueues: 10})
	r, trace := registered(t, m), m.Trace()
	for i := range 1000 {
		trace.Enqueued(worqrtrace.Queue{Queue: fmt.Sprint("job-", i), Tasks: 1})
	}
	trace.Joined(worqrtrace.Queue{Queue: "\xff"})
	trace.Started(worqrtrace.Task{Queue: "\xff"})
	trace.Enqueued(worqrtrace.Queue{Queue: "\xff", Tasks: 3})
	got := gathered(t, r)
	is.Equal(labelled(got, "worqr_tasks_enqueued_total"), 12)
	is.Equal(got[`worqr_tasks_enqueued_total{queue="{other}"}`], 990.)
	is.Equal(got["worqr_tasks_enqueued_total{queue=\"\uFFFD\"}"], 3.)
	is.Equal(got["worqr_tasks_running{handler=\"main\",queue=\"\uFFFD\"}"], 1.)
	trace.Ended(worqrtrace.Task{Queue: "\xff", Outcome: worqrtrace.Finished})
	is.Equal(gathered(t, r)["worqr_tasks_running{handler=\"main\",queue=\"\uFFFD\"}"], 0.)
}
