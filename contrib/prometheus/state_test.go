package worqrprom

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func documented(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile("metrics.go")
	peertest.Must(t, err)
	for _, m := range regexp.MustCompile(`(?m)^//\t(worqr_[a-z_]+)(?:\{[a-z,]+\})?(?: |$)`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return names
}

// A fleet of three works, one of its queues is paused, and each replica exports what it did itself,
// and the same state of the queues.
func TestFleet(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, ctx := redistest.Prefix(t), t.Context()
	var fleet []*worqr.Peer
	var all []*Metrics
	for range 3 {
		m := New(nil)
		p := peertest.Open(t, worqr.Options{Prefix: prefix, Trace: m.Trace()})
		m.Watch(p)
		p.Queue("work").Handle(func(_ context.Context, task *worqr.Task) error {
			switch string(task.Payload) {
			case "bad":
				return worqr.Permanent(errors.New("bad"))
			case "later":
				return worqr.Snooze(time.Hour)
			case "again":
				return worqr.RetryAfter(errors.New("again"), time.Hour)
			}
			return nil
		}, &worqr.HandleOptions{Concurrency: 1})
		defer peertest.Run(t, p)()
		fleet, all = append(fleet, p), append(all, m)
	}
	work, held := fleet[0].Queue("work"), fleet[0].Queue("held")
	for range 5 {
		_, err := work.Add(ctx, []byte("good"), nil)
		is.NoErr(err)
	}
	is.NoErr(work.Enqueue(ctx, []byte("good"), []byte("bad"), []byte("later"), []byte("again")))
	is.NoErr(held.Enqueue(ctx, []byte("x"), []byte("x")))
	is.NoErr(held.Pause(ctx))
	peertest.Eventually(t, "nine attempts have ended", func() bool {
		var ended float64
		for _, m := range all {
			for name, v := range gathered(t, registered(t, m)) {
				if regexp.MustCompile(`^worqr_tasks_ended_total`).MatchString(name) {
					ended += v
				}
			}
		}
		return ended == 9
	})
	sum := map[string]float64{}
	peertest.Eventually(t, "all read the same", func() bool { // what was read stands for a second
		clear(sum)
		same := true
		for _, m := range all {
			got := gathered(t, registered(t, m))
			for name, v := range got {
				sum[name] += v
			}
			same = same && got[`worqr_queue_workers{queue="work"}`] == 3 && got[`worqr_queue_failed_tasks{queue="work"}`] == 1 &&
				got[`worqr_queue_scheduled_tasks{queue="work"}`] == 2 && got[`worqr_queue_paused{queue="held"}`] == 1 &&
				got[`worqr_queue_running_tasks{queue="work"}`] == 0
		}
		return same
	})
	now := float64(time.Now().Unix())
	for name, want := range map[string]float64{ // of three, so the state counts three times
		`worqr_tasks_enqueued_total{queue="work"}`:                                9,
		`worqr_tasks_enqueued_total{queue="held"}`:                                2,
		`worqr_tasks_started_total{handler="main",queue="work"}`:                  9,
		`worqr_tasks_ended_total{handler="main",outcome="finished",queue="work"}`: 6,
		`worqr_tasks_ended_total{handler="main",outcome="failed",queue="work"}`:   1,
		`worqr_tasks_ended_total{handler="main",outcome="snoozed",queue="work"}`:  1,
		`worqr_tasks_ended_total{handler="main",outcome="retried",queue="work"}`:  1,
		`worqr_tasks_running{handler="main",queue="work"}`:                        0,
		`worqr_task_run_seconds{handler="main",queue="work"}`:                     9,
		`worqr_task_wait_seconds{queue="work"}`:                                   5,
		`worqr_handler_errors_total`:                                              2,
		`worqr_ready`:                                                             3,
		`worqr_connected`:                                                         3,
		`worqr_queues_readable`:                                                   3,
		`worqr_queue_waiting_tasks{queue="held"}`:                                 6,
		`worqr_queue_waiting_tasks{queue="work"}`:                                 0,
		`worqr_queue_workers{queue="held"}`:                                       0,
		`worqr_queue_silent{queue="work"}`:                                        0,
		`worqr_queue_oldest_task_age_seconds{queue="work"}`:                       0,
	} {
		if got, there := sum[name]; !there || got != want {
			t.Errorf("%s: %v (%v), want %v", name, got, there, want)
		}
	}
	if beats := sum["worqr_last_beat_timestamp_seconds"]; beats < 3*(now-3600) {
		t.Errorf("the last beats: %v", beats)
	}
}

// Without Redis the state of queues is missing, and the rest is there.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	m := New(&Options{Queues: []string{"q", "q"}, Timeout: time.Second})
	p := peertest.OpenAt(t, server.URL(), worqr.Options{CallTimeout: time.Second, Trace: m.Trace()})
	m.Watch(p)
	r := registered(t, m)
	got := gathered(t, r)
	is.Equal(got["worqr_queues_readable"], 1.)
	is.Equal(got[`worqr_queue_waiting_tasks{queue="q"}`], 0.)
	server.Kill()
	m.state.at = time.Time{} // that was a second ago
	got = gathered(t, r)
	is.Equal(got["worqr_queues_readable"], 0.)
	is.Equal(got["worqr_ready"], 0.)
	_, there := got[`worqr_queue_waiting_tasks{queue="q"}`]
	is.True(!there) // rather than 0
	defer func() {
		if recover() == nil {
			t.Error("a second Watch doesn't panic")
		}
	}()
	m.Watch(p)
}

// What a check finds is exported by kind, once somebody has scraped, and no more often than it was
// asked for. A login that Redis refuses is told apart from a Redis that is away.
func TestFindings(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	p := peertest.OpenDoctor(t, server.URL(), worqr.Options{Prefix: redistest.Prefix(t)})
	peertest.Enqueue(t, p.Queue("q"), "a", "b")
	m := New(&Options{CheckEvery: time.Hour})
	m.Watch(p)
	found := func() map[string]float64 { return valuesOf(t, m, "worqr_findings", "kind") }
	peertest.Eventually(t, "the check has found that nobody serves the queue", func() bool { return found()["no-worker"] == 1 })
	is.NoErr(p.Queue("q").Delete(t.Context()))
	is.Equal(found()["no-worker"], 1.) // for an hour
	is.True(valuesOf(t, m, "worqr_last_check_timestamp_seconds", "")[""] > 0)
	is.Equal(valuesOf(t, m, "worqr_denied", "")[""], 0.)

	for _, opts := range []*Options{nil, {NoQueues: true}} {
		refused := redistest.Sure(worqr.Open("redis://nobody:wrong@"+server.Addr(), nil))(t)
		t.Cleanup(func() { _ = refused.Close() })
		m = New(opts)
		m.Watch(refused)
		is.Equal(valuesOf(t, m, "worqr_denied", "")[""], 1.)
		is.Equal(len(found()), 0)
	}
	away := redistest.Sure(worqr.Open("redis://127.0.0.1:1", &worqr.Options{CallTimeout: time.Second}))(t)
	t.Cleanup(func() { _ = away.Close() })
	m = New(&Options{Timeout: 2 * time.Second})
	m.Watch(away)
	is.Equal(valuesOf(t, m, "worqr_denied", "")[""], 0.)
}

// valuesOf returns the values of a metric, by a label.
func valuesOf(t testing.TB, m *Metrics, name, label string) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	peertest.Must(t, r.Register(m))
	values := map[string]float64{}
	for _, family := range redistest.Sure(r.Gather())(t) {
		if family.GetName() != name {
			continue
		}
		for _, s := range family.GetMetric() {
			key := ""
			for _, l := range s.GetLabel() {
				if l.GetName() == label {
					key = l.GetValue()
				}
			}
			values[key] = s.GetGauge().GetValue()
		}
	}
	return values
}

// A damaged queue, one without a handle, or one on a node that doesn't answer, is missing; the others are there.
func TestSomeUnreadable(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := redistest.StartCluster(t, 2, 0, "--cluster-require-full-coverage", "no")
	p := peertest.OpenAt(t, c.URL(), worqr.Options{Prefix: "p"})
	m := New(&Options{Timeout: 2 * time.Second, Queue: func(name string) *worqr.Queue {
		switch name {
		case "queue-8":
			panic("no handle")
		case "queue-9":
			runtime.Goexit()
		}
		return p.Queue(name)
	}})
	m.Watch(p)
	r := registered(t, m)
	frozen := c.Nodes[0]
	if c.Owner(t, c.Slot(t, "p:registry")) == frozen {
		frozen = c.Nodes[1]
	}
	there := map[string]bool{}
	for i := range 40 { // more than are read at once on either node
		name := fmt.Sprint("queue-", i)
		peertest.Enqueue(t, p.Queue(name), "x")
		there[name] = c.Owner(t, c.Slot(t, "{"+name+"}")) != frozen
		switch i {
		case 7:
			redistest.Do(t, c.Dial(t), "SET", "p:workers:{"+name+"}", "x")
			fallthrough
		case 8, 9:
			there[name] = false
		}
	}
	frozen.Pause(t)
	defer frozen.Resume(t)
	got := gathered(t, r)
	is.Equal(got["worqr_queues_readable"], 0.)
	for name, want := range there {
		_, read := got[`worqr_queue_waiting_tasks{queue="`+name+`"}`]
		is.Equal(read, want)
	}
}
