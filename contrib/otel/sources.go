package worqrotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// Watch exports the metrics of the peer's Options.Sources, which are read when metrics are. Call it once.
func (t *Telemetry) Watch(p *worqr.Peer) {
	sources := p.Sources()
	if len(sources) == 0 {
		return
	}
	m := t.metrics.meter
	readable := sure(m.Float64ObservableGauge("worqr.source.readable", metric.WithDescription("1 if the source in worqr.Options.Sources reported in time.")))
	all := []metric.Observable{readable}
	instruments := make([]map[string]metric.Float64Observable, len(sources))
	for i, s := range sources {
		instruments[i] = map[string]metric.Float64Observable{}
		for _, one := range s.Metrics {
			o := instrument(m, "worqr.source."+s.Name+"."+one.Name, one.Help)
			instruments[i][one.Name], all = o, append(all, o)
		}
	}
	_ = sure(m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		for i, s := range sources { // one that hangs holds up only the first call
			report, err := s.Report(ctx)
			is := 1.
			if err != nil {
				is = 0
			}
			to.ObserveFloat64(readable, is, metric.WithAttributes(attribute.String("worqr.source", s.Name), system))
			observe(to, instruments[i], report.Samples)
		}
		return nil // an error would drop all metrics of the process
	}, all...))
}

// instrument returns a counter if the name says so, otherwise a gauge.
func instrument(m metric.Meter, name, help string) metric.Float64Observable {
	if strings.HasSuffix(name, "_total") {
		return sure(m.Float64ObservableCounter(name, metric.WithDescription(help)))
	}
	return sure(m.Float64ObservableGauge(name, metric.WithDescription(help)))
}

func observe(to metric.Observer, instruments map[string]metric.Float64Observable, samples []inspect.Sample) {
	for _, v := range samples {
		about := []attribute.KeyValue{system}
		if v.Queue != "" {
			about = of(v.Queue, about...)
		}
		to.ObserveFloat64(instruments[v.Metric], v.Number, metric.WithAttributes(about...))
	}
}
