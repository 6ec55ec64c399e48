package worqr_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// sourced returns the options of a peer with an outbox that reports so.
func sourced(report func(context.Context) (inspect.SourceReport, error)) worqr.Options {
	return worqr.Options{Sources: []inspect.Source{peertest.Outbox(report)}, Logger: slog.New(slog.DiscardHandler)}
}

// Check has the findings of a source, under its name, in the order of all.
func TestCheckAsksSources(t *testing.T) {
	is := parallel(t)
	report := peertest.Pending()
	report.Findings = append(report.Findings, inspect.Finding{Severity: inspect.SeverityLost, Kind: "orphan", Repaired: true, Text: "Rows are lost."})
	opts := sourced(func(context.Context) (inspect.SourceReport, error) { return report, nil })
	opts.Prefix = redistest.Prefix(t)
	p := openDoctor(t, redistest.URL(), opts)
	enqueue(t, p.Queue("q"), "a")
	for _, check := range []func(context.Context, *inspect.CheckOptions) (*inspect.CheckReport, error){p.Check, p.Repair} {
		r := sure(check(t.Context(), nil))(t)
		is.True(!r.OK())
		is.Equal(r.Findings[0], inspect.Finding{Kind: "outbox", Severity: inspect.SeverityLost, Title: "Outbox of <orders>", Text: "Rows are lost."})
		is.True(slices.ContainsFunc(r.Findings, func(f inspect.Finding) bool { return f.Kind == "outbox" && f.Queue == "emails" }))
	}
	r := sure(p.Check(t.Context(), &inspect.CheckOptions{Ignore: []inspect.FindingKind{"outbox"}}))(t)
	is.True(!strings.Contains(r.String(), "outbox"))
}

// What a source does wrong is its error, and a finding.
func TestSourceFails(t *testing.T) {
	t.Parallel()
	samples := func(all ...inspect.Sample) func() (inspect.SourceReport, error) {
		return func() (inspect.SourceReport, error) { return inspect.SourceReport{Samples: all}, nil }
	}
	for says, report := range map[string]func() (inspect.SourceReport, error){
		"no such table":                      func() (inspect.SourceReport, error) { return peertest.Pending(), errors.New("no such table") },
		"panicked, or ended its goroutine":   func() (inspect.SourceReport, error) { panic(canary) },
		"outbox panicked, or ended":          func() (inspect.SourceReport, error) { runtime.Goexit(); return inspect.SourceReport{}, nil },
		`"rows", which isn't one`:            samples(inspect.Sample{Metric: "rows"}),
		"pending_rows with an invalid queue": samples(inspect.Sample{Metric: "pending_rows"}),
		"sent_rows_total with an invalid":    samples(inspect.Sample{Metric: "sent_rows_total", Queue: "q"}),
		"an invalid queue, or without one":   samples(inspect.Sample{Metric: "pending_rows", Queue: "a b"}),
		"reports sent_rows_total twice":      samples(inspect.Sample{Metric: "sent_rows_total"}, inspect.Sample{Metric: "sent_rows_total", Number: 1}),
		"1001 samples; the limits are 100":   samples(make([]inspect.Sample, 1001)...),
		`finding of the unknown severity ""`: func() (inspect.SourceReport, error) {
			return inspect.SourceReport{Findings: []inspect.Finding{{Text: "x"}}}, nil
		},
	} {
		t.Run(says, func(t *testing.T) {
			is := parallel(t)
			opts := sourced(func(context.Context) (inspect.SourceReport, error) { return report() })
			opts.Prefix = redistest.Prefix(t)
			p := openDoctor(t, redistest.URL(), opts)
			got, err := p.Sources()[0].Report(t.Context())
			is.True(err != nil && strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), canary))
			is.True(got.Samples == nil && got.Rows == nil)
			r := sure(p.Check(t.Context(), nil))(t)
			i := slices.IndexFunc(r.Findings, func(f inspect.Finding) bool { return f.Kind == "outbox" })
			is.True(i >= 0 && r.Findings[i].Severity == inspect.SeverityRisk && strings.Contains(r.Findings[i].Text, says))
		})
	}
}

// A source that hangs costs each caller two seconds at most, and one goroutine. When it returns, it's asked again.
func TestSourceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		var calls atomic.Int32
		release := make(chan struct{})
		opts := sourced(func(context.Context) (inspect.SourceReport, error) {
			calls.Add(1)
			<-release
			return peertest.Pending(), nil
		})
		p := sure(worqr.Open("redis://localhost", &opts))(t)
		ask := func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			_, err := p.Sources()[0].Report(ctx)
			return time.Since(began), err
		}
		hasty, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		took, err := ask(hasty)
		is.True(took == time.Second && is_(err, context.DeadlineExceeded))
		for _, want := range []time.Duration{time.Second, 0, 0} {
			took, err = ask(t.Context())
			is.True(took == want && strings.Contains(err.Error(), "hasn't reported within 2s"))
		}
		is.Equal(calls.Load(), int32(1))
		close(release)
		synctest.Wait()
		took, err = ask(t.Context())
		is.True(took == 0 && err == nil && calls.Load() == 2)
		is.NoErr(p.Close())
	})
}

// Names are checked once, when the peer is made.
func TestBadSources(t *testing.T) {
	is := parallel(t)
	good := peertest.Outbox(nil)
	named := func(name string) inspect.Source { s := good; s.Name = name; return s }
	metric := func(names ...string) inspect.Source {
		s := good
		s.Metrics = nil
		for _, name := range names {
			s.Metrics = append(s.Metrics, inspect.Metric{Name: name})
		}
		return s
	}
	for _, bad := range [][]inspect.Source{
		{named("")}, {named("Outbox")}, {named("out_box")}, {named("orphan")}, {good, good}, {{Name: "outbox"}},
		{metric("")}, {metric("a-b")}, {metric("a", "a")}, {metric(make([]string, 101)...)},
	} {
		_, err := worqr.Open("redis://localhost", &worqr.Options{Sources: bad})
		is.True(is_(err, worqr.ErrInvalid))
	}
	p := sure(worqr.Open("redis://localhost", &worqr.Options{Sources: []inspect.Source{good, named("other")}}))(t)
	is.Equal(len(p.Sources()), 2)
	is.NoErr(p.Close())
}
