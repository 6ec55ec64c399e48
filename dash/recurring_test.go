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
	fails := make(chan bool, 1)
	for _, name := range []string{"jobs", "reports"} {
		q := p.Queue(name)
		q.Handle(func(_ context.Context, task *worqr.Task) error {
			select {
			case <-fails:
				return worqr.Permanent(context.DeadlineExceeded)
			default:
			}
			ran <- string(task.Payload) + task.Headers["tenant"]
			return nil
		}, nil)
		is.NoErr(q.Every("nightly", worqr.Interval(365*24*time.Hour), []byte(name), &worqr.EveryOptions{Headers: map[string]string{"tenant": "-acme"}}))
	}
	peertest.Run(t, p)
	page := b.shows("recurring", "nightly", "jobs", "reports", "none yet").text
	is.True(strings.Contains(page, `value="run-now"`))
	page = b.shows("recurring?name=jobs", "Recurring tasks of", "nightly").text
	is.True(!strings.Contains(page, ">reports<"))
	b.shows("recurring?q=REPORT", "reports")
	b.shows("recurring?q=hourly", "No recurring task has “hourly”")
	is.Equal(b.get("recurring?name=nosuch").StatusCode, http.StatusNotFound)

	r := b.act("verb", "run-now", "name", "jobs", "key", "nightly", "back", "recurring")
	is.True(strings.Contains(r.text, "An extra run starts now"))
	is.Equal(<-ran, "jobs-acme") // its payload and headers
	b.shows("recurring?name=jobs", "finished")
	fails <- true
	told := b.stream(t.Context(), "show=recurring&name=jobs")
	b.act("verb", "run-now", "name", "jobs", "key", "nightly")
	await(t, told, "recurring-rows", `<span class="tag error">failed</span>`)
	is.Equal(b.post("act", "verb", "run-now", "name", "jobs", "key", "other").StatusCode, http.StatusUnprocessableEntity)
}
