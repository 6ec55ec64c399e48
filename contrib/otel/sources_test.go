package worqrotel

import (
	"context"
	"errors"
	"testing"

	"github.com/matryer/is"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
)

// Readers get what sources report, and which of them fail.
func TestSources(t *testing.T) {
	t.Parallel()
	is, reader := is.New(t), metric.NewManualReader()
	fails := peertest.Outbox(func(context.Context) (inspect.SourceReport, error) {
		return peertest.Pending(), errors.New("no such table")
	})
	fails.Name = "fails"
	New(&Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}).Watch(
		peertest.Open(t, worqr.Options{Sources: []inspect.Source{peertest.Outbox(nil), fails}}))
	var all metricdata.ResourceMetrics
	is.NoErr(reader.Collect(t.Context(), &all))
	got := map[string]float64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		points := []metricdata.DataPoint[float64](nil)
		switch data := m.Data.(type) {
		case metricdata.Gauge[float64]:
			points = data.DataPoints
		case metricdata.Sum[float64]:
			is.True(data.IsMonotonic && m.Name == "worqr.source.outbox.sent_rows_total")
			points = data.DataPoints
		}
		for _, p := range points {
			queue, _ := p.Attributes.Value("messaging.destination.name")
			source, _ := p.Attributes.Value("worqr.source")
			got[m.Name+" "+queue.AsString()+source.AsString()] = p.Value
		}
	}
	is.Equal(got, map[string]float64{
		"worqr.source.outbox.pending_rows emails": 2, "worqr.source.outbox.oldest_row_age_seconds ": 90, "worqr.source.outbox.sent_rows_total ": 7,
		"worqr.source.readable outbox": 1, "worqr.source.readable fails": 0,
	})
}
