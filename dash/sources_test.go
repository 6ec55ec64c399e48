package dash_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
)

// The overview has a section for each source, escaped, and an open page follows it. If the source fails or hangs, the
// section says so, and the rest of the page is there.
func TestSources(t *testing.T) {
	is := parallel(t)
	var now atomic.Pointer[func() (inspect.SourceReport, error)]
	says := func(report func() (inspect.SourceReport, error)) { now.Store(&report) }
	says(func() (inspect.SourceReport, error) { return peertest.Pending(), nil })
	p := open(t, worqr.Options{Sources: []inspect.Source{
		peertest.Outbox(func(context.Context) (inspect.SourceReport, error) { return (*now.Load())() }),
	}})
	peertest.Enqueue(t, p.Queue("q"), "a")
	b := browse(t, p, &dash.Options{Interval: 100 * time.Millisecond})
	r := b.shows("", "Outbox of &lt;orders&gt;", "2 rows, &lt;b&gt;oldest&lt;/b&gt; 90 s", "The oldest row is 90 s old.", `data-queue="q"`)
	is.True(!strings.Contains(r.text, "<b>oldest"))

	told := b.stream(t.Context(), "show=overview")
	says(func() (inspect.SourceReport, error) { return inspect.SourceReport{}, errors.New("no such <table>") })
	await(t, told, "sources", "no such &lt;table&gt;")
	release := make(chan struct{})
	defer close(release)
	says(func() (inspect.SourceReport, error) { <-release; return inspect.SourceReport{}, nil })
	await(t, told, "sources", "the source outbox hasn&#39;t reported within 2s")
	peertest.Enqueue(t, p.Queue("q"), "b")
	await(t, told, "queues", `data-label="Waiting">2</td>`)
}
