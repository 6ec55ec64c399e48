package dash_test

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
			b.act("verb", "requeue-matching", "name", "q", "search", "payload=shown", "back", "failed?name=q")
			peertest.Eventually(t, "the failed task is requeued", func() bool { return peertest.Stats(t, q).Failed == 0 })
			is.Equal(len(journal.Lines("function=Payload")), 1)
			is.True(strings.Contains(journal.Lines("function=Payload")[0], "hooks_test.go"))
			is.Equal(len(journal.Lines("function=User")), 1)
			is.Equal(len(journal.Lines("user=unknown")), 1)

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

// A function that hangs for one visitor, queue or payload is called for the others, and pages name it.
func TestHookHangs(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	for _, name := range []string{"a", "b"} {
		peertest.Enqueue(t, p.Queue(name), "good", "bad", "fine")
	}
	held := make(chan bool)
	defer close(held)
	var journal peertest.Journal
	var asked atomic.Int32
	b := browse(t, p, &dash.Options{
		Logger: journal.Logger(),
		Authorize: func(r *http.Request, _ dash.Action) error {
			if r.Header.Get("Cookie") == "user=ben" {
				asked.Add(1)
				<-held
			}
			return nil
		},
		Payload: func(queue string, payload []byte) string {
			if queue == "a" && string(payload) == "bad" {
				<-held
			}
			return "the " + string(payload) + " one"
		},
	})
	ben := func() (status int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base, nil)
		is.NoErr(err)
		r.Header.Set("Cookie", "user=ben")
		return b.do(r).StatusCode
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if status := ben(); status != http.StatusForbidden {
				t.Errorf("status %d", status)
			}
		})
	}
	b.shows("queue?name=a", "the good one", "(cannot be shown)", "the fine one")
	all.Wait()
	b.shows("queue?name=b", "the good one", "the bad one", "the fine one", "Options.Authorize hangs", "Options.Payload hangs")
	is.Equal(ben(), http.StatusForbidden)
	is.Equal(asked.Load(), int32(10)) // it isn't called again for him
	for _, line := range []string{"function=Authorize from=127.0.0.1", "function=Payload queue=a"} {
		is.Equal(len(journal.Lines(line)), 1)
	}
}

// A page whose function hangs doesn't keep the others from being updated.
func TestHookHangsInStream(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("a"), "bad")
	peertest.Enqueue(t, p.Queue("b"), "good")
	held, entered := make(chan bool), make(chan bool, 10)
	defer close(held)
	b := browsing(t, dash.Patient(dash.New(p, &dash.Options{Interval: 100 * time.Millisecond, Payload: func(queue string, payload []byte) string {
		if queue == "a" {
			entered <- true
			<-held
		}
		return string(payload)
	}})))
	told := b.stream(t.Context(), "show=queue&name=b")
	await(t, told, "tasks", "good")
	b.stream(t.Context(), "show=queue&name=a")
	<-entered
	peertest.Enqueue(t, p.Queue("b"), "better")
	await(t, told, "tasks", "better")
	is.Equal(len(entered), 0) // the page that hangs isn't rendered twice
}

func failed(t *testing.T, q *worqr.Queue) {
	t.Helper()
	fail(t, q, "bad", "no")
	peertest.Enqueue(t, q, "waits")
}
