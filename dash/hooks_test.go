package dash_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
)

// A function of Options that panics or ends its goroutine breaks neither the process nor the rest of a page, in
// requests, searches, jobs, streams and snapshots. Its stack is logged once.
func TestHooksFail(t *testing.T) {
	for name, fail := range map[string]func(b []byte){
		"panic":  func(b []byte) { _ = b[30] },
		"goexit": func([]byte) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			p := open(t, worqr.Options{Lease: 200 * time.Millisecond}) // a check looks twice, a lease apart
			q := peertest.Working(t, p, "q")
			failed(t, q)
			var journal peertest.Journal
			b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond, Logger: journal.Logger(),
				Payload: func(_ string, payload []byte) string { fail(payload); return "" },
				User:    func(*http.Request) string { fail(nil); return "" },
			})
			b.shows("failed?name=q", "(cannot be shown)")
			b.shows("failed?name=q&payload=shown", "1 of 1 failed task match")
			b.shows("queue?name=q", "(cannot be shown)")
			await(t, b.stream(t.Context(), "show=queue&name=q"), "tasks", "(cannot be shown)")
			b.act("verb", "requeue-matching", "name", "q", "payload", "shown", "back", "failed?name=q")
			peertest.Eventually(t, "the failed task is requeued", func() bool { return peertest.Stats(t, q).Failed == 0 })
			is.Equal(len(journal.Lines("function=Payload")), 1)
			is.True(strings.Contains(journal.Lines("function=Payload")[0], "hooks_test.go"))
			is.Equal(len(journal.Lines("function=User")), 1)
			is.Equal(len(journal.Lines("user=unknown")), 1)

			broken := browse(t, p, &dash.Options{AllowActions: true, Logger: journal.Logger(), Queue: func(name string) *worqr.Queue {
				if name == "q" {
					fail(nil)
				}
				return p.Queue(name)
			}})
			peertest.Enqueue(t, p.Queue("well"), "x")
			broken.shows("", "Options.Queue function failed", "1 task is waiting")
			for _, page := range []string{"queue?name=q", "failed?name=q", "task?name=q&key=k", "recurring"} {
				broken.shows(page, "Options.Queue function failed")
			}
			broken.shows("queue?name=well", "<code>x</code>")
			is.Equal(broken.post("act", "verb", "pause", "name", "q").StatusCode, http.StatusBadGateway)

			closed := browse(t, p, &dash.Options{Logger: journal.Logger(), Authorize: func(*http.Request, dash.Action) error { fail(nil); return nil }})
			is.Equal(closed.get("").StatusCode, http.StatusForbidden)
		})
	}
}

// While a hook blocks, only its own answers are missing, and it's called again once it has returned.
func TestHookBlocks(t *testing.T) {
	t.Parallel()
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	for range 5 {
		failed(t, q)
	}
	var journal peertest.Journal
	held := make(chan bool)
	b := browse(t, p, &dash.Options{Logger: journal.Logger(), Payload: func(string, []byte) string { <-held; return "now it can" }})
	b.shows("failed?name=q", "(cannot be shown)")
	close(held)
	b.shows("failed?name=q", "now it can")
	if n := len(journal.Lines("hasn't returned")); n != 1 {
		t.Errorf("%d lines", n)
	}
}

func failed(t *testing.T, q *worqr.Queue) {
	t.Helper()
	fail(t, q, "bad", "no")
	peertest.Enqueue(t, q, "waits")
}
