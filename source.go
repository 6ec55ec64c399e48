package worqr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/doctor"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Limits of a source; inspect.Source states them.
const (
	sourceTimeout = 2 * time.Second
	mostMetrics   = 100
	mostReported  = 100 // findings, and rows
	mostSamples   = 1000
)

var (
	sourceName = regexp.MustCompile(`^[a-z][a-z0-9]{0,39}$`)
	metricName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,59}$`)
)

// Sources returns Options.Sources, for exporters and dashboards. Their Report is safe for concurrent use, and
// returns after two seconds, or when ctx ends. It fails with the source's error, and if the source panics, is
// late, or reports something that isn't allowed.
func (p *Peer) Sources() []inspect.Source { return slices.Clone(p.sources) }

func checkSources(all []inspect.Source) error {
	for i, s := range all {
		switch {
		case !sourceName.MatchString(s.Name) || slices.Contains(doctor.Kinds, inspect.FindingKind(s.Name)):
			return fmt.Errorf("%w: the name %.40q of a Source isn't 1 to 40 of a-z and 0-9, or is a kind of finding", ErrInvalid, s.Name)
		case slices.ContainsFunc(all[:i], func(o inspect.Source) bool { return o.Name == s.Name }):
			return fmt.Errorf("%w: two Sources have the name %q", ErrInvalid, s.Name)
		case s.Report == nil:
			return fmt.Errorf("%w: the Source %q has no Report", ErrInvalid, s.Name)
		case len(s.Metrics) > mostMetrics:
			return fmt.Errorf("%w: the Source %q has %d metrics; the limit is %d", ErrInvalid, s.Name, len(s.Metrics), mostMetrics)
		}
		for j, m := range s.Metrics {
			if !metricName.MatchString(m.Name) || slices.ContainsFunc(s.Metrics[:j], func(o inspect.Metric) bool { return o.Name == m.Name }) {
				return fmt.Errorf("%w: the metric %.60q of the Source %q isn't 1 to 60 of a-z, 0-9 and _, or is there twice", ErrInvalid, m.Name, s.Name)
			}
		}
	}
	return nil
}

// guard returns the source with a Report that can't block, panic or return something invalid.
func guard(s inspect.Source, log *logs.Log) inspect.Source {
	r := &reporter{source: s, log: log}
	s.Metrics = slices.Clone(s.Metrics)
	s.Report = r.report
	return s
}

// A reporter calls a source, once at a time, for all who ask.
type reporter struct {
	source inspect.Source
	log    *logs.Log

	mu    sync.Mutex // protects going
	going *reporting // nil if no call is in progress

	told time.Time // when a panic was last logged; used only by the call in progress
}

// A reporting is one call of a source.
type reporting struct {
	ctx    context.Context // ends when the call is late, or over
	done   chan struct{}   // closed at the end, after the fields below are set
	report inspect.SourceReport
	err    error
}

func (r *reporter) report(ctx context.Context) (inspect.SourceReport, error) {
	c := r.call()
	select {
	case <-c.done:
	case <-c.ctx.Done():
		select {
		case <-c.done:
		default:
			return inspect.SourceReport{}, fmt.Errorf("the source %s hasn't reported within %v", r.source.Name, sourceTimeout)
		}
	case <-ctx.Done():
		return inspect.SourceReport{}, context.Cause(ctx)
	}
	return c.report, c.err
}

// call returns the call in progress, or begins one.
func (r *reporter) call() *reporting {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.going == nil {
		ctx, end := context.WithTimeout(context.Background(), sourceTimeout)
		c := &reporting{ctx: ctx, done: make(chan struct{})}
		r.going = c
		go func() {
			defer end()
			defer r.over(c)
			r.ask(c)
		}()
	}
	return r.going
}

func (r *reporter) over(c *reporting) {
	r.mu.Lock()
	r.going = nil
	r.mu.Unlock()
	close(c.done)
}

// ask calls the source, which may panic or end its goroutine.
func (r *reporter) ask(c *reporting) {
	returned := false
	defer func() {
		if !returned {
			_ = recover() // its value may have something secret
			c.err = fmt.Errorf("the source %s panicked, or ended its goroutine; see the log", r.source.Name)
			if time.Since(r.told) >= time.Minute {
				r.told = time.Now()
				r.log.Error("worqr: a source panicked, or ended its goroutine", "source", r.source.Name, "stack", string(debug.Stack()))
			}
		}
	}()
	report, err := r.source.Report(c.ctx)
	if err == nil {
		err = checkReport(&r.source, &report)
	}
	if err != nil {
		c.err = errors.New(err.Error()) // other methods of the error may panic, too
	} else {
		c.report = report
	}
	returned = true
}

// checkReport fails if a report has something that would spoil what others report.
func checkReport(s *inspect.Source, r *inspect.SourceReport) error {
	if len(r.Findings) > mostReported || len(r.Rows) > mostReported || len(r.Samples) > mostSamples {
		return fmt.Errorf("the source %s reports %d findings, %d rows and %d samples; the limits are %d, %d and %d",
			s.Name, len(r.Findings), len(r.Rows), len(r.Samples), mostReported, mostReported, mostSamples)
	}
	for _, f := range r.Findings {
		if !slices.Contains(inspect.Severities(), f.Severity) {
			return fmt.Errorf("the source %s reports a finding of the unknown severity %.40q", s.Name, f.Severity)
		}
	}
	seen := map[inspect.Sample]bool{}
	for _, v := range r.Samples {
		i := slices.IndexFunc(s.Metrics, func(m inspect.Metric) bool { return m.Name == v.Metric })
		id := inspect.Sample{Metric: v.Metric, Queue: v.Queue}
		switch {
		case i < 0:
			return fmt.Errorf("the source %s reports %.60q, which isn't one of its metrics", s.Name, v.Metric)
		case s.Metrics[i].PerQueue != (v.Queue != "") || v.Queue != "" && store.CheckName(v.Queue) != nil:
			return fmt.Errorf("the source %s reports %s with an invalid queue, or without one", s.Name, v.Metric)
		case seen[id]:
			return fmt.Errorf("the source %s reports %s twice", s.Name, v.Metric)
		}
		seen[id] = true
	}
	return nil
}

// addFindings adds the findings of the sources to a report.
func (p *Peer) addFindings(ctx context.Context, r *inspect.CheckReport, ignore []inspect.FindingKind) {
	found := make([][]inspect.Finding, len(p.sources))
	var all sync.WaitGroup
	for i, s := range p.sources {
		if !slices.Contains(ignore, inspect.FindingKind(s.Name)) {
			all.Go(func() { found[i] = findingsOf(ctx, s) })
		}
	}
	all.Wait()
	r.Findings = append(r.Findings, slices.Concat(found...)...)
	doctor.Sort(r)
}

func findingsOf(ctx context.Context, s inspect.Source) []inspect.Finding {
	report, err := s.Report(ctx)
	if err != nil {
		text := strings.TrimSuffix(err.Error(), ".")
		return []inspect.Finding{{Kind: inspect.FindingKind(s.Name), Severity: inspect.SeverityRisk, Title: s.Title, Text: "It can't report: " + text + "."}}
	}
	all := slices.Clone(report.Findings)
	for i := range all {
		all[i].Kind, all[i].Title, all[i].Repaired = inspect.FindingKind(s.Name), cmp.Or(all[i].Title, s.Title), false
	}
	return all
}
