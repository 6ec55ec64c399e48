package worqrotel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/worqrtrace"
)

func TestMain(m *testing.M) { os.Exit(peertest.Main(m)) }

// A bench has telemetry whose spans and metrics stay in memory, and a peer that uses it.
type bench struct {
	*Telemetry
	spans  *tracetest.InMemoryExporter
	reader *metric.ManualReader
	peer   *worqr.Peer
	queue  *worqr.Queue
}

func newBench(t testing.TB, child bool) *bench {
	t.Helper()
	b := &bench{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	b.Telemetry = New(&Options{
		TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(b.spans)), MeterProvider: metric.NewMeterProvider(metric.WithReader(b.reader)),
		Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), Child: child,
	})
	b.peer = peertest.Open(t, worqr.Options{Trace: b.Trace()})
	b.peer.Use(b.Handler)
	b.queue = b.peer.Queue("q")
	return b
}

// named waits for n spans with a name.
func (b *bench) named(t testing.TB, name string, n int) (all tracetest.SpanStubs) {
	t.Helper()
	peertest.Eventually(t, fmt.Sprintf("there are %d spans %q", n, name), func() bool {
		all = nil
		for _, s := range b.spans.GetSpans() {
			if s.Name == name {
				all = append(all, s)
			}
		}
		return len(all) >= n
	})
	return all
}

func values(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// The span of an attempt links to its producer's, and each has the attributes of the conventions.
func TestLinked(t *testing.T) {
	t.Parallel()
	is, b := is.New(t), newBench(t, false)
	b.queue.Handle(func(ctx context.Context, _ *worqr.Task) error {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("no span in the context")
		}
		return nil
	}, nil)
	key := redistest.Sure(b.Add(t.Context(), b.queue, worqr.TaskSpec{Payload: []byte("hello"), Headers: map[string]string{"own": "x"}}))(t)[0]
	defer peertest.Run(t, b.peer)()
	consumer, producer := b.named(t, "process q", 1)[0], b.named(t, "add q", 1)[0]
	is.Equal(producer.SpanKind, trace.SpanKindProducer)
	is.Equal(values(producer), map[string]string{
		"messaging.system": "worqr", "messaging.operation.name": "add", "messaging.operation.type": "send", "messaging.destination.name": "q",
		"messaging.message.id": key, "messaging.message.body.size": "5",
	})
	is.Equal(consumer.SpanKind, trace.SpanKindConsumer)
	about := values(consumer)
	is.True(about["worqr.attempt_id"] != "")
	delete(about, "worqr.attempt_id")
	is.Equal(about, map[string]string{
		"messaging.system": "worqr", "messaging.operation.name": "process", "messaging.operation.type": "process", "messaging.destination.name": "q",
		"messaging.message.id": key, "messaging.message.body.size": "5", "worqr.attempt": "1",
	})
	is.Equal(len(consumer.Links), 1)
	is.Equal(consumer.Links[0].SpanContext.SpanID(), producer.SpanContext.SpanID())
	is.True(!consumer.Parent.IsValid()) // a trace of its own
	is.Equal(consumer.Status.Code, codes.Unset)
}

// With Child, both spans are in one trace, whatever the way to add tasks.
func TestChild(t *testing.T) {
	t.Parallel()
	is, b, ctx := is.New(t), newBench(t, true), t.Context()
	b.queue.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	redistest.Sure(b.Add(ctx, b.queue, worqr.TaskSpec{Payload: []byte("1")}, worqr.TaskSpec{Payload: []byte("2")}))(t)
	redistest.Sure(b.Add(ctx, b.queue, worqr.TaskSpec{Payload: []byte("3"), At: time.UnixMilli(1)}))(t)
	redistest.Sure(b.Add(ctx, b.queue, worqr.TaskSpec{Key: "key", Payload: []byte("4")}))(t)
	is.NoErr(b.queue.Enqueue(ctx, []byte("5"))) // has no headers
	defer peertest.Run(t, b.peer)()
	children := map[string]int{}
	for _, s := range b.named(t, "process q", 5) {
		children[s.Parent.SpanID().String()]++
	}
	many := b.named(t, "add q", 3)[0]
	is.Equal(values(many)["messaging.batch.message_count"], "2")
	is.Equal(children[many.SpanContext.SpanID().String()], 2)
	is.Equal(children[b.named(t, "add q", 3)[1].SpanContext.SpanID().String()], 1)
	is.Equal(children[b.named(t, "add q", 3)[2].SpanContext.SpanID().String()], 1)
	is.Equal(children[trace.SpanID{}.String()], 1)
}

// Failures appear in the span, and in the metrics.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	is, b, ctx := is.New(t), newBench(t, false), t.Context()
	b.queue.Handle(func(_ context.Context, task *worqr.Task) error {
		switch string(task.Payload) {
		case "bad":
			return worqr.Permanent(errors.New("bad"))
		case "later":
			return worqr.Snooze(time.Hour)
		case "panic":
			panic("oh")
		}
		return nil
	}, &worqr.HandleOptions{OnPanic: worqr.FailOnPanic})
	for _, payload := range []string{"good", "bad", "later", "panic"} {
		redistest.Sure(b.Add(ctx, b.queue, worqr.TaskSpec{Payload: []byte(payload)}))(t)
	}
	_, err := b.Add(ctx, b.queue, worqr.TaskSpec{Headers: map[string]string{"": ""}})
	is.True(errors.Is(err, worqr.ErrInvalid))
	defer peertest.Run(t, b.peer)()
	kinds := map[string]int{}
	for _, s := range b.named(t, "process q", 4) {
		kinds[values(s)["error.type"]]++
		is.Equal(s.Status.Code == codes.Error, values(s)["error.type"] != "")
	}
	is.Equal(kinds, map[string]int{"": 2, "permanent": 1, "panic": 1})
	kinds = map[string]int{}
	for _, s := range b.named(t, "add q", 5) {
		kinds[values(s)["error.type"]]++
	}
	is.Equal(kinds, map[string]int{"": 4, "invalid": 1})
	peertest.Eventually(t, "all is measured", func() bool { return b.measured(t)["messaging.process.duration"] == 4 })
	got := b.measured(t)
	for name, want := range map[string]int64{
		"messaging.client.sent.messages": 4, "messaging.client.consumed.messages": 4, "messaging.client.operation.duration": 4, "worqr.task.wait": 4,
		"messaging.process.duration/finished": 1, "messaging.process.duration/failed": 2, "messaging.process.duration/snoozed": 1,
	} {
		is.Equal(got[name], want) // the one named in this line
	}
}

// If a method of the handler's error panics, as with a nil pointer, the span still ends, and the
// peer gets the error itself.
func TestErrorPanics(t *testing.T) {
	t.Parallel()
	is, b, ctx := is.New(t), newBench(t, false), t.Context()
	b.queue.Handle(func(context.Context, *worqr.Task) error { return (*os.PathError)(nil) }, &worqr.HandleOptions{OnPanic: worqr.FailOnPanic})
	redistest.Sure(b.Add(ctx, b.queue, worqr.TaskSpec{Payload: []byte("x")}))(t)
	defer peertest.Run(t, b.peer)()
	span := b.named(t, "process q", 1)[0]
	is.Equal(span.Status.Code, codes.Error)
	is.Equal(values(span)["error.type"], "panic")
	peertest.Eventually(t, "it has failed", func() bool { return peertest.Stats(t, b.queue).Failed == 1 })
	is.True(strings.Contains(peertest.Failed(t, b.queue)[0].Error, "*fs.PathError: "))
}

// exiting is an error whose text can't be read.
type exiting struct{}

func (exiting) Error() string { runtime.Goexit(); return "" }

// The span ends with an error even if the Error method ends the goroutine.
func TestErrorExits(t *testing.T) {
	t.Parallel()
	is, b, ctx := is.New(t), newBench(t, false), t.Context()
	b.queue.Handle(func(context.Context, *worqr.Task) error { return exiting{} }, &worqr.HandleOptions{MaxRetries: -1})
	redistest.Sure(b.Add(ctx, b.queue, worqr.TaskSpec{Payload: []byte("x")}))(t)
	defer peertest.Run(t, b.peer)()
	peertest.Eventually(t, "it has failed", func() bool { return peertest.Stats(t, b.queue).Failed == 1 })
	is.Equal(b.named(t, "process q", 1)[0].Status.Code, codes.Error)
}

// measured returns the sums or counts of each instrument, and for attempts, by outcome.
func (b *bench) measured(t testing.TB) map[string]int64 {
	t.Helper()
	sums := map[string]int64{}
	b.eachPoint(t, func(name string, n int64, about attribute.Set) {
		if v, _ := about.Value("messaging.system"); v.AsString() != "worqr" {
			t.Errorf("%s: %v", name, about)
		}
		sums[name] += n
		if v, ok := about.Value("worqr.outcome"); ok {
			sums[name+"/"+v.AsString()] += n
		}
	})
	return sums
}

// eachPoint passes the sum or count of each data point to do.
func (b *bench) eachPoint(t testing.TB, do func(name string, n int64, about attribute.Set)) {
	t.Helper()
	var all metricdata.ResourceMetrics
	peertest.Must(t, b.reader.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					do(m.Name, p.Value, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					do(m.Name, int64(p.Count), p.Attributes)
				}
			}
		}
	}
}

// Events that the fleet of this test doesn't cause are measured, too.
func TestMeasured(t *testing.T) {
	t.Parallel()
	is, b := is.New(t), newBench(t, false)
	trace := b.Trace()
	trace.TasksReturned(worqrtrace.Queue{Queue: "q", Tasks: 3})
	trace.Failed(worqrtrace.Queue{Queue: "q", Tasks: 4, Kind: inspect.FailureExpired})
	trace.Failed(worqrtrace.Queue{Queue: "q", Tasks: 4, Kind: inspect.FailureCrashed, OnFailed: true}) // it had failed before
	trace.Evicted(worqrtrace.Worker{})
	trace.ConnectionLost(worqrtrace.Connection{})
	trace.Started(worqrtrace.Task{Queue: "q", EnqueuedAt: time.Now(), Crashes: 1}) // its wait isn't known
	trace.Enqueued(worqrtrace.Queue{Queue: "q", Tasks: 2, Err: worqr.ErrUnknownOutcome})
	is.Equal(b.measured(t), map[string]int64{
		"worqr.tasks.returned": 3, "worqr.tasks.failed": 4, "worqr.worker.evictions": 1, "worqr.connection.losses": 1, "messaging.client.consumed.messages": 1,
		"messaging.client.sent.messages": 2, "messaging.client.operation.duration": 1,
	})
}

// The caller's headers aren't modified. If they have no room for more, none is added.
func TestInject(t *testing.T) {
	t.Parallel()
	is, b := is.New(t), newBench(t, false)
	ctx, span := b.tracer.Start(t.Context(), "caller")
	defer span.End()
	own := map[string]string{"own": "x"}
	got := b.Inject(ctx, own)
	is.Equal(len(own), 1)
	is.True(got["own"] == "x" && strings.Contains(got["traceparent"], span.SpanContext().TraceID().String()))
	is.Equal(b.Inject(context.Background(), nil), map[string]string(nil))
	full := map[string]string{"own": strings.Repeat("x", worqr.MaxHeaderBytes-3)}
	is.Equal(b.Inject(ctx, full), full)
}

func TestErrorType(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(errorType(fmt.Errorf("no: %w", worqr.ErrTimeout)), "timeout")
	is.Equal(errorType(worqr.Malformed(errors.New("x"))), "malformed")
	is.Equal(errorType(worqr.RetryAfter(&os.PathError{Err: os.ErrNotExist}, 0)), "*errors.errorString")
}
