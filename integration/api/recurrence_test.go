package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// daily is a daily schedule with a first time.
type daily struct{ First time.Time }

func (s daily) Next(t time.Time) time.Time {
	if t.Before(s.First) {
		return s.First
	}
	return s.First.Add((t.Sub(s.First)/day + 1) * day)
}

const day = 24 * time.Hour

func inAnHour() time.Time { return time.Now().Add(time.Hour).Truncate(time.Second) }

// repeater is an actor whose handler ends as the parent tells it to.
func repeater(c childConfig, p *worqr.Peer, say func(report)) actor {
	told := make(chan string)
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(p.Queue(c.Queue).Every("cleanup", daily{c.First}, []byte("clean up"), nil))
	return actor{
		handler: func(ctx context.Context, t *worqr.Task) error {
			say(report{What: "start", Key: t.Key, Payload: string(t.Payload), Err: fmt.Sprint(t.Retries, " ", t.Crashes, " ", t.DueAt.Equal(c.First), " ", !t.EnqueuedAt.IsZero())})
			switch line := <-told; line {
			case "panic":
				panic(line)
			case "fail":
				return worqr.RetryAfter(errors.New(line), 0)
			case "fail for good":
				return worqr.Permanent(errors.New(line))
			}
			return nil
		},
		told: func(line string) { told <- line },
		opts: &worqr.HandleOptions{Backoff: atOnce},
	}
}

// recurring returns the recurring tasks of a queue, by key.
func recurring(t testing.TB, q *worqr.Queue) map[string]inspect.RecurringTask {
	t.Helper()
	all := map[string]inspect.RecurringTask{}
	for r := range each(t, q.Recurring(t.Context())) {
		all[r.Key] = r
	}
	return all
}

// A recurring task is retried when it fails or panics, starts elsewhere when its process is killed,
// and can move to the failed queue. Then the schedule goes on.
func TestRecurrence(t *testing.T) {
	is := parallel(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "jobs", Mode: "repeater", Lease: time.Second, First: inAnHour()}
	jobs := open(t, worqr.Options{Prefix: c.Prefix}).Queue("jobs")
	starts := func(p process, counts string) {
		t.Helper()
		is.Helper()
		r := receive(t, p.Reports, 1)[0]
		if r.What == "ready" { // may come before or after its first task
			r = receive(t, p.Reports, 1)[0]
		}
		is.Equal(r.What, "start")
		is.Equal(r.Payload, "clean up")
		is.Equal(r.Err, counts)
	}
	first := launch(t, c)
	eventually(t, "it is planned", func() bool { return len(recurring(t, jobs)) == 1 })
	planned := scheduled(t, jobs)[0].EnqueuedAt
	is.True(time.Since(planned) < time.Hour)
	sure(jobs.Add(t.Context(), worqr.TaskSpec{Key: "cleanup", KeepPayload: true}))(t) // now
	starts(first, "0 0 true true")
	now := recurring(t, jobs)["cleanup"]
	is.True(now.Current.Equal(c.First))
	is.True(now.Next.Equal(c.First.Add(day)))
	is.True(now.Asserted)
	second := launch(t, c)
	first.Kill()
	starts(second, "0 1 true true") // not tomorrow's occurrence
	second.Tell("fail")
	starts(second, "1 1 true true")
	second.Tell("panic")
	starts(second, "2 1 true true")
	second.Tell("fail for good")
	eventually(t, "it goes on", func() bool {
		r := recurring(t, jobs)["cleanup"]
		return r.Last().Outcome == "failed" && r.Current.IsZero()
	})
	r := recurring(t, jobs)["cleanup"]
	is.True(r.Next.Equal(c.First.Add(day)))
	is.True(r.Last().DueAt.Equal(c.First))
	is.True(time.Since(r.Last().At) < time.Hour)

	failedTask := failed(t, jobs)[0]
	is.True(failedTask.EnqueuedAt.Equal(planned))
	is.Equal(failedTask.Key, fmt.Sprintf("cleanup@%d", c.First.UnixMilli())) // so it doesn't block the next one
	is.True(failedTask.DueAt.Equal(c.First))
	is.True(sure(jobs.RequeueFailed(t.Context(), failedTask.ID))(t) == 1)
	is.Equal(receive(t, second.Reports, 1)[0].Key, failedTask.Key)
	second.Tell("return")
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: c.Prefix})
	is.Equal(len(about(sure(doctor.Check(t.Context(), nil))(t), "job-failed")), 1)
	is.True(sure(jobs.RunNow(t.Context(), "cleanup"))(t))
	is.Equal(receive(t, second.Reports, 1)[0].Key, "cleanup")
	second.Tell("return")
	eventually(t, "a good run by hand ends the finding", func() bool {
		return len(about(sure(doctor.Check(t.Context(), nil))(t), "job-failed")) == 0
	})
	r = recurring(t, jobs)["cleanup"]
	is.Equal(r.Last().Outcome, "finished")
	is.True(r.Last().DueAt.IsZero() && r.Next.Equal(c.First.Add(day)))
	eventually(t, "only tomorrow's is left", func() bool {
		s := scheduled(t, jobs)
		return len(s) == 1 && s[0].Key == "cleanup" && s[0].DueAt.Equal(c.First.Add(day)) && stats(t, jobs).Running == 0
	})
}

// Of two deploys, the newer one's schedule applies until its peers are gone. Then no peer has it
// anymore, and it ends.
func TestNewerSchedule(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	peer := func(at time.Time, payload string) (*worqr.Queue, *journal, func()) {
		var j journal
		p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond, Logger: j.Logger()})
		if payload != "" {
			is.NoErr(q.Every("x", daily{at}, []byte(payload), nil))
		}
		q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		return q, &j, run(t, p)
	}
	next := func(q *worqr.Queue, what string, at time.Time) {
		t.Helper()
		eventually(t, what, func() bool { return recurring(t, q)["x"].Next.Equal(at) })
	}
	one, two := inAnHour(), inAnHour().Add(time.Hour)
	old, said, _ := peer(one, "1")
	next(old, "the first", one)
	_, _, stopNewer := peer(two, "2")
	next(old, "the newer", two)
	eventually(t, "the first peer says so", func() bool { return len(said.Lines("newer schedule")) == 1 })
	_, _, stopAgain := peer(one, "1") // of the first deploy, started again
	is.True(recurring(t, old)["x"].Next.Equal(two))
	stopNewer()
	next(old, "the first again", one)
	stopAgain()

	_, theirs, _ := peer(one, "")
	is.NoErr(old.Every("x", nil, nil, nil))
	eventually(t, "it has ended", func() bool { return len(recurring(t, old)) == 0 })
	eventually(t, "a peer logs it", func() bool {
		return len(said.Lines("schedules ended"))+len(theirs.Lines("schedules ended")) == 1
	})
	is.Equal(len(scheduled(t, old)), 0)
}

// When Redis has lost everything, the schedules are restored at once.
func TestFlushedSchedules(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{})
	at := inAnHour()
	for i := range 60 { // more than one beat asserts
		is.NoErr(q.Every(fmt.Sprint(i), daily{at}, nil, nil))
	}
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	run(t, p)
	there := func() bool { return len(recurring(t, q)) == 60 && len(scheduled(t, q)) == 60 }
	eventually(t, "all are there", there)
	redistest.Do(t, redistest.Dial(t, server.URL()), "FLUSHALL")
	eventually(t, "all are back", there)
}

// A missed time occurs once, or not at all.
func TestMissed(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	must(t, q.Pause(t.Context()))
	is.NoErr(q.Every("late", worqr.Interval(time.Second), nil, nil))
	is.NoErr(q.Every("skipped", worqr.Interval(time.Second), nil, &worqr.EveryOptions{SkipLate: 500 * time.Millisecond}))
	starts := make(chan *worqr.Task, 100)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- t
		return nil
	}, nil)
	run(t, p)
	var missed map[string]inspect.RecurringTask
	eventually(t, "they are planned, and missed", func() bool {
		missed = recurring(t, q)
		return len(missed) == 2 && time.Since(missed["late"].Next) > time.Second && time.Since(missed["skipped"].Next) > time.Second
	})
	is.NoErr(q.Resume(t.Context()))
	seen := map[string]*worqr.Task{}
	for len(seen) < 2 {
		if task := receive(t, starts, 1)[0]; seen[task.Key] == nil {
			seen[task.Key] = task
		}
	}
	is.True(seen["late"].DueAt.Equal(missed["late"].Next))
	is.True(seen["skipped"].DueAt.After(missed["skipped"].Next))
}

// Each occurrence has the properties of its schedule, even in the failed queue.
func TestRecurrenceProperties(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	headers := map[string]string{"trace": "1"}
	is.NoErr(q.Every("x", daily{inAnHour()}, nil, &worqr.EveryOptions{
		Headers: headers, Timeout: 20 * time.Millisecond, MaxRetries: 1}))
	starts := make(chan *worqr.Task, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		starts <- t
		<-ctx.Done()
		return context.Cause(ctx)
	}, &worqr.HandleOptions{Backoff: atOnce})
	run(t, p)
	eventually(t, "it is planned", func() bool { return len(recurring(t, q)) == 1 })
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: "x", KeepPayload: true}))(t) // now
	for _, task := range receive(t, starts, 2) {
		is.Equal(task.Headers, headers)
	}
	eventually(t, "it has failed", func() bool { return recurring(t, q)["x"].Last().Outcome == "failed" })
	is.Equal(failed(t, q)[0].Headers, headers)
	is.True(strings.HasPrefix(failed(t, q)[0].Error, worqr.ErrTimeout.Error()))
}

// A canceled or removed occurrence doesn't run; the next one does. An Add without a time makes the
// next one run now.
func TestDropOccurrence(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Lease: 300 * time.Millisecond})
	at := inAnHour()
	is.NoErr(q.Every("x", daily{at}, []byte("a"), nil))
	starts := make(chan *worqr.Task, 10)
	causes := make(chan error, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		starts <- t
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, nil)
	run(t, p)
	next := func(want time.Time) {
		t.Helper()
		eventually(t, "the next one is planned", func() bool {
			s := scheduled(t, q)
			return len(s) == 1 && s[0].DueAt.Equal(want)
		})
	}
	next(at)
	is.True(sure(q.RemoveKey(t.Context(), "x"))(t))
	next(at.Add(day))
	add(t, q, worqr.TaskSpec{Key: "x", Payload: []byte("a")})
	is.True(receive(t, starts, 1)[0].DueAt.IsZero()) // one more run
	report := sure(q.CancelKey(t.Context(), "x"))(t)
	wait(t, report)
	is.True(is_(receive(t, causes, 1)[0], worqr.ErrCanceled))
	next(at.Add(day))
	add(t, q, worqr.TaskSpec{Key: "x", KeepPayload: true}) // moves the next one
	is.True(receive(t, starts, 1)[0].DueAt.Equal(at.Add(day)))
	wait(t, sure(q.CancelKey(t.Context(), "x"))(t))
	is.True(is_(receive(t, causes, 1)[0], worqr.ErrCanceled))
	next(at.Add(2 * day))
	is.Equal(recurring(t, q)["x"].Last().Outcome, "canceled")
}

// RunNow runs a recurring task with its payload and headers, even while an occurrence runs. The
// schedule doesn't change, and if the key doesn't recur, nothing runs.
func TestRunNow(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	headers, at := map[string]string{"trace": "1"}, inAnHour()
	is.NoErr(q.Every("x", daily{at}, []byte("a"), &worqr.EveryOptions{Headers: headers}))
	starts, end := make(chan *worqr.Task, 10), make(chan error)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- t
		return <-end
	}, nil)
	run(t, p)
	eventually(t, "it is planned", func() bool { return recurring(t, q)["x"].Next.Equal(at) })
	now := func() bool { return sure(q.RunNow(t.Context(), "x"))(t) }
	started := func() {
		t.Helper()
		task := receive(t, starts, 1)[0]
		is.Equal([]string{task.Key, string(task.Payload), task.Headers["trace"]}, []string{"x", "a", "1"})
	}
	is.True(now())
	started()
	is.True(recurring(t, q)["x"].Next.Equal(at))
	is.True(now()) // after the one that runs
	is.True(now()) // the same one
	end <- nil
	started()
	end <- worqr.RetryAfter(errors.New("busy"), time.Hour)
	eventually(t, "it waits for its retry", func() bool { return len(scheduled(t, q)) == 1 })
	is.True(now()) // starts its retry
	started()
	end <- nil
	eventually(t, "it has ended", func() bool {
		return p.Stats().Finished == 2 && recurring(t, q)["x"].Next.Equal(at)
	})
	is.True(recurring(t, q)["x"].Next.Equal(at))
	is.True(sure(q.RemoveKey(t.Context(), "x"))(t))
	is.True(recurring(t, q)["x"].Next.Equal(at.Add(day)))
	is.True(!sure(q.RunNow(t.Context(), "y"))(t))
	is.Equal(len(starts), 0)
}

// Explain reports that a key recurs, its next time, and that no peer asserts it.
func TestExplainRecurring(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, looker := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix}).Queue("q")
	q, at := p.Queue("q"), inAnHour()
	is.NoErr(q.Every("x", daily{at}, nil, nil))
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	stop := run(t, p)
	eventually(t, "it is planned", func() bool { return len(recurring(t, looker)) == 1 })
	e := sure(looker.Explain(t.Context(), worqr.Query{Key: "x"}))(t)
	is.True(e.Recurs.Asserted)
	is.True(e.Recurs.Next.Equal(at))
	is.True(strings.Contains(e.String(), "It recurs on \"q\". The next time is "+at.UTC().Format("2006-01-02 15:04:05")))
	is.Equal(sure(looker.Explain(t.Context(), worqr.Query{Key: "y"}))(t).Recurs, nil)
	stop()

	conn := redistest.Conn(t)
	redistest.Do(t, conn, "ZADD", prefix+":recurring:{q}", 1, "k:x")
	redistest.Do(t, conn, "ZADD", prefix+":schedule:{q}", 1, "k:x") // as if it were due
	e = sure(looker.Explain(t.Context(), worqr.Query{Key: "x"}))(t)
	is.Equal(e.Copies[0].Reasons, []inspect.Reason{inspect.ReasonWithheld, inspect.ReasonNoWorker})
	is.True(e.Copies[0].DueAt.Equal(at))
	is.True(strings.Contains(e.String(), "It's withheld because no live peer has its schedule"))
	is.True(!e.Recurs.Asserted)
	worker := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
	is.True(is_(failure(worker.StartTasks(t.Context(), 1)), worqr.ErrNoTask)) // it's taken away
	redistest.Do(t, conn, "DEL", prefix+":recurrence:{q}")
	is.Equal(sure(looker.Explain(t.Context(), worqr.Query{Key: "x"}))(t).String(), "It recurs on \"q\". No next run is planned. No live peer has its schedule, so it's withheld; start a peer that calls Every for it.")
}
