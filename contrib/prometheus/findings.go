package worqrprom

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr"
)

var (
	findings = prometheus.NewDesc("worqr_findings", "Findings of the last check, by kind. The same for all replicas: use max by (kind), not sum.",
		[]string{"kind", "severity"}, nil)
	silenced = prometheus.NewDesc("worqr_findings_silenced", "Findings of the last check that someone has silenced. The same for all replicas.", []string{"kind"}, nil)
	checked  = prometheus.NewDesc("worqr_last_check_timestamp_seconds", "When the last successful check ended; 0 before the first. Missing without Options.CheckEvery.", nil, nil)
)

const (
	checkTimeout = 2 * time.Minute
	checkShare   = 20 // the largest share of the time that checks may take
)

// A checkup looks for damage and risks now and then, in the background: it reads all keys.
type checkup struct {
	mu    sync.Mutex // protects the fields below
	going bool
	next  time.Time         // when the next one may begin
	ended time.Time         // of the last that succeeded; zero before
	found map[[2]string]int // by kind and severity, without those that are silenced

	silenced map[string]int
}

// collect exports the findings of the last check, and starts another one if it's due.
func (c *checkup) collect(p *worqr.Peer, every time.Duration, to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.going && !time.Now().Before(c.next) {
		c.going = true
		go c.run(p, every)
	}
	at := 0.
	if !c.ended.IsZero() {
		at = float64(c.ended.UnixMilli()) / 1000
	}
	to <- prometheus.MustNewConstMetric(checked, prometheus.GaugeValue, at)
	for kind, n := range c.silenced {
		to <- prometheus.MustNewConstMetric(silenced, prometheus.GaugeValue, float64(n), kind)
	}
	for of, n := range c.found {
		to <- prometheus.MustNewConstMetric(findings, prometheus.GaugeValue, float64(n), of[0], of[1])
	}
}

func (c *checkup) run(p *worqr.Peer, every time.Duration) {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	began := time.Now()
	report, err := p.Check(ctx, nil)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.going, c.next = false, began.Add(max(every, checkShare*now.Sub(began)))
	if err != nil {
		c.found, c.silenced = nil, nil // its earlier findings may be fixed
		if errors.Is(err, worqr.ErrDenied) {
			c.next = now.Add(max(every, time.Hour)) // the user is unlikely to get the rule "Doctor" sooner
		}
		return
	}
	c.ended, c.found, c.silenced = now, map[[2]string]int{}, map[string]int{}
	for _, f := range report.Findings {
		if f.Silenced != nil {
			c.silenced[string(f.Kind)]++
			continue
		}
		c.found[[2]string{string(f.Kind), string(f.Severity)}]++
	}
}
