package worqrprom

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/worqrtrace"
)

func TestMain(m *testing.M) { os.Exit(peertest.Main(m)) }

// gathered returns the values of the metrics by their name and labels: worqr_x{queue="q"}. For histograms, they
// are the counts.
func gathered(t testing.TB, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	peertest.Must(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetHistogram() != nil:
				values[name] = float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				values[name] = m.GetCounter().GetValue()
			default:
				values[name] = m.GetGauge().GetValue()
			}
		}
	}
	return values
}

func registered(t testing.TB, m *Metrics) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	peertest.Must(t, r.Register(m))
	return r
}

// Each function of the trace updates the right counts.
func TestCounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := New(nil)
	r, trace := registered(t, m), m.Trace()
	at := time.Now()
	trace.Joined(worqrtrace.Queue{Queue: "q"})
	trace.Enqueued(worqrtrace.Queue{Queue: "q", Tasks: 3})
	trace.Enqueued(worqrtrace.Queue{Queue: "q", Tasks: 3, Err: errors.New("unknown")})
	trace.Canceled(worqrtrace.Queue{Queue: "q", Tasks: 2})
	trace.FailedDropped(worqrtrace.Queue{Queue: "q", Tasks: 4})
	trace.Failed(worqrtrace.Queue{Queue: "q", Tasks: 6, Kind: inspect.FailureExpired})
	trace.Failed(worqrtrace.Queue{Queue: "q", Tasks: 6, Kind: inspect.FailureCrashed, OnFailed: true})
	trace.Changed(worqrtrace.Queue{Queue: "q", Tasks: 8, Method: "RequeueFailed"})
	trace.Changed(worqrtrace.Queue{Queue: "q", Method: "Pause"})
	trace.TasksReturned(worqrtrace.Queue{Queue: "q", Tasks: 5})
	trace.Evicted(worqrtrace.Worker{})
	trace.WorkerFailed(worqrtrace.Worker{})
	trace.Missed(7)
	trace.ConnectionLost(worqrtrace.Connection{})
	is.Equal(gathered(t, r)["worqr_connected"], 0.)
	trace.ConnectionRestored(worqrtrace.Connection{})
	for _, task := range []worqrtrace.Task{
		{EnqueuedAt: at.Add(-time.Minute), DueAt: at.Add(-time.Second)},
		{DueAt: at.Add(time.Hour)}, // by a clock that's ahead
		{},
		{EnqueuedAt: at.Add(-time.Minute), Crashes: 1},
		{EnqueuedAt: at.Add(-time.Minute), OnFailed: true},
	} {
		task.Queue, task.At = "q", at
		trace.Started(task)
	}
	trace.Ended(worqrtrace.Task{Queue: "q", Outcome: worqrtrace.Retried, Ran: time.Second})
	trace.Ended(worqrtrace.Task{Queue: "q", Outcome: worqrtrace.Finished, OnFailed: true})
	got := gathered(t, r)
	for name, want := range map[string]float64{
		`worqr_tasks_enqueued_total{queue="q"}`:                                  3,
		`worqr_tasks_canceled_total{queue="q"}`:                                  2,
		`worqr_failed_tasks_dropped_total{queue="q"}`:                            4,
		`worqr_tasks_failed_unstarted_total{kind="expired",queue="q"}`:           6,
		`worqr_tasks_failed_unstarted_total{kind="crashed",queue="q"}`:           0,
		`worqr_tasks_changed_total{method="RequeueFailed",queue="q"}`:            8,
		`worqr_tasks_returned_total{queue="q"}`:                                  5,
		`worqr_evictions_total`:                                                  1,
		`worqr_workers_evicted_total`:                                            1,
		`worqr_connection_losses_total`:                                          1,
		`worqr_connected`:                                                        1,
		`worqr_trace_calls_missed_total`:                                         7,
		`worqr_tasks_started_total{handler="main",queue="q"}`:                    4,
		`worqr_tasks_started_total{handler="failed",queue="q"}`:                  1,
		`worqr_tasks_running{handler="main",queue="q"}`:                          3,
		`worqr_tasks_running{handler="failed",queue="q"}`:                        0,
		`worqr_tasks_ended_total{handler="main",outcome="retried",queue="q"}`:    1,
		`worqr_tasks_ended_total{handler="main",outcome="lost",queue="q"}`:       0, // exported even while it's zero
		`worqr_tasks_ended_total{handler="failed",outcome="finished",queue="q"}`: 1,
		`worqr_task_wait_seconds{queue="q"}`:                                     2,
		`worqr_task_prefetched_seconds{queue="q"}`:                               5,
		`worqr_task_run_seconds{handler="main",queue="q"}`:                       1,
	} {
		v, there := got[name]
		if !there || v != want {
			t.Errorf("%s is %v (%v), want %v", name, v, there, want)
		}
	}
	for _, name := range []string{"worqr_ready", "worqr_queues_readable"} {
		if _, there := got[name]; there {
			t.Errorf("%s without a peer", name)
		}
	}
	problems, err := testutil.GatherAndLint(r)
	is.NoErr(err)
	is.Equal(len(problems), 0)
}

// Queues beyond the limit share a label, and those that have their own keep it.
func TestBoundedLabels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := New(&Options{MaxQueues: 2})
	r, trace := registered(t, m), m.Trace()
	for _, queue := range []string{"a", "b", "c", "d", "a"} {
		trace.Enqueued(worqrtrace.Queue{Queue: queue, Tasks: 1})
	}
	got := gathered(t, r)
	is.Equal(got[`worqr_tasks_enqueued_total{queue="a"}`], 2.)
	is.Equal(got[`worqr_tasks_enqueued_total{queue="b"}`], 1.)
	is.Equal(got[`worqr_tasks_enqueued_total{queue="{other}"}`], 2.)
	var _ prometheus.Collector = m
	of := 0
	for name := range got {
		if strings.HasPrefix(name, "worqr_tasks_enqueued_total") {
			of++
		}
	}
	is.Equal(of, 3)
}

// The documentation lists exactly what is exported.
func TestDocumented(t *testing.T) {
	t.Parallel()
	listed := documented(t)
	m := New(nil)
	descs := make(chan *prometheus.Desc, 100)
	m.Describe(descs)
	close(descs)
	var names []string
	for d := range descs {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, listed) {
		t.Errorf("exported %q\ndocumented %q", names, listed)
	}
}
