package worqrprom

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A figure is a metric whose value is read from something.
type figure[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(T) float64
}

func figureOf[T any](kind prometheus.ValueType, name, help string, value func(T) float64, labels ...string) figure[T] {
	return figure[T]{prometheus.NewDesc("worqr_"+name, help, labels, nil), kind, value}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// ofPeer are the figures of this process that don't come from the trace.
var ofPeer = []figure[*worqr.Peer]{
	figureOf(prometheus.CounterValue, "handler_errors_total", "Errors and panics of handlers in this process.",
		func(p *worqr.Peer) float64 { return float64(p.Stats().HandlerErrors) }),
	figureOf(prometheus.GaugeValue, "stuck_handlers", "Handlers that were abandoned and are still running.",
		func(p *worqr.Peer) float64 { return float64(p.Stats().StuckHandlers) }),
	figureOf(prometheus.CounterValue, "lost_writes_total", "Signs that Redis had lost writes.",
		func(p *worqr.Peer) float64 { return float64(p.Stats().LostWrites) }),
	figureOf(prometheus.CounterValue, "enqueues_refused_total", "Calls of this process that added no task, since Redis refused them or wasn't reached.",
		func(p *worqr.Peer) float64 { return float64(p.Stats().EnqueuesRefused) }),
	figureOf(prometheus.GaugeValue, "clock_ahead_seconds", "By how much this machine's clock is ahead of Redis's; less than a second is 0.",
		func(p *worqr.Peer) float64 { return p.Stats().ClockAhead.Seconds() }),
	figureOf(prometheus.GaugeValue, "ready", "1 while the peer serves all its queues.",
		func(p *worqr.Peer) float64 { return truth(p.Ready() == nil) }),
	figureOf(prometheus.GaugeValue, "last_beat_timestamp_seconds", "When Redis last answered a heartbeat; 0 before the first.",
		func(p *worqr.Peer) float64 {
			if at := p.LastBeat(); !at.IsZero() {
				return float64(at.UnixMilli()) / 1000
			}
			return 0
		}),
}

// ofQueue are the figures of a queue in Redis.
var ofQueue = []figure[inspect.QueueStats]{
	ofState("waiting_tasks", "Waiting tasks that may start: on the list, and named ones.", func(s inspect.QueueStats) float64 { return float64(s.Waiting) }),
	ofState("scheduled_tasks", "Tasks that wait for a time, a retry, or the running task with their key.", func(s inspect.QueueStats) float64 { return float64(s.Scheduled) }),
	ofState("running_tasks", "Tasks that workers hold, running or prefetched.", func(s inspect.QueueStats) float64 { return float64(s.Running) }),
	ofState("retrying_tasks", "Tasks that wait for a retry, at least.", func(s inspect.QueueStats) float64 { return float64(s.Retrying) }),
	figureOf(prometheus.CounterValue, "queue_tokens_total", "Fencing tokens issued: one for each start. The same for all replicas: use max by (queue), not sum.",
		func(s inspect.QueueStats) float64 { return float64(s.Tokens) }, "queue"),
	ofState("failed_tasks", "Tasks in the failed queue.", func(s inspect.QueueStats) float64 { return float64(s.Failed) }),
	ofState("oldest_task_age_seconds", "How long ago the task that has waited longest could have started.", func(s inspect.QueueStats) float64 { return s.Oldest.Seconds() }),
	ofState("workers", "Workers that serve the queue.", func(s inspect.QueueStats) float64 { return float64(s.Workers) }),
	ofState("idle_workers", "Workers of the queue with free slots.", func(s inspect.QueueStats) float64 { return float64(s.IdleWorkers) }),
	ofState("silent", "1 while the queue has workers, and none has renewed its lease in time.", func(s inspect.QueueStats) float64 { return truth(s.Silent) }),
	ofState("paused", "1 while the queue is paused.", func(s inspect.QueueStats) float64 { return truth(s.Paused) }),
}

func ofState(name, help string, value func(inspect.QueueStats) float64) figure[inspect.QueueStats] {
	return figureOf(prometheus.GaugeValue, "queue_"+name, help+" The same for all replicas: use max by (queue), not sum.", value, "queue")
}

var readable = prometheus.NewDesc("worqr_queues_readable", "1 if the state of all queues could be read from Redis.", nil, nil)

var omitted = prometheus.NewDesc("worqr_queues_omitted", "Queues whose state is missing here because there are more than Options.MaxQueues.", nil, nil)

var denied = prometheus.NewDesc("worqr_denied", "1 while Redis refuses the login of this process, or a permission.", nil, nil)

// refused reports whether Redis denied access: its login is wrong, or its user lacks a permission.
func refused(err error) bool {
	return errors.Is(err, worqr.ErrDenied) || errors.Is(err, worqr.ErrLogin)
}

func (m *Metrics) collectQueues(p *worqr.Peer, to chan<- prometheus.Metric) {
	queues, n, err := m.state.read(func() (map[string]inspect.QueueStats, int, error) { return m.readQueues(p) })
	to <- prometheus.MustNewConstMetric(denied, prometheus.GaugeValue, truth(refused(err)))
	if m.opts.NoQueues {
		return
	}
	to <- prometheus.MustNewConstMetric(readable, prometheus.GaugeValue, truth(err == nil))
	to <- prometheus.MustNewConstMetric(omitted, prometheus.GaugeValue, float64(n))
	for name, s := range queues {
		for _, f := range ofQueue {
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(s), name)
		}
	}
}

// A state is the last read state of the queues.
type state struct {
	mu      sync.Mutex // held during a read; protects the fields below
	at      time.Time
	queues  map[string]inspect.QueueStats
	omitted int
	err     error
	shown   map[string]bool // by the last read that found all names
}

// fresh is how long it's cached: several servers may scrape at the same time.
const fresh = time.Second

func (s *state) read(read func() (map[string]inspect.QueueStats, int, error)) (map[string]inspect.QueueStats, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) > fresh {
		s.queues, s.omitted, s.err = read()
		s.at = time.Now()
	}
	return s.queues, s.omitted, s.err
}

// chooseLocked returns up to most of the queues, and how many it leaves out. Those that were shown before come
// first, so that series don't come and go.
func (s *state) chooseLocked(names []string, most int, all bool) (chosen []string, omitted int) {
	chosen = names
	if omitted = max(len(names)-most, 0); omitted > 0 {
		chosen = slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(truth(s.shown[b]), truth(s.shown[a])) })[:most]
	}
	if all {
		s.shown = map[string]bool{}
		for _, name := range chosen {
			s.shown[name] = true
		}
	}
	return chosen, omitted
}

// readers is how many queues are read at a time, apart from those that take longer than slow: the node that has them may
// be down, and others have the rest.
const (
	readers = 8
	slow    = 100 * time.Millisecond
)

// readQueues reads the state of the queues, and returns how many are beyond the limit. It leaves out a queue that
// is damaged, or on a node that doesn't answer.
func (m *Metrics) readQueues(p *worqr.Peer) (map[string]inspect.QueueStats, int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), m.opts.Timeout)
	defer cancel()
	if m.opts.NoQueues {
		return nil, 0, p.Ping(ctx)
	}
	names, first := m.names(ctx, p)
	names, omitted := m.state.chooseLocked(names, m.opts.MaxQueues, first == nil)
	stats, errs := make([]inspect.QueueStats, len(names)), make([]error, len(names))
	var reads sync.WaitGroup
	room := make(chan struct{}, readers)
	for i, name := range names {
		room <- struct{}{}
		reads.Go(func() {
			release := sync.OnceFunc(func() { <-room })
			defer release()
			defer time.AfterFunc(slow, release).Stop()
			ctx, end := context.WithTimeout(ctx, m.opts.Timeout/2)
			defer end()
			stats[i], errs[i] = p.Queue(name).Stats(ctx)
		})
	}
	reads.Wait()
	queues := map[string]inspect.QueueStats{}
	for i, name := range names {
		if errs[i] == nil {
			queues[name] = stats[i]
		}
		first = cmp.Or(first, errs[i])
	}
	return queues, omitted, first
}

// names returns the queues, sorted, none of them twice. If reading fails, it returns those that were read.
func (m *Metrics) names(ctx context.Context, p *worqr.Peer) (names []string, err error) {
	names = slices.Clone(m.opts.Queues)
	if len(names) == 0 {
		for name, failed := range p.Queues(ctx) {
			if err = failed; err == nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}
