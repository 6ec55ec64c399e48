package dash_test

import (
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
)

// A finding is shown with its age, and disappears once it's solved: an open page needn't be reloaded, nor wait
// for minutes.
func TestSolvedFindings(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Lease: time.Second})
	q := p.Queue("q")
	peertest.Enqueue(t, q, "a", "b", "c")
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond, Check: &inspect.CheckOptions{MaxBacklog: 1}})
	told := b.stream(t.Context(), "show=overview")
	const found = "The backlog exceeds its limit"
	gone := func() {
		t.Helper()
		for changed := range told {
			if text, ok := changed["banners"]; ok && !strings.Contains(text, found) {
				return
			}
		}
		t.Error("the stream ended")
	}
	await(t, told, "banners", found)
	b.shows("", "checked less than a minute ago")
	is.NoErr(q.Delete(t.Context())) // the next snapshot contradicts it
	gone()

	peertest.Enqueue(t, q, "a", "b", "c")
	b.act("verb", "check")
	await(t, told, "banners", found)
	peertest.Cancel(t, q, "b")
	peertest.Cancel(t, q, "c")
	b.act("verb", "resume", "name", "q") // any action starts another check
	gone()
}
