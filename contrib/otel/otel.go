// Package worqrotel traces and measures worqr with OpenTelemetry, following its semantic
// conventions for messaging.
//
//	telemetry := worqrotel.New(nil)
//	peer, err := worqr.Open(url, &worqr.Options{Trace: telemetry.Trace()}) // metrics
//	peer.Use(telemetry.Handler)                                            // a span for each attempt
//	keys, err := telemetry.Add(ctx, peer.Queue("emails"), task)            // a span for the producer
//
// # Spans
//
// Add starts a span of kind producer, "add emails", and sends its context in the headers of the
// tasks. Handler starts a span of kind consumer, such as "process
// emails", which links to the producer's span. By default, the consumer's span begins a new trace,
// since a task may run much later and several times; with Options.Child, it's a child of the
// producer's span. Tasks of Queue.Enqueue have no headers, so their spans have no link.
//
// # Metrics
//
//	messaging.client.sent.messages         tasks added
//	messaging.client.consumed.messages     attempts started
//	messaging.client.operation.duration    calls that add tasks, in seconds
//	messaging.process.duration             attempts, in seconds, with worqr.outcome
//	worqr.task.wait                        time from when a task could start until it did, in seconds, if known
//	worqr.tasks.failed                     tasks that failed without starting, with error.type: expired or crashed
//	worqr.tasks.returned                   tasks of evicted workers that this process returned
//	worqr.worker.evictions                 number of times this worker was evicted
//	worqr.connection.losses                number of times Redis stopped answering
//	worqr.source.readable                  with Watch: 1 if a source in worqr.Options.Sources reported in time
//	worqr.source.<source>.<metric>         with Watch: its metrics
//
// Each queue has data points of its own. Instruments of package metric can't drop any, and its SDK
// keeps 2,000 for each instrument and adds up the rest under otel.metric.overflow. If names of queues
// come and go, export with delta temporality, or drop the attribute messaging.destination.name with a
// view.
//
// Spans have the key of a task and the text of errors, but no payload or result. Exporters refuse a
// whole batch if a text isn't UTF-8, or if the batch is too large, so other bytes appear as escapes
// such as \xff, texts are cut to 1 KiB, and a producer's tracestate of more than 512 bytes is dropped.
package worqrotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/worqr/worqr"
)

// Options configure Telemetry. A zero field means the default.
type Options struct {
	// TracerProvider, MeterProvider and Propagator default to those of package otel.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
	// Child makes the span of an attempt a child of the producer's. Then both are in one trace.
	Child bool
}

// Telemetry records spans and metrics. It's safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	child      bool
	metrics    metrics
}

const scope = "github.com/worqr/worqr/contrib/otel"

var system = semconv.MessagingSystemKey.String("worqr")

// New returns telemetry. Opts may be nil.
func New(opts *Options) *Telemetry {
	var o Options
	if opts != nil {
		o = *opts
	}
	spans, meters := cmp.Or(o.TracerProvider, otel.GetTracerProvider()), cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	return &Telemetry{
		tracer:     spans.Tracer(scope, trace.WithInstrumentationVersion(worqr.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: cmp.Or(o.Propagator, otel.GetTextMapPropagator()),
		child:      o.Child,
		metrics:    newMetrics(meters.Meter(scope, metric.WithInstrumentationVersion(worqr.Version), metric.WithSchemaURL(semconv.SchemaURL))),
	}
}

// Add is Queue.Add in a producer's span, to which all attempts link.
func (t *Telemetry) Add(ctx context.Context, q *worqr.Queue, tasks ...worqr.TaskSpec) (keys []string, err error) {
	about := semconv.MessagingBatchMessageCount(len(tasks))
	if len(tasks) == 1 {
		about = semconv.MessagingMessageBodySize(len(tasks[0].Payload))
	}
	ctx, end := t.produce(ctx, q, about)
	sent := slices.Clone(tasks)
	for i := range sent {
		sent[i].Headers = t.Inject(ctx, sent[i].Headers)
	}
	keys, err = q.Add(ctx, sent...)
	key := ""
	if len(tasks) == 1 {
		key = cmp.Or(strings.Join(keys, ""), tasks[0].Key)
	}
	end(key, err)
	return keys, err
}

// produce begins a producer's span. End is called with the key of the task.
func (t *Telemetry) produce(ctx context.Context, q *worqr.Queue, more attribute.KeyValue) (_ context.Context, end func(key string, err error)) {
	name := plain(q.Name())
	ctx, span := t.tracer.Start(ctx, "add "+name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		system, semconv.MessagingOperationName("add"), semconv.MessagingOperationTypeSend, semconv.MessagingDestinationName(name), more))
	return ctx, func(key string, err error) {
		if key != "" {
			span.SetAttributes(semconv.MessagingMessageID(plain(key)))
		}
		if err != nil {
			span.SetStatus(codes.Error, plain(err.Error()))
			span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
		}
		span.End()
	}
}

// Inject returns the headers with the context of ctx's span, for producers with spans of their own.
// The map of the caller isn't changed. If the headers would exceed their limits, it returns them as
// they are.
func (t *Telemetry) Inject(ctx context.Context, headers map[string]string) map[string]string {
	all := maps.Clone(headers)
	if all == nil {
		all = map[string]string{}
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(all))
	size := 0
	for name, value := range all {
		size += len(name) + len(value)
	}
	if len(all) == 0 || len(all) > worqr.MaxHeaders || size > worqr.MaxHeaderBytes {
		return headers
	}
	return all
}

// Handler wraps a handler in a consumer's span. Pass it to Peer.Use.
func (t *Telemetry) Handler(h worqr.Handler) worqr.Handler {
	return func(ctx context.Context, task *worqr.Task) error {
		ctx, span := t.consume(ctx, task)
		defer func() { span.End() }() // deferred itself, it would record a panic's value, whatever bytes that has
		kind, text := "panic", "the handler, or a method of its error, panicked or ended the goroutine"
		defer func() { // even then
			if kind != "" {
				span.SetStatus(codes.Error, text)
				span.SetAttributes(semconv.ErrorTypeKey.String(kind))
			}
		}()
		err := h(ctx, task)
		kind, text = failure(err)
		return err
	}
}

// failure returns the kind and the text of a handler's error, or nothing if the handler didn't
// fail. The error's methods are the user's code, and may panic, as those of a nil pointer do.
func failure(err error) (kind, text string) {
	defer func() {
		if recover() != nil {
			kind, text = "panic", "a method of the handler's error panicked"
		}
	}()
	if err == nil || worqr.IsSnooze(err) {
		return "", ""
	}
	return errorType(err), plain(err.Error())
}

// Limits in bytes. A batch of the SDK, which has 512 spans, must stay below 4 MiB, the limit of a collector.
const (
	longest      = 1 << 10 // of a text
	longestState = 512     // of a producer's tracestate, which is dropped if it's longer
)

// plain returns a text that every exporter takes. Bytes that aren't UTF-8, and NUL, which some stores
// refuse, become escapes, so that keys stay distinct.
func plain(text string) string {
	cut := len(text) > longest
	if cut {
		text = text[:longest]
	}
	if !cut && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return text
	}
	var b strings.Builder
	for size := 0; len(text) > 0; text = text[size:] {
		var r rune
		part := ""
		if r, size = utf8.DecodeRuneInString(text); r == 0 || r == utf8.RuneError && size == 1 {
			part = fmt.Sprintf(`\x%02x`, text[0])
		} else {
			part = text[:size]
		}
		if b.Len()+len(part) > longest {
			break
		}
		b.WriteString(part)
	}
	return b.String()
}

func (t *Telemetry) consume(ctx context.Context, task *worqr.Task) (context.Context, trace.Span) {
	about := []attribute.KeyValue{
		system, semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess, semconv.MessagingDestinationName(plain(task.Queue)),
		semconv.MessagingMessageBodySize(len(task.Payload)),
		attribute.String("worqr.attempt_id", plain(task.AttemptID)), attribute.Int("worqr.attempt", task.Attempt),
	}
	if task.Key != "" {
		about = append(about, semconv.MessagingMessageID(plain(task.Key)))
	}
	if task.Failure != nil {
		about = append(about, attribute.Bool("worqr.on_failed", true))
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(about...)}
	sent := t.propagator.Extract(ctx, propagation.MapCarrier(task.Headers)) // with its baggage
	if producer := trace.SpanContextFromContext(sent); producer.IsRemote() {
		if len(producer.TraceState().String()) > longestState {
			producer = producer.WithTraceState(trace.TraceState{})
		}
		parent := trace.SpanContextFromContext(ctx)
		if t.child {
			parent = producer
		}
		sent = trace.ContextWithSpanContext(sent, parent)
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: producer}))
	}
	return t.tracer.Start(sent, "process "+plain(task.Queue), opts...)
}

// errorType returns the kind of an error: one of a few words, or the type of the innermost error.
func errorType(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{worqr.ErrTimeout, "timeout"}, {worqr.ErrCanceled, "canceled"}, {worqr.ErrShutdown, "shutdown"}, {worqr.ErrEvicted, "evicted"},
		{worqr.ErrLeaseExpired, "lease_expired"}, {worqr.ErrUnknownOutcome, "unknown_outcome"}, {worqr.ErrDuplicate, "duplicate"},
		{worqr.ErrTooLarge, "too_large"}, {worqr.ErrInvalid, "invalid"}, {worqr.ErrBadName, "bad_name"}, {worqr.ErrUnreachable, "unreachable"},
		{worqr.ErrDenied, "denied"}, {context.DeadlineExceeded, "deadline_exceeded"}, {context.Canceled, "context_canceled"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	switch {
	case worqr.IsMalformed(err):
		return "malformed"
	case worqr.IsPermanent(err):
		return "permanent"
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return plain(fmt.Sprintf("%T", err))
}
