package dash

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A pastSpan is how far back the charts of a queue go, beyond the last minutes.
type pastSpan struct {
	Name, Label           string
	called, each          string // how far back, and how long a point is
	back, grain, averaged time.Duration
}

// pastSpans are the choices above the charts of a queue. The first one has the samples of this process; the others are of
// the queue's history.
var pastSpans = []pastSpan{
	{Name: "", Label: "5 minutes"},
	{"hours", "6 hours", "6 hours", "2 min", 6 * time.Hour, time.Minute, 2 * time.Minute},
	{"day", "Day", "24 hours", "10 min", 24 * time.Hour, time.Minute, 10 * time.Minute},
	{"week", "Week", "7 days", "hour", 7 * 24 * time.Hour, time.Hour, time.Hour},
	{"weeks", "8 weeks", "8 weeks", "day", 56 * 24 * time.Hour, time.Hour, 24 * time.Hour},
}

// past returns the charts of a queue's history. They're read once a minute, however many pages show them.
func (d *dashboard) past(ctx context.Context, queue string, of pastSpan) ([]*chart, error) {
	id := [2]string{queue, of.Name}
	if kept, ok := d.pasts.Load(id); ok {
		return kept.([]*chart), nil
	}
	ctx, end := context.WithTimeout(ctx, 5*listTime)
	defer end()
	now := time.Now()
	all, err := d.peer.Queue(queue).History(ctx, now.Add(-of.back), now, of.grain)
	if err != nil {
		return nil, err
	}
	deploys, err := d.peer.Deploys(ctx)
	if err != nil {
		return nil, err
	}
	charts := of.charts(all, deploys, now)
	d.pasts.Store(id, charts)
	time.AfterFunc(time.Minute, func() { d.pasts.Delete(id) })
	return charts, nil
}

func (of pastSpan) charts(all []inspect.Period, deploys []inspect.Deploy, now time.Time) []*chart {
	var marks []mark
	for _, d := range deploys {
		if ago := now.Sub(d.At); ago < of.back {
			marks = append(marks, mark{fmt.Sprintf("%.2f%%", 100-100*ago.Seconds()/of.back.Seconds()), line(d.Version, 60) + " first ran, " + span(ago) + " ago"})
		}
	}
	periods := inspect.Merged(all, of.averaged)
	values := func(name string, value func(p inspect.Period, seconds float64) float64) series {
		s := series{name: name}
		for _, p := range periods {
			end := p.At.Truncate(of.averaged).Add(of.averaged)
			if end.After(now) {
				end = now
			}
			s.at, s.values = append(s.at, end), append(s.values, value(p, max(end.Sub(p.At).Seconds(), time.Minute.Seconds())))
		}
		return s
	}
	pace := func(name string, n func(p inspect.Period) int64) series {
		return values(name, func(p inspect.Period, seconds float64) float64 { return float64(n(p)) / seconds })
	}
	drawn := func(title, unit string, lines ...series) *chart {
		c := plot(title, unit, now, of.back, of.called, lines, func(i int) (float64, bool) {
			if n := len(lines[i].values); n > 0 {
				return lines[i].values[n-1], true
			}
			return 0, false
		})
		c.Marks = marks
		return c
	}
	return []*chart{
		drawn("Throughput", "/s", pace("started", func(p inspect.Period) int64 { return p.Started }), pace("enqueued", func(p inspect.Period) int64 { return p.Enqueued })),
		drawn("Backlog", "", values("waiting", func(p inspect.Period, _ float64) float64 { return float64(p.MostWaiting) })),
		drawn("95 % within", "s",
			values("waiting", func(p inspect.Period, _ float64) float64 { return max(p.Waited.Quantile(0.95), p.Oldest).Seconds() }),
			values("running", func(p inspect.Period, _ float64) float64 { return p.Ran.Quantile(0.95).Seconds() })),
		drawn("Failures per "+of.each, "",
			values("failed", func(p inspect.Period, _ float64) float64 { return float64(p.Failed) }),
			values("retried", func(p inspect.Period, _ float64) float64 { return float64(p.Retried) })),
	}
}

// spanNamed returns the span with a name; the first if there is none.
func spanNamed(name string) pastSpan {
	return pastSpans[max(0, slices.IndexFunc(pastSpans, func(of pastSpan) bool { return of.Name == name }))]
}
