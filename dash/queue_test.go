package dash_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
)

// Each task is in one of the lists, with its state.
func TestLists(t *testing.T) {
	parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	b := browse(t, p, nil)
	peertest.Add(t, q, worqr.TaskSpec{Key: "running", Payload: []byte("it runs")})
	peertest.Must(t, peertest.Take(t, q).Retry(t.Context(), 0))
	peertest.Take(t, q)
	b.shows("queue?name=q", "it runs", `&amp;tab=running">`) // the first list that has tasks, also in the stream
	b.shows("queue?name=q&tab=waiting", "No task is on the list.")
	b.shows("queue?name=q&tab=named", "No named task is ready.")
	b.shows("queue?name=q&tab=scheduled", "Nothing is scheduled.")
	peertest.Add(t, q, worqr.TaskSpec{Key: "running", Payload: []byte("behind it")})
	peertest.Add(t, q, worqr.TaskSpec{Key: "later", Payload: []byte("not due yet"), At: time.Now().Add(time.Hour)})
	peertest.Add(t, q, worqr.TaskSpec{Key: "now", Payload: []byte("may start")})
	peertest.Enqueue(t, q, "alpha", "beta")
	lists := map[string][]string{
		"waiting": {"alpha", "beta"}, "running": {"it runs", `Retries">1<`}, "named": {"may start", `Enqueued"><time`},
		"scheduled": {"not due yet", "behind it", ">blocked<"},
	}
	all := slices.Concat(slices.Collect(maps.Values(lists))...)
	for tab, want := range lists {
		page := b.shows("queue?name=q&tab="+tab, want...).text
		for _, text := range all {
			if strings.Contains(page, text) != slices.Contains(want, text) {
				t.Errorf("%s: %q: %s", tab, text, page)
			}
		}
	}
}

// The page of a task offers what makes sense in its state, and workers show what they run.
func TestTaskStates(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Name: "api-1"})
	q := peertest.Working(t, p, "q")
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	offers := func(page string, want ...string) {
		t.Helper()
		for _, verb := range []string{"cancel", "return", "requeue", "discard"} {
			is.Equal(strings.Contains(page, `value="`+verb+`"`), slices.Contains(want, verb))
		}
	}
	peertest.Add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("x")})
	offers(b.shows("task?name=q&key=k", ">waiting<").text, "cancel")
	task := peertest.Take(t, q)
	offers(b.shows("task?name=q&key=k", ">running<", ">api-1<").text, "cancel", "return")
	b.shows("workers", `data-label="Running">1<`, `data-label="Heartbeat"><time`)
	peertest.Must(t, task.Fail(t.Context(), errors.New("<b>no</b>")))
	offers(b.shows("task?name=q&key=k", ">failed<", ">api-1<", `<pre class="error">&lt;b&gt;no&lt;/b&gt;</pre>`).text, "requeue", "discard")
	offers(b.shows("task?name=q&key=other").text)
}

// Of a worker that runs nothing, all slots are free.
func TestFreeSlots(t *testing.T) {
	parallel(t)
	p := open(t, worqr.Options{})
	p.Queue("q").Handle(func(context.Context, *worqr.Task) error { return nil }, &worqr.HandleOptions{Concurrency: 7})
	peertest.Run(t, p)
	browse(t, p, &dash.Options{Interval: 100 * time.Millisecond}).shows("workers", `data-label="Running">0 of 7<`)
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
			is.True(!strings.Contains(page, "page=21"))
			return strings.Contains(page, "951–1,000 of 1,200") || strings.Contains(page, "1–50 of 1,200")
		})
	}
}
