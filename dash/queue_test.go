package dash_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// Each task is in one of the lists, with its state.
func TestLists(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	b := browse(t, p, nil)
	peertest.Add(t, q, worqr.TaskSpec{Key: "running", Payload: []byte("it runs")})
	peertest.Take(t, q)
	b.shows("queue?name=q", "No task is on the list.")
	b.shows("queue?name=q&tab=named", "No named task is ready.")
	b.shows("queue?name=q&tab=scheduled", "Nothing is scheduled.")
	peertest.Add(t, q, worqr.TaskSpec{Key: "running", Payload: []byte("behind it")})
	peertest.Add(t, q, worqr.TaskSpec{Key: "later", Payload: []byte("not due yet"), At: time.Now().Add(time.Hour)})
	peertest.Add(t, q, worqr.TaskSpec{Key: "now", Payload: []byte("may start")})
	peertest.Enqueue(t, q, "first", "second")
	lists := map[string][]string{
		"waiting": {"first", "second"}, "running": {"it runs"}, "named": {"may start", `State">ready<`},
		"scheduled": {"not due yet", `State">scheduled<`, "behind it", ">blocked<"},
	}
	all := slices.Concat(slices.Collect(maps.Values(lists))...)
	for tab, want := range lists {
		page := b.shows("queue?name=q&tab="+tab, want...).text
		for _, text := range all {
			is.Equal(strings.Contains(page, text), slices.Contains(want, text))
		}
	}
}

// The charts go back for weeks.
func TestSpans(t *testing.T) {
	parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("q"), "x")
	b := browse(t, p, nil)
	b.shows("queue?name=q", `aria-current="page">5 minutes<`, "5 minutes ago")
	for span, since := range map[string]string{"hours": "6 hours ago", "day": "24 hours ago", "week": "7 days ago", "weeks": "8 weeks ago"} {
		b.shows("queue?name=q&span="+span, since, "enqueued", "retried", `href="queue?name=q&amp;span=`+span+`&amp;tab=running"`)
	}
}

// Anybody can write a link with any page number. None makes the dashboard read more than it can
// show.
func TestPageNumbers(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	b := browse(t, p, nil)
	peertest.Enqueue(t, q, slices.Repeat([]string{"x"}, 1200)...)
	for _, number := range []string{"20", "1000000", "200000000000000000", "-200000000000000000", "9223372036854775807", "x"} {
		peertest.Eventually(t, "page "+number+" is limited", func() bool { // a busy machine reads less
			page := b.get("queue?name=q&page=" + number).text
			is.True(!strings.Contains(page, "of 1,200"))
			return strings.Contains(page, "of 1,000") || strings.Contains(page, "of 51")
		})
	}
}
