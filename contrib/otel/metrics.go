package worqrotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/worqr/worqr/worqrtrace"
)

// Metrics are the OpenTelemetry instruments.
type metrics struct {
	meter     metric.Meter
	sent      messagingconv.ClientSentMessages
	consumed  messagingconv.ClientConsumedMessages
	operation messagingconv.ClientOperationDuration
	process   messagingconv.ProcessDuration
	wait      metric.Float64Histogram
	failed    metric.Int64Counter
	returned  metric.Int64Counter
	evictions metric.Int64Counter
	losses    metric.Int64Counter
}

// sure reports an instrument that can't be created, which then records nothing.
func sure[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

var seconds = metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 60, 300, 1800, 7200)

func newMetrics(m metric.Meter) metrics {
	return metrics{
		meter:     m,
		sent:      sure(messagingconv.NewClientSentMessages(m)),
		consumed:  sure(messagingconv.NewClientConsumedMessages(m)),
		operation: sure(messagingconv.NewClientOperationDuration(m, seconds)),
		process:   sure(messagingconv.NewProcessDuration(m, seconds)),
		wait: sure(m.Float64Histogram("worqr.task.wait", metric.WithUnit("s"), seconds,
			metric.WithDescription("Time from when a task could start until it did, if known."))),
		failed: sure(m.Int64Counter("worqr.tasks.failed", metric.WithUnit("{message}"),
			metric.WithDescription("Tasks that this process moved to the failed queue instead of starting them."))),
		returned: sure(m.Int64Counter("worqr.tasks.returned", metric.WithUnit("{message}"),
			metric.WithDescription("Tasks of evicted workers that this process has returned to the front."))),
		evictions: sure(m.Int64Counter("worqr.worker.evictions", metric.WithUnit("{eviction}"),
			metric.WithDescription("Number of times this worker was evicted."))),
		losses: sure(m.Int64Counter("worqr.connection.losses", metric.WithUnit("{loss}"),
			metric.WithDescription("Number of times Redis stopped answering this process."))),
	}
}

const (
	own     = messagingconv.SystemAttr("worqr")
	enqueue = "enqueue"
	process = "process"
)

func of(queue string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, semconv.MessagingDestinationName(plain(queue)))
}

// Trace returns functions for Options.Trace that record the metrics. To use your own functions,
// too, see worqrtrace.Join.
func (t *Telemetry) Trace() *worqrtrace.Trace {
	m, ctx := &t.metrics, context.Background()
	return &worqrtrace.Trace{
		Enqueued: func(q worqrtrace.Queue) {
			about := of(q.Queue, semconv.MessagingOperationTypeSend)
			if q.Err != nil {
				about = append(about, semconv.ErrorTypeKey.String(errorType(q.Err)))
			}
			m.sent.Add(ctx, int64(q.Tasks), enqueue, own, about...)
			m.operation.Record(ctx, q.Took.Seconds(), enqueue, own, about...)
		},
		Started: func(a worqrtrace.Task) {
			m.consumed.Add(ctx, 1, process, own, of(a.Queue)...)
			if waited, known := a.Wait(); known {
				m.wait.Record(ctx, waited.Seconds(), metric.WithAttributes(of(a.Queue, system)...))
			}
		},
		Ended: func(a worqrtrace.Task) {
			about := of(a.Queue, attribute.String("worqr.outcome", string(a.Outcome)))
			if a.Outcome != worqrtrace.Finished && a.Outcome != worqrtrace.Snoozed {
				about = append(about, semconv.ErrorTypeKey.String(string(a.Outcome)))
			}
			m.process.Record(ctx, a.Ran.Seconds(), process, own, about...)
		},
		Failed: func(q worqrtrace.Queue) {
			if !q.OnFailed { // otherwise it had failed before
				m.failed.Add(ctx, int64(q.Tasks), metric.WithAttributes(of(q.Queue, system, semconv.ErrorTypeKey.String(string(q.Kind)))...))
			}
		},
		TasksReturned: func(q worqrtrace.Queue) {
			m.returned.Add(ctx, int64(q.Tasks), metric.WithAttributes(of(q.Queue, system)...))
		},
		Evicted:        func(worqrtrace.Worker) { m.evictions.Add(ctx, 1, metric.WithAttributes(system)) },
		ConnectionLost: func(worqrtrace.Connection) { m.losses.Add(ctx, 1, metric.WithAttributes(system)) },
	}
}
