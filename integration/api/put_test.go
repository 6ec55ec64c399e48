package api

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// waits is what waits under a key, as the rules of PutOptions have it.
type waits struct {
	payload          string
	at               time.Time
	retries, crashes int
}

// changed is what a Put makes of it.
func (w waits) changed(payload string, o *worqr.PutOptions) waits {
	if o == nil {
		o = &worqr.PutOptions{}
	}
	at := o.At
	if at.IsZero() {
		at = time.Now()
	}
	if !o.KeepPayload {
		w.payload = payload
		if !o.KeepCounts {
			w.retries, w.crashes = 0, 0
		}
	}
	switch {
	case o.Reschedule == worqr.RescheduleAlways, o.Reschedule == worqr.RescheduleIfLater && at.After(w.at), o.Reschedule == worqr.RescheduleIfEarlier && at.Before(w.at):
		w.at = at
	}
	return w
}

func (w waits) check(t testing.TB, what any, got []worqr.ScheduledTask) {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("%+v: %d tasks wait, want one: %+v", what, len(got), got)
	}
	g := got[0]
	if string(g.Payload) != w.payload || !near(g.DueAt, w.at) || g.Retries != w.retries || g.Crashes != w.crashes {
		t.Errorf("%+v: %q at %v with %d retries, %d crashes waits; want %+v", what, g.Payload, g.DueAt, g.Retries, g.Crashes, w)
	}
}

// allOptions are all that a Put can be told, with times before and after that
// of what waits, and none.
func allOptions(times ...time.Time) (all []*worqr.PutOptions) {
	all = append(all, nil)
	for _, at := range times {
		for _, when := range []worqr.Reschedule{worqr.RescheduleAlways, worqr.RescheduleNever, worqr.RescheduleIfLater, worqr.RescheduleIfEarlier} {
			for _, keep := range []bool{false, true} {
				for _, counts := range []bool{false, true} {
					all = append(all, &worqr.PutOptions{At: at, Reschedule: when, KeepPayload: keep, KeepCounts: counts})
				}
			}
		}
	}
	return all
}

// under returns what waits under each key.
func under(t testing.TB, q *worqr.Queue) map[string][]worqr.ScheduledTask {
	t.Helper()
	all := map[string][]worqr.ScheduledTask{}
	for _, s := range scheduled(t, q) {
		all[s.Key] = append(all[s.Key], s)
	}
	return all
}

// A Put on a key under which something waits, with every option.
func TestPutOnWaiting(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	qa, q := working(t, a, "q"), working(t, b, "q")
	now := time.Now()
	all := allOptions(time.Time{}, now.Add(30*time.Minute), now.Add(90*time.Minute), now.Add(-time.Hour))
	for i := range all {
		put(t, q, fmt.Sprint(i), "old", nil)
	}
	_, err := qa.StartTasks(ctx, len(all))
	is.NoErr(err)
	failWorker(t, b, a.WorkerID(), len(all))
	tasks, err := q.StartTasks(ctx, len(all))
	is.NoErr(err)
	is.Equal(len(tasks), len(all))
	for _, task := range tasks {
		is.NoErr(task.Retry(ctx, time.Hour))
	}
	old := waits{"old", now.Add(time.Hour), 1, 1}
	before := under(t, q)
	for i, o := range all {
		old.check(t, "before", before[fmt.Sprint(i)])
		put(t, q, fmt.Sprint(i), "new", o)
	}
	after := under(t, q)
	for i, o := range all {
		want := old.changed("new", o)
		if want.at.Before(now.Add(-time.Minute)) {
			want.at = after[fmt.Sprint(i)][0].DueAt // a time in the past is now
			is.True(want.at.Before(time.Now().Add(time.Minute)))
		}
		want.check(t, o, after[fmt.Sprint(i)])
	}
}

// Any two Puts on a key that runs, and comes back, are the same two Puts on what
// waits.
func TestPutTwiceOnRunning(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	qa, q := working(t, a, "q"), working(t, b, "q")
	now := time.Now()
	all := allOptions(now.Add(30*time.Minute), now.Add(90*time.Minute))[1:]
	keys := map[string][2]*worqr.PutOptions{}
	for i, first := range all {
		for j, second := range all {
			if (i*len(all)+j)%3 == 0 || i == j || testing.Short() { // a third of them
				key := fmt.Sprintf("%d,%d", i, j)
				keys[key] = [2]*worqr.PutOptions{first, second}
				put(t, q, key, "old", nil)
			}
		}
	}
	_, err := qa.StartTasks(ctx, len(keys))
	is.NoErr(err)
	failWorker(t, b, a.WorkerID(), len(keys))
	tasks, err := q.StartTasks(ctx, len(keys))
	is.NoErr(err)
	is.Equal(len(tasks), len(keys))
	for _, task := range tasks {
		put(t, q, task.Key, "first", keys[task.Key][0])
		put(t, q, task.Key, "second", keys[task.Key][1])
	}
	is.Equal(scheduled(t, q), nil)
	for _, task := range tasks {
		is.NoErr(task.Retry(ctx, time.Hour))
	}
	after := under(t, q)
	for key, o := range keys {
		want := waits{"old", now.Add(time.Hour), 1, 1}.changed("first", o[0]).changed("second", o[1])
		want.check(t, fmt.Sprintf("%+v, then %+v", *o[0], *o[1]), after[key])
	}
}

// A Put on a key that runs waits until that ends, whatever way it ends; with the
// default options and with others.
func TestPutOnRunning(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(time.Hour)
	options := map[string]*worqr.PutOptions{
		"default":                 nil,
		"later":                   {At: hour.Add(time.Hour)},
		"past":                    {At: time.Unix(1, 0)},
		"never":                   {Reschedule: worqr.RescheduleNever},
		"later if later":          {At: hour.Add(time.Hour), Reschedule: worqr.RescheduleIfLater},
		"now if later":            {Reschedule: worqr.RescheduleIfLater},
		"later if earlier":        {At: hour.Add(time.Hour), Reschedule: worqr.RescheduleIfEarlier},
		"now if earlier":          {Reschedule: worqr.RescheduleIfEarlier},
		"keep the payload":        {KeepPayload: true},
		"keep counts":             {KeepCounts: true},
		"later, keep the payload": {At: hour.Add(time.Hour), KeepPayload: true},
	}
	type world struct {
		a, b *worqr.Peer
		qa   *worqr.Queue
		task *worqr.Task
	}
	// How a run ends, and what of it waits then, if it comes back.
	back := time.UnixMilli(1) // before all that has a time
	ends := map[string]struct {
		end   func(context.Context, world) error
		comes *waits
	}{
		"finish":     {func(ctx context.Context, w world) error { return w.task.Finish(ctx) }, nil},
		"fail":       {func(ctx context.Context, w world) error { return w.task.Fail(ctx, errors.New("no")) }, nil},
		"stop":       {func(ctx context.Context, w world) error { return w.task.Stop(ctx) }, &waits{"old", back, 1, 0}},
		"retry":      {func(ctx context.Context, w world) error { return w.task.Retry(ctx, time.Hour) }, &waits{"old", hour, 2, 0}},
		"retry now":  {func(ctx context.Context, w world) error { return w.task.Retry(ctx, 0) }, &waits{"old", time.Now(), 2, 0}},
		"StopWork":   {func(ctx context.Context, w world) error { return w.qa.StopWork(ctx) }, &waits{"old", back, 1, 0}},
		"StopWorker": {func(ctx context.Context, w world) error { return w.a.StopWorker(ctx) }, &waits{"old", back, 1, 0}},
		"FailWorker": {func(ctx context.Context, w world) error {
			_, err := w.b.FailWorker(ctx, w.a.WorkerID())
			return err
		}, &waits{"old", back, 1, 1}},
	}
	for how, end := range ends {
		for which, o := range options {
			t.Run(how+", "+which, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				ctx, prefix := t.Context(), redistest.Prefix(t)
				a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
				qa, qb := working(t, a, "q"), working(t, b, "q")
				put(t, qb, "key", "old", nil)
				is.NoErr(take(t, qa).Retry(ctx, 0))
				w := world{a, b, qa, take(t, qa)}
				is.Equal(w.task.Retries, 1)
				put(t, qb, "key", "new", o)
				noTask(t, qb) // never two at once
				is.Equal(scheduled(t, qb), nil)
				n, err := qb.Len(ctx)
				is.NoErr(err)
				is.Equal(n, 1)
				is.NoErr(end.end(ctx, w))

				want := waits{"new", time.Now(), 0, 0}
				switch {
				case end.comes != nil:
					want = end.comes.changed("new", o)
				case o != nil && !o.At.IsZero():
					want.at = o.At
				}
				got := scheduled(t, qb)
				is.Equal(len(got), 1)
				if want.at.Before(hour.Add(-30 * time.Minute)) { // is due
					is.True(got[0].DueAt.Before(time.Now().Add(time.Minute)))
					want.at = got[0].DueAt
				}
				want.check(t, o, got)
				if got[0].DueAt.Before(hour.Add(-30 * time.Minute)) {
					task := take(t, qb)
					is.Equal(string(task.Payload), want.payload)
					is.Equal(task.Retries, want.retries)
					is.Equal(task.Crashes, want.crashes)
					is.Equal(task.Key, "key")
					is.NoErr(task.Finish(ctx))
				} else {
					noTask(t, qb)
					removed, err := qb.RemoveKey(ctx, "key")
					is.NoErr(err)
					is.True(removed)
				}
				noTask(t, qb)
				if how == "fail" {
					is.Equal(failedPayloads(t, qb), []string{"old"})
					_, err := qb.DeleteAllFailed(ctx)
					is.NoErr(err)
				}
				is.NoErr(b.StopWorker(ctx))
				_ = a.Close()
				nothingLeft(t, prefix, "q")
			})
		}
	}
}

// Several Puts on a key that runs and ends: only what they made of each other.
func TestPutSeveralTimesOnRunning(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	hour := time.Now().Add(time.Hour)
	put(t, q, "key", "old", nil)
	task := take(t, q)
	put(t, q, "key", "first", &worqr.PutOptions{At: hour})
	put(t, q, "key", "second", &worqr.PutOptions{Reschedule: worqr.RescheduleNever})
	put(t, q, "key", "third", &worqr.PutOptions{KeepPayload: true, At: hour.Add(-30 * time.Minute), Reschedule: worqr.RescheduleIfEarlier})
	is.NoErr(task.Finish(ctx))
	waits{"second", hour.Add(-30 * time.Minute), 0, 0}.check(t, "three puts", scheduled(t, q))
	put(t, q, "key", "again", nil)
	task = take(t, q)
	put(t, q, "key", "blocked", nil)
	removed, err := q.RemoveKey(ctx, "key") // and its rules
	is.NoErr(err)
	is.True(removed)
	is.NoErr(task.Retry(ctx, time.Hour))
	waits{"again", time.Now().Add(time.Hour), 1, 0}.check(t, "removed", scheduled(t, q))
	put(t, q, "key", "", nil)
	is.Equal(len(scheduled(t, q)), 1)
	is.Equal(string(take(t, q).Payload), "")
}

// The same with handlers: what is put while they run runs after, and never two
// at once.
func TestPutOnHandled(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	type end struct {
		do     func(ctx context.Context) error
		fails  bool   // ends in the failed queue
		before string // what is to be done before the handler ends
	}
	ends := map[string]end{
		"nil":        {do: func(context.Context) error { return nil }},
		"error":      {do: func(context.Context) error { return no }},
		"RetryAfter": {do: func(context.Context) error { return worqr.RetryAfter(no, time.Hour) }},
		"Permanent":  {do: func(context.Context) error { return worqr.Permanent(no) }, fails: true},
		"Broken":     {do: func(context.Context) error { return worqr.Malformed(no) }, fails: true},
		"panic":      {do: func(context.Context) error { panic("no") }},
		"Goexit":     {do: func(context.Context) error { runtime.Goexit(); return nil }},
		"timeout":    {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"canceled":   {do: func(ctx context.Context) error { return ctx.Err() }, before: "cancel"},
		"shutdown":   {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, before: "shutdown"},
		"failed":     {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, before: "fail"},
	}
	for how, end := range ends {
		for which, o := range map[string]*worqr.PutOptions{
			"default": nil, "past": {At: time.Unix(1, 0)}, "soon": {At: time.Now().Add(time.Second)},
			"if earlier": {Reschedule: worqr.RescheduleIfEarlier}, "keep counts": {KeepCounts: true},
		} {
			t.Run(how+", "+which, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				ctx, prefix := t.Context(), redistest.Prefix(t)
				var running, runs, twice atomic.Int64
				started, release, got := make(chan string, 10), make(chan struct{}), make(chan string, 10)
				serve := func() (*worqr.Peer, func()) {
					p := open(t, worqr.Options{Prefix: prefix, Drain: -1})
					ho := &worqr.HandleOptions{Concurrency: 3, Backoff: func(int) time.Duration { return time.Hour }}
					if how == "timeout" {
						ho.Timeout = 700 * time.Millisecond
					}
					p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
						if running.Add(1) > 1 {
							twice.Add(1)
						}
						defer running.Add(-1)
						if runs.Add(1) > 1 {
							got <- string(t.Payload)
							return nil
						}
						started <- string(t.Payload)
						<-release
						if end.before == "cancel" {
							<-ctx.Done()
						}
						return end.do(ctx)
					}, ho)
					return p, run(t, p)
				}
				a, stop := serve()
				q := a.Queue("q")
				put(t, q, "key", "old", nil)
				is.Equal(receive(t, started, 1), []string{"old"})
				b, _ := serve()
				eventually(t, "both serve", func() bool { return stats(t, q).Workers == 2 })
				if end.before == "cancel" {
					report, err := q.CancelKey(ctx, "key")
					is.NoErr(err)
					is.Equal(report.Removed, 0)
				}
				put(t, q, "key", "new", o)
				close(release)
				switch end.before {
				case "shutdown":
					stop()
				case "fail":
					failWorker(t, b, a.WorkerID(), 1)
				}
				is.Equal(receive(t, got, 1), []string{"new"})
				if end.before != "fail" {
					is.Equal(twice.Load(), int64(0))
				}
				eventually(t, "nothing is left", func() bool {
					s := stats(t, q)
					return s.Running+s.Scheduled+s.Waiting == 0
				})
				is.Equal(runs.Load(), int64(2))
				is.Equal(len(failed(t, q)) == 1, end.fails)
			})
		}
	}
}

// A worker that was given up for dead changes nothing any more, and stops
// nothing.
func TestLateEndOfKeyed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *worqr.Task) error{
		"finish": func(ctx context.Context, t *worqr.Task) error { return t.Finish(ctx) },
		"retry":  func(ctx context.Context, t *worqr.Task) error { return t.Retry(ctx, 0) },
		"fail":   func(ctx context.Context, t *worqr.Task) error { return t.Fail(ctx, errors.New("no")) },
		"stop":   func(ctx context.Context, t *worqr.Task) error { return t.Stop(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
			qa, qb := working(t, a, "q"), working(t, b, "q")
			put(t, qa, "key", "a", nil)
			late := take(t, qa)
			failWorker(t, b, a.WorkerID(), 1)
			task := take(t, qb)
			is.Equal(task.Crashes, 1)
			put(t, qb, "key", "blocked", nil)
			is.True(is_(end(ctx, late), worqr.ErrNotOwner))
			is.Equal(stats(t, qb).Running, 1)
			is.Equal(scheduled(t, qb), nil) // still blocked
			is.Equal(failed(t, qb), nil)
			enqueue(t, qb, "another")
			another := take(t, qb)
			is.Equal(string(another.Payload), "another") // nothing stands still
			is.NoErr(another.Finish(ctx))
			noTask(t, qb)
			is.NoErr(task.Finish(ctx))
			task = take(t, qb)
			is.Equal(string(task.Payload), "blocked")
			is.Equal(task.Crashes, 0)
			is.NoErr(task.Finish(ctx))
			noTask(t, qb)
			eventually(t, "the other is back", func() bool {
				_, err := qa.StartTask(ctx)
				return is_(err, worqr.ErrNoTask)
			})
			failWorker(t, b, a.WorkerID(), 0)
			is.NoErr(b.StopWorker(ctx))
			_ = a.Close()
			nothingLeft(t, prefix, "q")
		})
	}
}

// A handler that puts its own key again has it done periodically.
func TestPeriodic(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	const period = 30 * time.Millisecond
	ticks := make(chan time.Time, 100)
	var running, twice, n atomic.Int64
	var stops []func()
	var q *worqr.Queue
	for range 2 {
		p := open(t, worqr.Options{Prefix: prefix})
		q = p.Queue("q")
		mine := q
		q.Handle(func(ctx context.Context, t *worqr.Task) error {
			if running.Add(1) > 1 {
				twice.Add(1)
			}
			defer running.Add(-1)
			ticks <- time.Now()
			if n.Add(1) >= 10 {
				return nil
			}
			if err := mine.Put(ctx, t.Key, t.Payload, &worqr.PutOptions{At: time.Now().Add(period)}); err != nil {
				return worqr.Permanent(err)
			}
			if n.Load() == 5 {
				return errors.New("no") // goes on all the same, when it was to
			}
			return nil
		}, &worqr.HandleOptions{Backoff: func(int) time.Duration { return time.Hour }})
		stops = append(stops, run(t, p))
	}
	put(t, q, "periodic", "tick", nil)
	all := receive(t, ticks, 10)
	for i := 1; i < len(all); i++ {
		if d := all[i].Sub(all[i-1]); d < period {
			t.Errorf("a tick after %v", d)
		}
	}
	eventually(t, "the last has ended", func() bool { return stats(t, q).Running == 0 })
	is.Equal(twice.Load(), int64(0))
	for _, stop := range stops {
		stop()
	}
	is.Equal(len(ticks), 0)
	is.Equal(len(failed(t, q)), 0)
	nothingLeft(t, prefix, "q")
	is.NoErr(ctx.Err())
}

// The same key in two queues of a peer is two things.
func TestSameKeyInTwoQueues(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Capacity: 2})
	started, release := make(chan string, 10), make(chan struct{}, 10)
	var queues []*worqr.Queue
	for _, name := range []string{"one", "two"} {
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			started <- t.Queue + "/" + t.Key
			<-release
			return nil
		}, &worqr.HandleOptions{Concurrency: 2})
		queues = append(queues, q)
	}
	stop := run(t, p)
	for range 3 { // no capacity goes astray
		for _, q := range queues {
			put(t, q, "key", "same", nil)
		}
		is.Equal(sorted(receive(t, started, 2)), []string{"one/key", "two/key"}) // at the same time
		for _, q := range queues {
			put(t, q, "key", "blocked", nil)
		}
		release <- struct{}{}
		release <- struct{}{}
		is.Equal(sorted(receive(t, started, 2)), []string{"one/key", "two/key"})
		report, err := queues[0].CancelKey(t.Context(), "key") // of this one only
		is.NoErr(err)
		release <- struct{}{}
		release <- struct{}{}
		wait(t, report)
		eventually(t, "nothing runs", func() bool { return stats(t, queues[0]).Running+stats(t, queues[1]).Running == 0 })
	}
	stop()
	is.Equal(p.Stats().Canceled+p.Stats().Finished, int64(12))
	is.True(p.Stats().Canceled <= 3)
	nothingLeftBut(t, prefix, "one", ":token:{two}")
}
