package dash_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
)

// Recurring tasks are listed for all queues and by queue, with the last outcome, and run on request.
func TestRecurring(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	b.shows("recurring", "There are no recurring tasks.")
	ran := make(chan string, 10)
	jobs, reports := p.Queue("jobs"), p.Queue("reports")
	jobs.Handle(func(_ context.Context, task *worqr.Task) error {
		ran <- string(task.Payload) + task.Headers["tenant"]
		return nil
	}, nil)
	ends := make(chan error) // how occurrences end
	reports.Handle(func(ctx context.Context, _ *worqr.Task) error {
		select {
		case err := <-ends:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil)
	is.NoErr(jobs.Every("nightly", worqr.Interval(365*24*time.Hour), []byte("jobs"), &worqr.EveryOptions{Headers: map[string]string{"tenant": "-acme"}}))
	is.NoErr(reports.Every("often", worqr.Interval(time.Second), nil, nil))
	is.NoErr(reports.Every("weekly", worqr.Interval(7*24*time.Hour), nil, &worqr.EveryOptions{Expression: "0 0 * * <1>"}))
	peertest.Run(t, p)
	page := b.shows("recurring", "nightly", "jobs", "often", "reports", "none yet", "every 365 d", "every 1 s", "0 0 * * &lt;1&gt;").text
	is.True(strings.Contains(page, `value="run-now"`))
	page = b.shows("recurring?name=jobs", "Recurring tasks of", "nightly").text
	is.True(!strings.Contains(page, ">reports<"))
	b.shows("recurring?q=REPORT", "reports")
	b.shows("recurring?q=hourly", "No recurring task has “hourly”")
	is.Equal(b.get("recurring?name=nosuch").StatusCode, http.StatusNotFound)

	r := b.act("verb", "run-now", "name", "jobs", "key", "nightly", "back", "recurring")
	is.True(strings.Contains(r.text, "An extra run starts now"))
	is.Equal(<-ran, "jobs-acme") // its payload and headers
	told := b.stream(t.Context(), "show=recurring&name=reports")
	ends <- nil
	await(t, told, "recurring-rows", "finished")
	ends <- worqr.Permanent(context.DeadlineExceeded)
	await(t, told, "recurring-rows", `<span class="tag error">failed</span>`)
	b.shows("recurring?name=reports", "1 of 2 failed")
	b.act("verb", "check", "back", "server")
	b.shows("recurring", "didn&#39;t succeed. often, due at ", `href="recurring?name=reports">Recurring<`) // the banner has its name
	is.Equal(b.post("act", "verb", "run-now", "name", "jobs", "key", "other").StatusCode, http.StatusUnprocessableEntity)
}
