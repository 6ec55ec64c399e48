package dash

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

// The charts of a day have its periods, averaged, and mark the deploys within it.
func TestPastCharts(t *testing.T) {
	is := is.New(t)
	now := time.Date(2026, 1, 31, 12, 5, 0, 0, time.UTC)
	var all []inspect.Period
	for at := now.Add(-24 * time.Hour); at.Before(now); at = at.Add(time.Minute) {
		all = append(all, inspect.Period{At: at, Recorded: true, Started: 60, Enqueued: 120, MostWaiting: at.Hour(), Failed: 2})
	}
	deploys := []inspect.Deploy{{Version: "old", At: now.Add(-25 * time.Hour)}, {Version: "new", At: now.Add(-6 * time.Hour)}}
	charts := spanNamed("day").charts(all, deploys, now)
	is.Equal(len(charts), 4)
	is.Equal(charts[0].Lines[0], curve{Name: "started", Now: "1/s", Points: "-86100.0,1 0.0,1"}) // all points are on a line
	is.Equal(charts[0].Lines[1].Now, "2/s")
	is.Equal(charts[1].Spoken, "Backlog, the last 24 hours. Now: waiting 12. At most 23.")
	is.Equal(charts[1].Marks, []mark{{"75.00%", "new first ran, 6 h ago"}})
	is.Equal(charts[3].Lines[0].Now, "10")
	is.Equal(spanNamed("x").Name, "")
}
