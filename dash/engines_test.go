package dash_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// Pages and actions are the same behind sentinels and in a cluster. "make test-engines" runs all tests
// there.
func TestEngines(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"sentinel": func(t *testing.T) string { return redistest.StartSentinels(t, redistest.SentinelSetup{}).URL() },
		"cluster":  func(t *testing.T) string { return redistest.StartCluster(t, 3, 0).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			p := redistest.Sure(worqr.Open(start(t), &worqr.Options{Name: "replica-1", Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}))(t)
			t.Cleanup(func() { _ = p.Close() })
			names := []string{"emails", "invoices", "reports", "thumbnails"} // on several masters
			for _, name := range names {
				q := peertest.Working(t, p, name)
				fail(t, q, "bad "+name, "disk full")
				peertest.Put(t, q, "later", "scheduled "+name, &worqr.PutOptions{At: time.Now().Add(time.Hour)})
				peertest.Enqueue(t, q, "held "+name, "waiting "+name)
				peertest.Take(t, q)
			}
			b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
			for page, texts := range map[string][]string{
				"": names, "failed": names, "workers": {"replica-1"}, "server": {"answers", "Findings"}, "recurring": {"Nothing recurs here."},
				"queue?name=emails": {"waiting emails"}, "queue?name=reports&tab=running": {"held reports", "replica-1"}, "queue?name=invoices&tab=scheduled": {"scheduled invoices"},
				"failed?name=thumbnails": {"bad thumbnails", "disk full"}, "task?name=reports&key=later": {"Starts in 59 min"},
			} {
				b.shows(page, texts...)
			}
			await(t, b.stream(t.Context(), "show=overview"), "queues", "thumbnails")
			b.act("verb", "enqueue", "name", "emails", "payload", "new")
			is.Equal(peertest.Waiting(t, p.Queue("emails"))[1], "new")
			b.act("verb", "drain", "name", "invoices")
			is.True(peertest.Stats(t, p.Queue("invoices")).Paused)
			b.act("verb", "requeue-matching", "name", "reports", "reason", "disk")
			peertest.Eventually(t, "the failed task is back", func() bool { return peertest.Stats(t, p.Queue("reports")).Failed == 0 })
			b.act("verb", "cancel", "name", "thumbnails", "key", "later")
			is.Equal(len(peertest.Scheduled(t, p.Queue("thumbnails"))), 0)
			r := b.act("verb", "fail-worker", "worker", p.WorkerID(), "back", "workers")
			is.True(strings.Contains(r.text, "returned to the front")) // not by the worker itself, which may notice meanwhile
			peertest.Eventually(t, "nothing runs", func() bool {
				return !slices.ContainsFunc(names, func(name string) bool { return peertest.Stats(t, p.Queue(name)).Running > 0 })
			})
		})
	}
}
