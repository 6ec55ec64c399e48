package worqrprom

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

var sourceReadable = prometheus.NewDesc("worqr_source_readable", "1 if the source in worqr.Options.Sources reported in time.", []string{"source"}, nil)

// A source exports the metrics of one in worqr.Options.Sources.
type source struct {
	inspect.Source
	descs map[string]*prometheus.Desc // by metric
}

func sourcesOf(p *worqr.Peer) (all []source) {
	for _, s := range p.Sources() {
		descs := map[string]*prometheus.Desc{}
		for _, m := range s.Metrics {
			var labels []string
			if m.PerQueue {
				labels = append(labels, "queue")
			}
			descs[m.Name] = prometheus.NewDesc("worqr_source_"+s.Name+"_"+m.Name, cmp.Or(m.Help, "Reported by "+s.Name+"."), labels, nil)
		}
		all = append(all, source{s, descs})
	}
	return all
}

// collectSources exports what the sources report. It blocks for at most Options.Timeout.
func (m *Metrics) collectSources(sources []source, to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), m.opts.Timeout)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range sources {
		all.Go(func() { s.collect(ctx, to) })
	}
	all.Wait()
}

func (s *source) collect(ctx context.Context, to chan<- prometheus.Metric) {
	report, err := s.Report(ctx)
	to <- prometheus.MustNewConstMetric(sourceReadable, prometheus.GaugeValue, truth(err == nil), s.Name)
	for _, v := range report.Samples {
		kind, labels := prometheus.GaugeValue, []string(nil)
		if strings.HasSuffix(v.Metric, "_total") {
			kind = prometheus.CounterValue
		}
		if v.Queue != "" {
			labels = append(labels, v.Queue)
		}
		to <- prometheus.MustNewConstMetric(s.descs[v.Metric], kind, v.Number, labels...)
	}
}
