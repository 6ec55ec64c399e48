package worqrotel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/matryer/is"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collected "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/worqrtrace"
)

// A wire is a client of OpenTelemetry's exporter that keeps what a collector would decode. Like
// OTLP over gRPC, it loses a whole batch that can't be encoded or that exceeds 4 MiB.
type wire struct {
	mu    sync.Mutex // protects the fields below
	spans []*collected.Span
	lost  []error
}

func (*wire) Start(context.Context) error { return nil }

func (*wire) Stop(context.Context) error { return nil }

func (w *wire) UploadTraces(_ context.Context, batch []*collected.ResourceSpans) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var got collected.TracesData
	message, err := proto.Marshal(&collected.TracesData{ResourceSpans: batch})
	if err == nil && len(message) > 4<<20 {
		err = fmt.Errorf("the batch has %d bytes", len(message))
	}
	if err == nil {
		err = proto.Unmarshal(message, &got)
	}
	if err != nil {
		w.lost = append(w.lost, err)
		return err
	}
	for _, resource := range got.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			w.spans = append(w.spans, scope.Spans...)
		}
	}
	return nil
}

// Whatever bytes keys, names, errors and headers have, all spans reach the collector.
func TestHostileBytesAreExported(t *testing.T) {
	t.Parallel()
	is, ctx, collector := is.New(t), t.Context(), &wire{}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(otlptrace.NewUnstarted(collector)))
	telemetry := New(&Options{TracerProvider: provider, Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})})
	peer := peertest.Open(t, worqr.Options{})
	peer.Use(telemetry.Handler)
	queue := peer.Queue("q")
	errs := []error{nil, errors.New("\xff\x00\xfe"), errors.New(strings.Repeat("\xff", 5<<20)), errors.New(strings.Repeat("é", 5<<20))}
	queue.Handle(func(_ context.Context, task *worqr.Task) error { return errs[int(task.Payload[0])%len(errs)] }, &worqr.HandleOptions{MaxRetries: -1})
	for i := range 20 {
		key := fmt.Sprint("\xff\x00\xc3", i)
		headers := map[string]string{"traceparent": "00-\xff", "tracestate": "a=\xff", "baggage": "b=%FF\xff", "\xff": "\xff"}
		redistest.Sure(telemetry.Add(ctx, queue, worqr.TaskSpec{Key: key, Payload: []byte{byte(i)}, Headers: headers}))(t)
	}
	for i := range 10 {
		is.True(peertest.Failure(telemetry.Add(ctx, peer.Queue(strings.Repeat("\xff", i<<18)), worqr.TaskSpec{Key: "key"})) != nil)
	}
	stop := peertest.Run(t, peer)
	peertest.Eventually(t, "all have ended", func() bool { return peertest.Stats(t, queue).Failed == 15 && peertest.Stats(t, queue).Running == 0 })
	stop()
	is.NoErr(provider.ForceFlush(ctx))
	collector.mu.Lock()
	defer collector.mu.Unlock()
	if len(collector.spans) != 50 || len(collector.lost) > 0 {
		t.Fatalf("%d of 50 spans have arrived; %v", len(collector.spans), collector.lost)
	}
	keys := map[string]bool{}
	for _, s := range collector.spans {
		for _, a := range s.Attributes {
			if a.Key == "messaging.message.id" && s.Name == "process q" {
				keys[a.Value.GetStringValue()] = true
			}
		}
	}
	is.Equal(len(keys), 20) // they're still different
	is.True(keys[`\xff\x00\xc37`])
}

// The attributes of metrics are valid, too.
func TestHostileBytesAreMeasured(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	trace := b.Trace()
	trace.Enqueued(worqrtrace.Queue{Queue: "\xff", Tasks: 1, Err: errors.New("\xff")})
	trace.Started(worqrtrace.Task{Queue: "\xff"})
	trace.Ended(worqrtrace.Task{Queue: "\xff", Outcome: worqrtrace.Retried})
	trace.Failed(worqrtrace.Queue{Queue: "\xff", Tasks: 1, Kind: "expired"})
	trace.TasksReturned(worqrtrace.Queue{Queue: "\xff", Tasks: 1})
	seen := 0
	b.eachPoint(t, func(name string, _ int64, about attribute.Set) {
		for _, a := range about.ToSlice() {
			seen++
			if text := a.Value.String(); !utf8.ValidString(text) {
				t.Errorf("%s: %s is %q", name, a.Key, text)
			}
		}
	})
	is.New(t).True(seen > 10)
}

// A panic whose value isn't UTF-8, or is large, doesn't keep the span from the collector.
func TestHostilePanicIsExported(t *testing.T) {
	t.Parallel()
	is, collector := is.New(t), &wire{}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(otlptrace.NewUnstarted(collector)))
	for _, value := range []string{"\xff", strings.Repeat("x", 5<<20)} {
		func() {
			defer func() { _ = recover() }()
			_ = New(&Options{TracerProvider: provider}).Handler(func(context.Context, *worqr.Task) error { panic(value) })(t.Context(), &worqr.Task{Queue: "q"})
		}()
	}
	is.NoErr(provider.ForceFlush(t.Context()))
	is.Equal(len(collector.spans), 2)
	is.Equal(collector.spans[0].Status.Code.String(), "STATUS_CODE_ERROR")
}

// The largest batch of the SDK, with the longest texts, is smaller than what a collector accepts.
func TestLargestBatchIsExported(t *testing.T) {
	t.Parallel()
	is, collector := is.New(t), &wire{}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(otlptrace.NewUnstarted(collector)))
	telemetry := New(&Options{TracerProvider: provider, Propagator: propagation.TraceContext{}, Child: true})
	handler := telemetry.Handler(func(context.Context, *worqr.Task) error { return errors.New(strings.Repeat("x", 5<<20)) })
	var state []string
	for i := range 26 {
		state = append(state, fmt.Sprintf("a%d=%s", i, strings.Repeat("x", 256)))
	}
	headers := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": strings.Join(state, ",")}
	for range sdk.DefaultMaxExportBatchSize {
		_ = handler(t.Context(), &worqr.Task{Queue: strings.Repeat("\xff", 255), Key: strings.Repeat("\xff", 1<<10), Headers: headers})
	}
	is.NoErr(provider.ForceFlush(t.Context()))
	is.Equal(collector.lost, nil)
	is.Equal(len(collector.spans), sdk.DefaultMaxExportBatchSize)
}
