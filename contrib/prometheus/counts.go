package worqrprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/worqrtrace"
)

// Counts are updated by the functions of the Trace.
type counts struct {
	enqueued, canceled, changed, started, ended, failed, dropped, returned *prometheus.CounterVec
	evictions, evicted, losses, missed                                     prometheus.Counter
	connected                                                              prometheus.Gauge
	run, wait, prefetched                                                  *prometheus.HistogramVec
}

func newCounts(buckets []float64) counts {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "worqr_" + name, Help: help}, append([]string{"queue"}, labels...))
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "worqr_" + name, Help: help})
	}
	hist := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "worqr_" + name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, append([]string{"queue"}, labels...))
	}
	c := counts{
		enqueued:   vec("tasks_enqueued_total", "Tasks that this process has added."),
		canceled:   vec("tasks_canceled_total", "Waiting tasks that cancels of this process have removed."),
		changed:    vec("tasks_changed_total", "Tasks that calls of this process have removed, requeued or deleted.", "method"),
		started:    vec("tasks_started_total", "Attempts that this process has started.", "handler"),
		ended:      vec("tasks_ended_total", "Attempts of this process that have ended, by outcome.", "handler", "outcome"),
		failed:     vec("tasks_failed_unstarted_total", "Tasks that this process moved to the failed queue instead of starting them, by kind.", "kind"),
		dropped:    vec("failed_tasks_dropped_total", "Tasks dropped from a full failed queue."),
		returned:   vec("tasks_returned_total", "Tasks of evicted workers that this process has returned to the front."),
		evictions:  one("evictions_total", "Number of times this worker was evicted."),
		evicted:    one("workers_evicted_total", "Other workers that this process has evicted."),
		losses:     one("connection_losses_total", "Number of times Redis stopped answering this process."),
		missed:     one("trace_calls_missed_total", "Trace calls that were dropped, and so are missing from other metrics."),
		connected:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "worqr_connected", Help: "0 while Redis doesn't answer this process."}),
		run:        hist("task_run_seconds", "How long attempts ran in this process.", "handler"),
		wait:       hist("task_wait_seconds", "Time from when a task could start until it did, if known."),
		prefetched: hist("task_prefetched_seconds", "How long tasks waited in this process before they started."),
	}
	c.connected.Set(1)
	return c
}

var running = prometheus.NewDesc("worqr_tasks_running", "Attempts in this process that have started and not ended.", []string{"queue", "handler"}, nil)

// drop removes the series of a queue.
func (c *counts) drop(queue string) {
	for _, v := range c.all() {
		if v, ok := v.(interface{ DeletePartialMatch(prometheus.Labels) int }); ok {
			v.DeletePartialMatch(prometheus.Labels{"queue": queue})
		}
	}
}

func (c *counts) all() []prometheus.Collector {
	return []prometheus.Collector{c.enqueued, c.canceled, c.changed, c.started, c.ended, c.failed, c.dropped, c.returned, c.evictions, c.evicted, c.losses, c.missed,
		c.connected, c.run, c.wait, c.prefetched}
}

var outcomes = []worqrtrace.Outcome{
	worqrtrace.Finished, worqrtrace.Retried, worqrtrace.Snoozed, worqrtrace.Failed, worqrtrace.Stopped, worqrtrace.Canceled, worqrtrace.Lost,
}

// handler returns the value of the label handler.
func handler(onFailed bool) string {
	if onFailed {
		return "failed"
	}
	return "main"
}

// begin creates the series of a queue, so that their first increase is counted.
func (c *counts) begin(queue, h string) {
	for _, o := range outcomes {
		c.ended.WithLabelValues(queue, h, string(o))
	}
	c.started.WithLabelValues(queue, h)
	c.run.WithLabelValues(queue, h)
	for _, kind := range []inspect.FailureKind{inspect.FailureExpired, inspect.FailureCrashed} {
		c.failed.WithLabelValues(queue, string(kind))
	}
	for _, v := range []*prometheus.CounterVec{c.dropped, c.returned} {
		v.WithLabelValues(queue)
	}
}

// Trace returns the functions for Options.Trace. To use your own functions, too, see
// worqrtrace.Join.
func (m *Metrics) Trace() *worqrtrace.Trace {
	c := &m.counts
	return &worqrtrace.Trace{
		Enqueued: func(q worqrtrace.Queue) {
			if q.Err == nil { // if it failed, they may not have been added
				c.enqueued.WithLabelValues(m.labels.of(q.Queue)).Add(float64(q.Tasks))
			}
		},
		Canceled: func(q worqrtrace.Queue) { c.canceled.WithLabelValues(m.labels.of(q.Queue)).Add(float64(q.Tasks)) },
		Changed: func(q worqrtrace.Queue) {
			if q.Tasks > 0 {
				c.changed.WithLabelValues(m.labels.of(q.Queue), q.Method).Add(float64(q.Tasks))
			}
		},
		Failed: func(q worqrtrace.Queue) {
			if !q.OnFailed { // otherwise it had failed before
				c.failed.WithLabelValues(m.labels.of(q.Queue), string(q.Kind)).Add(float64(q.Tasks))
			}
		},
		FailedDropped: func(q worqrtrace.Queue) { c.dropped.WithLabelValues(m.labels.of(q.Queue)).Add(float64(q.Tasks)) },
		TasksReturned: func(q worqrtrace.Queue) { c.returned.WithLabelValues(m.labels.of(q.Queue)).Add(float64(q.Tasks)) },
		Joined: func(q worqrtrace.Queue) {
			h := handler(q.OnFailed)
			c.begin(m.labels.joined(q.Queue, h), h)
		},
		Left:    func(q worqrtrace.Queue) { m.labels.left(q.Queue) },
		Started: m.started,
		Ended:   m.ended,
		Evicted: func(worqrtrace.Worker) {
			c.evictions.Inc()
			m.labels.leftAll()
		},
		WorkerFailed: func(w worqrtrace.Worker) {
			c.evicted.Inc()
			m.deaths.add(w)
		},
		ConnectionLost: func(worqrtrace.Connection) {
			c.losses.Inc()
			c.connected.Set(0)
		},
		ConnectionRestored: func(worqrtrace.Connection) { c.connected.Set(1) },
		Missed: func(calls int) {
			c.missed.Add(float64(calls))
			m.labels.leftAll() // Left may be among them
		},
	}
}

func (m *Metrics) started(t worqrtrace.Task) {
	c, h := &m.counts, handler(t.OnFailed)
	queue := m.labels.add(t.Queue, h, 1)
	c.started.WithLabelValues(queue, h).Inc()
	c.prefetched.WithLabelValues(queue).Observe(t.Waited.Seconds())
	if waited, known := t.Wait(); known {
		c.wait.WithLabelValues(queue).Observe(waited.Seconds())
	}
}

func (m *Metrics) ended(t worqrtrace.Task) {
	c, h := &m.counts, handler(t.OnFailed)
	queue := m.labels.add(t.Queue, h, -1)
	c.ended.WithLabelValues(queue, h, string(t.Outcome)).Inc()
	c.run.WithLabelValues(queue, h).Observe(t.Ran.Seconds())
}
