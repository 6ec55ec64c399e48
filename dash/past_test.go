package dash

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
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

// A history is read once a minute, however often pages are rendered.
func TestPastIsKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := New(peertest.Open(t, worqr.Options{Prefix: redistest.Prefix(t)}), nil).(*dashboard)
	day, week := spanNamed("day"), spanNamed("week")
	first := redistest.Sure(d.past(t.Context(), "q", day))(t)
	again := redistest.Sure(d.past(t.Context(), "q", day))(t)
	is.True(first[0] == again[0])
	is.True(first[0] != redistest.Sure(d.past(t.Context(), "q", week))(t)[0])
	d.pasts.Clear() // as a minute later
	is.True(first[0] != redistest.Sure(d.past(t.Context(), "q", day))(t)[0])
}

// A history that can't be read is read again for the next snapshot.
func TestUsualIsReadAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := peertest.Open(t, worqr.Options{Prefix: redistest.Prefix(t)})
	f := &fleet{peer: p}
	s := &snapshot{queues: []*queueState{{name: "q", counts: inspect.QueueStats{Waiting: 1, Running: 1}}}}
	gone, end := context.WithCancel(t.Context())
	end()
	f.compare(gone, s)
	is.Equal(len(f.usual), 0)
	f.compare(t.Context(), s)
	is.Equal(len(f.usual), 1)
}
