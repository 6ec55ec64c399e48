package worqrprom

import (
	"cmp"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr/worqrtrace"
)

var evictedAt = prometheus.NewDesc("worqr_worker_evicted_timestamp_seconds", "When this process evicted another worker, for 15 minutes.", []string{"name", "host"}, nil)

// How long an evicted worker has a series of its own, and how many do. The rest share one.
const (
	mourned     = 15 * time.Minute
	mostMourned = 20
)

// deaths are the workers that were evicted lately, by name and host.
type deaths struct {
	mu sync.Mutex // protects the field below
	at map[[2]string]time.Time
}

func (d *deaths) add(w worqrtrace.Worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[[2]string]time.Time{}
	}
	maps.DeleteFunc(d.at, isOld)
	of := [2]string{strings.ToValidUTF8(cmp.Or(w.Name, w.WorkerID), "\uFFFD"), strings.ToValidUTF8(w.Host, "\uFFFD")}
	if _, has := d.at[of]; !has && len(d.at) >= mostMourned {
		of = [2]string{Other, Other}
	}
	d.at[of] = w.At
}

func isOld(_ [2]string, at time.Time) bool { return time.Since(at) > mourned }

func (d *deaths) collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.at, isOld)
	for of, at := range d.at {
		to <- prometheus.MustNewConstMetric(evictedAt, prometheus.GaugeValue, float64(at.UnixMilli())/1000, of[0], of[1])
	}
}
