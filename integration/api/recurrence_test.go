package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// planTomorrow is what handlers and replicas do by the recipe.
func planTomorrow(ctx context.Context, jobs *worqr.Queue) error {
	next := time.Now().Add(24 * time.Hour)
	return jobs.Put(ctx, "cleanup", []byte("clean up"), &worqr.PutOptions{At: next, Reschedule: worqr.RescheduleNever, KeepPayload: true})
}

// repeater is the actor that plans its next run, and then does what it is told.
func repeater(c childConfig, p *worqr.Peer, say func(report)) actor {
	told := make(chan string)
	return actor{
		handler: func(ctx context.Context, t *worqr.Task) error {
			say(report{What: "start", Payload: string(t.Payload), Err: fmt.Sprint(t.Retries)})
			line := <-told
			if err := planTomorrow(ctx, p.Queue(c.Queue)); err != nil {
				return err
			}
			switch line {
			case "panic":
				panic(line)
			case "fail":
				return errors.New(line)
			case "fail for good":
				return worqr.Permanent(errors.New(line))
			}
			return nil
		},
		told: func(line string) { told <- line },
	}
}

// What repeats itself is retried when it fails or panics, starts elsewhere when its
// process is killed, and reaches the failed queue; and each time it is planned again.
func TestRecurrence(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	c := childConfig{URL: redistest.URL(), Prefix: prefix, Queue: "jobs", Mode: "repeater"}
	jobs := open(t, worqr.Options{Prefix: prefix}).Queue("jobs")
	plan := func() { must(t, planTomorrow(t.Context(), jobs)) } // as each replica does
	due := func() { must(t, jobs.Put(t.Context(), "cleanup", []byte("clean up"), nil)) }
	starts := func(p process, retries string) {
		t.Helper()
		is.Helper()
		r := receive(t, p.Reports, 1)[0]
		if r.What == "ready" { // before its first task or after
			r = receive(t, p.Reports, 1)[0]
		}
		is.Equal(r.What, "start")
		is.Equal(r.Payload, "clean up")
		is.Equal(r.Err, retries)
	}
	planned := func() {
		t.Helper()
		eventually(t, "the next run is planned for tomorrow, and nothing else is", func() bool {
			s := sure(jobs.Stats(t.Context()))(t)
			var all []worqr.ScheduledTask
			for task := range each(t, jobs.Scheduled(t.Context())) {
				all = append(all, task)
			}
			return s.Running+s.Waiting == 0 && len(all) == 1 && all[0].Key == "cleanup" &&
				all[0].Retries == 0 && all[0].Crashes == 0 && time.Until(all[0].DueAt) > 23*time.Hour
		})
	}

	due()
	first := launch(t, c)
	starts(first, "0")
	plan() // another replica, while this one has not planned yet
	first.Kill()
	second := launch(t, c)
	starts(second, "0") // not tomorrow
	second.Tell("fail")
	starts(second, "1")
	second.Tell("panic")
	starts(second, "2")
	second.Tell("return")
	planned()
	is.Equal(stats(t, jobs).Failed, 0)

	due()
	starts(second, "0")
	plan() // nor does it run once more now
	second.Tell("fail for good")
	planned()
	is.Equal(stats(t, jobs).Failed, 1)
}
