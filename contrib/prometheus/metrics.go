// Package worqrprom exports metrics of worqr to Prometheus.
//
//	metrics := worqrprom.New(nil)
//	peer, err := worqr.Open(url, &worqr.Options{Trace: metrics.Trace()})
//	metrics.Watch(peer)
//	prometheus.MustRegister(metrics)
//
// # This process
//
// Each replica counts what it does itself, so sum over them:
//
//	sum by (queue) (rate(worqr_tasks_ended_total{outcome="finished"}[5m]))
//
//	worqr_tasks_enqueued_total{queue}                  tasks added by this process
//	worqr_tasks_canceled_total{queue}                  waiting tasks removed by its cancels
//	worqr_tasks_changed_total{queue,method}            tasks that its calls removed, requeued or deleted
//	worqr_tasks_started_total{queue,handler}           attempts
//	worqr_tasks_ended_total{queue,handler,outcome}     attempts, by worqrtrace.Outcome: retries are "retried"
//	worqr_tasks_failed_unstarted_total{queue,kind}     tasks that failed instead of starting: expired or crashed
//	worqr_tasks_running{queue,handler}                 attempts that have started and not ended
//	worqr_task_run_seconds{queue,handler}              histogram: how long attempts ran
//	worqr_task_wait_seconds{queue}                     histogram: time from when a task could start until it did
//	worqr_task_prefetched_seconds{queue}               histogram: the part of that spent in this process
//	worqr_tasks_returned_total{queue}                  tasks of evicted workers that it returned
//	worqr_failed_tasks_dropped_total{queue}            from full failed queues
//	worqr_evictions_total                              number of times this worker was evicted
//	worqr_workers_evicted_total                        other workers that it evicted
//	worqr_connected                                    0 while Redis doesn't answer, otherwise 1
//	worqr_connection_losses_total                      number of times Redis stopped answering
//	worqr_denied                                       1 while Redis refuses the login or a permission
//	worqr_trace_calls_missed_total                     calls missing in the counts above
//	worqr_handler_errors_total                         panics included
//	worqr_stuck_handlers                               abandoned and still running
//	worqr_lost_writes_total                            signs that Redis had lost writes
//	worqr_enqueues_refused_total                       calls that added no task, since Redis refused them or wasn't reached
//	worqr_clock_ahead_seconds                          by how much this machine's clock is ahead of Redis's
//	worqr_worker_evicted_timestamp_seconds{name,host}  when it evicted another worker, for 15 minutes; beyond 20, all as {other}
//	worqr_ready                                        1 while Peer.Ready returns nil
//	worqr_last_beat_timestamp_seconds                  when Redis last answered a heartbeat; 0 before
//
// The label handler is "main", or "failed" for OnFailed. The wait is known for retries
// and for tasks from Add and Every. For those from Enqueue, see worqr_queue_oldest_task_age_seconds.
//
// # The fleet
//
// All replicas export the same state of Redis. Therefore never sum over replicas, but take the
// maximum:
//
//	max by (queue) (worqr_queue_waiting_tasks)
//
//	worqr_queue_waiting_tasks{queue}              that may start: on the list, and named ones
//	worqr_queue_scheduled_tasks{queue}            for a time, a retry, or the running task with their key
//	worqr_queue_running_tasks{queue}              held by workers, running or prefetched
//	worqr_queue_retrying_tasks{queue}             of the scheduled ones, those that wait for a retry, at least
//	worqr_queue_tokens_total{queue}               tokens issued: one for each start
//	worqr_queue_failed_tasks{queue}               in the failed queue
//	worqr_queue_oldest_task_age_seconds{queue}    how long ago the task that has waited longest could have started
//	worqr_queue_workers{queue}                    including dead ones until they're evicted
//	worqr_queue_idle_workers{queue}
//	worqr_queue_silent{queue}                     1 while it has workers, and none has renewed its lease in time
//	worqr_queue_paused{queue}                     1 while it's paused
//	worqr_queues_readable                         1 if all queues could be read; those that couldn't are missing above
//	worqr_queues_omitted                          how many exist beyond Options.MaxQueues; they're missing above
//	worqr_findings{kind,severity}                 of the last Check; see docs/findings.md
//	worqr_findings_silenced{kind}                 of them, those that are silenced; they aren't in worqr_findings
//	worqr_last_check_timestamp_seconds            when it ended; 0 before
//	worqr_source_readable{source}                 1 if a source in worqr.Options.Sources reported in time
//	worqr_source_<source>_<metric>                its metrics; the source says whether they're of this process
//
// A scrape reads the state of queues from Redis, at most once a second. Check reads all keys of the
// fleet, so it runs only with Options.CheckEvery, in the background.
package worqrprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr"
)

// Options configure Metrics. A zero field means the default.
type Options struct {
	// Queues are the queues whose state is read from Redis; empty means all. NoQueues reads none:
	// use it if many processes would otherwise read many queues.
	Queues   []string
	NoQueues bool
	// MaxQueues limits the queues that have a label of their own; 0 is 200. Beyond it, worqr_queues_omitted
	// says how many queues have no state here: a queue whose state is exported keeps its place as long as
	// it exists, and others follow by name. Counts of this process are added up as "{other}", except
	// for the queues that it serves, and those that had events lately.
	MaxQueues int
	// Buckets of the histograms, in seconds; nil is 1 ms to 2 h. Servers that store native
	// histograms get those, too.
	Buckets []float64
	// Timeout limits how long a scrape waits for Redis; 0 is 5 s. Reading one queue takes at most
	// half of it, so a node that doesn't answer leaves time for the other queues.
	Timeout time.Duration
	// CheckEvery is how often Check runs, for worqr_findings; 0 is never. It reads all keys, so set
	// it in one or two processes of a fleet, for example to five minutes. It takes at most a
	// twentieth of the time. The Redis user needs the rule "Doctor" of docs/security.md.
	CheckEvery time.Duration
}

// Other is the label of the queues beyond Options.MaxQueues. No queue has this name.
const Other = "{other}"

const (
	mostQueues = 200
	timeout    = 5 * time.Second
)

// Metrics are the metrics of one peer. They're a prometheus.Collector: register them once. For
// several peers in a process, register the Metrics of each with prometheus.WrapRegistererWith.
type Metrics struct {
	opts   Options
	counts counts
	state  state
	check  checkup
	deaths deaths

	labels *labels

	mu      sync.Mutex  // protects the fields below
	peer    *worqr.Peer // nil before Watch
	sources []source
}

// New returns metrics. Opts may be nil.
func New(opts *Options) *Metrics {
	m := &Metrics{}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.MaxQueues <= 0 {
		m.opts.MaxQueues = mostQueues
	}
	if m.opts.Timeout <= 0 {
		m.opts.Timeout = timeout
	}
	if m.opts.Buckets == nil {
		m.opts.Buckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 7200}
	}
	m.counts = newCounts(m.opts.Buckets)
	m.labels = newLabels(m.opts.MaxQueues, m.counts.drop)
	return m
}

// Watch makes m export what only the peer knows: its health, and the state of queues. The peer is
// the one that has m's Trace. Call it once; it panics the second time, and if p is nil.
func (m *Metrics) Watch(p *worqr.Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case p == nil:
		panic("worqrprom: Watch needs a peer")
	case m.peer != nil:
		panic("worqrprom: Watch was called before; use one Metrics for each peer")
	}
	m.peer, m.sources = p, sourcesOf(p)
}

// watched returns the peer, or nil before Watch, and its sources.
func (m *Metrics) watched() (*worqr.Peer, []source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peer, m.sources
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.counts.all() {
		c.Describe(to)
	}
	for _, d := range ofPeer {
		to <- d.desc
	}
	for _, d := range ofQueue {
		to <- d.desc
	}
	to <- running
	to <- readable
	to <- omitted
	to <- denied
	to <- evictedAt
	to <- findings
	to <- silenced
	to <- checked
	to <- sourceReadable
	_, sources := m.watched()
	for _, s := range sources {
		for _, d := range s.descs {
			to <- d
		}
	}
}

// Collect implements prometheus.Collector. It blocks while the state of queues is read, for at most
// Options.Timeout.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.counts.all() {
		c.Collect(to)
	}
	for a, n := range m.labels.inProgress() {
		to <- prometheus.MustNewConstMetric(running, prometheus.GaugeValue, float64(n), a.queue, a.handler)
	}
	p, sources := m.watched()
	if p == nil {
		return
	}
	var reported sync.WaitGroup
	defer reported.Wait()
	reported.Go(func() { m.collectSources(sources, to) })
	for _, f := range ofPeer {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(p))
	}
	m.deaths.collect(to)
	m.collectQueues(p, to)
	if m.opts.CheckEvery > 0 {
		m.check.collect(p, m.opts.CheckEvery, to)
	}
}
