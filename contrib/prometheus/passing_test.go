package worqrprom

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
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

// The counts of a served queue have a label of their own, whatever other queues the process used. Those that
// it used and left give theirs to others, and no count goes wrong.
func TestLabelsPassOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		m := New(&Options{MaxQueues: 10})
		r, trace := registered(t, m), m.Trace()
		added := func(queue string) string { return fmt.Sprintf("worqr_tasks_enqueued_total{queue=%q}", queue) }
		runs := func(queue string) string {
			return fmt.Sprintf(`worqr_tasks_running{handler="main",queue=%q}`, queue)
		}
		for i := range 10_000 {
			trace.Enqueued(worqrtrace.Queue{Queue: fmt.Sprint("job-", i), Tasks: 1})
			switch i {
			case 5000:
				trace.Joined(worqrtrace.Queue{Queue: "served"})
			case 6000:
				trace.Started(worqrtrace.Task{Queue: "elsewhere"}) // has no label
			}
			if i%1000 == 999 {
				got := gathered(t, r)
				_, has := got[runs("served")]
				is.Equal(has, i > 5000)
				is.True(labelled(got, "worqr_tasks_enqueued_total") <= 11)
			}
		}
		got := gathered(t, r)
		is.Equal(got[added("job-9999")], 0.)
		is.True(got[added("{other}")] > 9900)
		is.Equal(got[runs("{other}")], 1.)

		time.Sleep(unused) // nothing happens
		trace.Enqueued(worqrtrace.Queue{Queue: "late", Tasks: 3})
		trace.Ended(worqrtrace.Task{Queue: "elsewhere", Outcome: worqrtrace.Finished})
		got = gathered(t, r)
		is.Equal(got[added("late")], 3.)
		is.Equal(got[runs("{other}")]+got[runs("elsewhere")], 0.)
		is.Equal(labelled(got, "worqr_tasks_enqueued_total"), 2) // and the others
		_, has := got[runs("served")]
		is.True(has)

		for i := range 8 {
			trace.Joined(worqrtrace.Queue{Queue: fmt.Sprint("other-", i)})
		}
		trace.Left(worqrtrace.Queue{Queue: "served"})
		time.Sleep(unused)
		trace.Enqueued(worqrtrace.Queue{Queue: "\xff", Tasks: 1})
		got = gathered(t, r)
		is.Equal(got[added("\uFFFD")], 1.)
		_, has = got[runs("served")]
		is.True(!has)
		trace.Evicted(worqrtrace.Worker{})
		time.Sleep(unused)
		for i := range 10 {
			trace.Enqueued(worqrtrace.Queue{Queue: fmt.Sprint("new-", i), Tasks: 1})
		}
		is.Equal(labelled(gathered(t, r), "worqr_tasks_running"), 0)
	})
}

// When more workers die than have a series of their own, the rest share one; and those that died long ago take nobody's
// place, also if nothing has been scraped since.
func TestManyEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		var d deaths
		die := func(names string, n int) {
			for i := range n {
				d.add(worqrtrace.Worker{At: time.Now(), Name: fmt.Sprint(names, i), Host: "h"})
			}
		}
		die("a", mostMourned)
		time.Sleep(mourned - time.Minute)
		die("a", 1) // again
		die("b", 5)
		is.Equal(len(d.at), mostMourned+1)
		is.True(d.at[[2]string{Other, Other}].Equal(time.Now()) && d.at[[2]string{"a0", "h"}].Equal(time.Now()))
		time.Sleep(2 * time.Minute)
		die("c", 1)
		is.Equal(len(d.at), 3) // a0, others and c0
	})
}
