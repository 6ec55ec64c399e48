package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// What queasy can do, with the defaults first: it was with these that it failed.

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

// How often a task is tried again: its identity stays, and then it has failed.
func TestMaxRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max, runs int
	}{"default": {0, 11}, "explicit": {2, 3}, "one": {1, 2}, "negative": {-1, 1}} {
		for _, key := range []string{"", "key"} {
			t.Run(name+", key="+key, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				ctx, prefix := t.Context(), redistest.Prefix(t)
				p := open(t, worqr.Options{Prefix: prefix})
				q := p.Queue("q")
				type attempt struct {
					payload, key string
					retries      int
				}
				var want []attempt
				got := make(chan attempt, 100)
				asked := make(chan int, 100)
				q.Handle(func(_ context.Context, t *worqr.Task) error {
					got <- attempt{string(t.Payload), t.Key, t.Retries}
					t.Payload[0] = 'x' // is the handler's
					return fmt.Errorf("no %d", t.Retries)
				}, &worqr.HandleOptions{MaxRetries: c.max, Backoff: func(retry int) time.Duration {
					asked <- retry
					return 0
				}})
				if key == "" {
					enqueue(t, q, "a")
				} else {
					put(t, q, key, "a", nil)
				}
				stop := run(t, p)
				for i := range c.runs {
					want = append(want, attempt{"a", key, i})
				}
				is.Equal(receive(t, got, c.runs), want)
				eventually(t, "it has failed", func() bool { return stats(t, q).Failed == 1 })
				f := failed(t, q)
				is.Equal(f[0].Retries, c.runs-1)
				is.Equal(f[0].Kind, worqr.FailureError)
				is.Equal(f[0].Error, fmt.Sprintf("no %d", c.runs-1))
				is.Equal(f[0].Key, key)
				is.Equal(string(f[0].Payload), "a")
				is.Equal(f[0].WorkerID, p.WorkerID())
				stop()
				is.Equal(len(got), 0)
				is.Equal(len(asked), c.runs-1)
				for i := range c.runs - 1 {
					is.Equal(<-asked, i+1)
				}
				is.Equal(p.Stats().Retried, int64(c.runs-1))
				is.Equal(p.Stats().Failed, int64(1))
				is.Equal(p.Stats().HandlerErrors, int64(c.runs))
				is.Equal(p.Stats().Finished, int64(0))
				_, err := q.DeleteAllFailed(ctx)
				is.NoErr(err)
				nothingLeft(t, prefix, "q")
			})
		}
	}
}

// Backoff may be anything, and the default is not at once.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backoff     func(int) time.Duration
		least, most time.Duration
	}{
		"default":  {nil, time.Second, 3 * time.Second},
		"negative": {func(int) time.Duration { return -time.Hour }, 0, 0},
		"huge":     {func(int) time.Duration { return 1<<63 - 1 }, 99 * 365 * 24 * time.Hour, 101 * 366 * 24 * time.Hour},
		"panics":   {func(int) time.Duration { panic("no") }, time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, worqr.Options{})
			q := p.Queue("q")
			second := make(chan string, 1)
			ended := time.Now()
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				if t.Retries > 0 {
					second <- ""
					return nil
				}
				ended = time.Now()
				return errors.New("no")
			}, &worqr.HandleOptions{Backoff: c.backoff, Concurrency: 1})
			enqueue(t, q, "a")
			run(t, p)
			if c.most == 0 {
				receive(t, second, 1)
				return
			}
			eventually(t, "it waits", func() bool { return len(scheduled(t, q)) == 1 })
			in := scheduled(t, q)[0].DueAt.Sub(ended)
			if in < c.least || in > c.most+10*time.Second {
				t.Errorf("tried again in %v", in)
			}
		})
	}
}

// A Backoff that panics is told of once, with its stack, and again when it is over. A
// task that is put off for ever is put off by a century, and is there.
func TestBackoffIsTold(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	told := &journal{}
	p := open(t, worqr.Options{Logger: told.Logger()})
	q := p.Queue("q")
	fail := errors.New("no")
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if string(t.Payload) == "later" {
			return worqr.RetryAfter(fail, 1<<63-1)
		}
		return fail
	}, &worqr.HandleOptions{Concurrency: 1, Backoff: func(int) time.Duration { panic("unsound") }})
	run(t, p)
	enqueue(t, q, "a", "b", "later")
	eventually(t, "they wait", func() bool { return p.Stats().Retried == 3 })
	lines := told.Lines("Backoff panics")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "unsound") && strings.Contains(lines[0], "TestBackoffIsTold"))
	for _, s := range scheduled(t, q) {
		if in := time.Until(s.DueAt); string(s.Payload) == "later" && (in < 99*365*24*time.Hour || in > 101*366*24*time.Hour) {
			t.Errorf("put off by %v", in)
		}
	}
}

// As many dead workers, and a task has failed: with Run and by hand, under a
// key, from the list and retried.
func TestMaxCrashes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max, crashes int // 0: never
	}{"default": {0, 3}, "one": {1, 1}, "two": {2, 2}, "negative": {-1, 0}} {
		for _, kind := range []string{"list", "key", "retried"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				ctx, prefix := t.Context(), redistest.Prefix(t)
				p := open(t, worqr.Options{Prefix: prefix})
				q := p.Queue("q")
				key, retries := "", 0
				var hands []*worqr.Peer
				hand := func() (*worqr.Peer, *worqr.Task) {
					h := open(t, worqr.Options{Prefix: prefix})
					hands = append(hands, h)
					task, err := working(t, h, "q").StartTask(ctx)
					is.NoErr(err)
					is.Equal(task.Crashes, len(hands)-1)
					return h, task
				}
				switch kind {
				case "key":
					key = "key"
					put(t, q, key, "a", nil)
				default:
					enqueue(t, q, "a")
				}
				deaths := c.crashes
				if deaths == 0 {
					deaths = 2 // by hand, 3 are too many
				}
				for i := range deaths {
					h, task := hand()
					if kind == "retried" && i == 0 {
						is.NoErr(task.Retry(ctx, 0))
						task = take(t, h.Queue("q"))
						is.Equal(task.Retries, 1)
						retries = 1
					}
					failWorker(t, p, h.WorkerID(), 1)
					is.NoErr(h.Close())
				}
				// What stands behind it is not held up, and is itself.
				enqueue(t, q, "behind")
				got := make(chan string, 10)
				q.Handle(func(_ context.Context, t *worqr.Task) error {
					got <- string(t.Payload)
					return nil
				}, &worqr.HandleOptions{MaxCrashes: c.max})
				stop := run(t, p)
				if c.crashes == 0 {
					is.Equal(sorted(receive(t, got, 2)), []string{"a", "behind"})
				} else {
					is.Equal(receive(t, got, 1), []string{"behind"})
					eventually(t, "it has failed", func() bool { return stats(t, q).Failed == 1 })
				}
				eventually(t, "nothing runs", func() bool { s := stats(t, q); return s.Running+s.Waiting+s.Scheduled == 0 })
				stop()
				is.Equal(p.Stats().TakenOver, int64(0))
				is.Equal(p.Stats().Stopped, int64(0))
				if c.crashes > 0 {
					f := failed(t, q)
					is.Equal(len(f), 1)
					is.Equal(f[0].Kind, worqr.FailureCrashed)
					is.Equal(f[0].Crashes, c.crashes)
					is.Equal(f[0].Retries, retries)
					is.Equal(f[0].Key, key)
					is.True(f[0].Error != "")
					is.Equal(p.Stats().Failed, int64(1))
					_, err := q.DeleteAllFailed(ctx)
					is.NoErr(err)
				}
				nothingLeft(t, prefix, "q")
			})
		}
	}
}

// Tasks that are taken in one call with some that have crashed too often are
// themselves, and can be ended.
func TestCrashedAmongOthers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
	put(t, q, "key", "crashes/key", nil)
	enqueue(t, q, "crashes/1", "crashes/2")
	victim := func() { // takes what it gets, and dies
		v := open(t, worqr.Options{Prefix: prefix})
		tasks, err := working(t, v, "q").StartTasks(ctx, 3)
		is.NoErr(err)
		failWorker(t, v, v.WorkerID(), len(tasks))
		is.NoErr(v.Close())
	}
	victim()
	victim()
	for deaths := 0; deaths < 3; deaths++ { // the last death of each is its own
		victim()
	}
	put(t, q, "other", "good/key", nil)
	enqueue(t, q, "good/1", "good/2", "good/3")
	var got []string
	for len(got) < 4 {
		tasks, err := q.StartTasks(ctx, 5)
		is.NoErr(err)
		running := map[string]string{}
		for r, err := range q.Running(ctx) {
			is.NoErr(err)
			running[r.AttemptID] = string(r.Payload)
		}
		for _, task := range tasks {
			is.Equal(running[task.AttemptID], string(task.Payload)) // its own id
			got = append(got, string(task.Payload))
			is.NoErr(task.Finish(ctx))
		}
	}
	is.Equal(sorted(got), []string{"good/1", "good/2", "good/3", "good/key"})
	is.Equal(sorted(failedPayloads(t, q)), []string{"crashes/1", "crashes/2", "crashes/key"})
	is.Equal(stats(t, q).Running, 0)
	noTask(t, q)
}

// Stops, drains and cancels are no crashes, and a task that finishes has its
// count forgotten.
func TestWhatIsNoCrash(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	enqueue(t, q, "list")
	put(t, q, "key", "key", nil)
	for range 4 {
		tasks, err := q.StartTasks(ctx, 2)
		is.NoErr(err)
		for _, task := range tasks {
			is.Equal(task.Crashes, 0)
		}
		is.NoErr(tasks[0].Stop(ctx))
		is.NoErr(q.StopWork(ctx))
		is.NoErr(q.StartWork(ctx))
	}
	other := open(t, worqr.Options{Prefix: prefix})
	_, err := q.StartTasks(ctx, 2)
	is.NoErr(err)
	failWorker(t, other, p.WorkerID(), 2)
	qo := working(t, other, "q")
	tasks, err := qo.StartTasks(ctx, 2)
	is.NoErr(err)
	for _, task := range tasks {
		is.Equal(task.Crashes, 1)
		is.NoErr(task.Finish(ctx))
	}
	enqueue(t, qo, "list")
	put(t, qo, "key", "key", nil)
	tasks, err = qo.StartTasks(ctx, 2)
	is.NoErr(err)
	for _, task := range tasks {
		is.Equal(task.Crashes, 0)
		is.NoErr(task.Finish(ctx))
	}
	is.NoErr(other.StopWorker(ctx))
	_ = p.Close()
	nothingLeft(t, prefix, "q")
}

// OnFailed is told what has happened, has retries of its own, and what it
// finishes is gone.
func TestOnFailed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	type told struct {
		payload, key string
		retries      int
		failure      worqr.FailedTask
	}
	got := make(chan told, 100)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if t.Failure != nil {
			return nil // must not be
		}
		if string(t.Payload) == "broken" {
			return worqr.Malformed(errors.New("what is this"))
		}
		return errors.New("no")
	}, &worqr.HandleOptions{MaxRetries: 1, Backoff: atOnce,
		OnFailed: func(_ context.Context, t *worqr.Task) error {
			got <- told{string(t.Payload), t.Key, t.Retries, *t.Failure}
			if t.Retries < 2 {
				return errors.New("not yet")
			}
			return nil
		},
		OnFailedOptions: &worqr.HandleOptions{Backoff: atOnce},
	})
	stop := run(t, p)
	put(t, q, "key", "a", nil)
	all := receive(t, got, 3)
	for i, g := range all {
		is.Equal(g.retries, i)
		is.True(near(g.failure.FailedAt, time.Now()))
		is.True(g.failure.ID != "")
		is.Equal(g.failure.ID, all[0].failure.ID)
		g.failure.ID, g.failure.FailedAt = "", time.Time{}
		is.Equal(g, told{"a", "key", i, worqr.FailedTask{Payload: []byte("a"), Key: "key", Kind: worqr.FailureError,
			Error: "no", Retries: 1, WorkerID: p.WorkerID()}})
	}
	enqueue(t, q, "broken")
	b := receive(t, got, 3)[2]
	is.Equal(b.key, "")
	is.Equal(b.failure.Kind, worqr.FailureMalformed)
	is.Equal(b.failure.Retries, 0)
	is.Equal(b.failure.Error, "what is this")
	eventually(t, "all is done", func() bool { return p.Stats().Finished == 2 })
	is.Equal(failed(t, q), nil)
	stop()
	is.Equal(len(got), 0)
	for _, key := range left(t, prefix+":failed") {
		if !strings.HasPrefix(key, prefix+":failed:token:") {
			t.Errorf("left behind: %s", key)
		}
	}
}

// OnFailed runs at least once, also when the worker dies that runs it; what it
// gives up stays, is not run again, and can be put back.
func TestOnFailedAtLeastOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	no := errors.New("no")
	type told struct {
		payload string
		crashes int
	}
	started := make(chan told, 10)
	serve := func(holds bool) *worqr.Peer {
		p := open(t, worqr.Options{Prefix: prefix, Drain: -1})
		p.Queue("q").Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(no) },
			&worqr.HandleOptions{OnFailed: func(ctx context.Context, t *worqr.Task) error {
				started <- told{string(t.Payload), t.Crashes}
				if holds {
					<-ctx.Done()
					return ctx.Err()
				}
				return worqr.Permanent(errors.New("hopeless"))
			}})
		return p
	}
	a := serve(true)
	stop := run(t, a)
	q := a.Queue("q")
	put(t, q, "key", "a", nil)
	is.Equal(receive(t, started, 1), []told{{"a", 0}})
	is.Equal(failed(t, q), nil) // it is being worked on
	n, err := q.DeleteAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 0)
	n, err = q.RequeueAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 0)
	b := serve(false)
	run(t, b)
	eventually(t, "both serve", func() bool { return stats(t, q).Workers == 2 })
	failWorker(t, b, a.WorkerID(), 1)
	is.Equal(receive(t, started, 1), []told{{"a", 1}})
	stop()
	eventually(t, "it is given up", func() bool { return len(failed(t, q)) == 1 })
	f := failed(t, q)[0]
	is.Equal(f.Error, "no") // why it failed, not why OnFailed did
	is.Equal(f.Key, "key")
	put(t, q, "key", "b", nil) // the next is not held up, and the first not run again
	is.Equal(receive(t, started, 1), []told{{"b", 0}})
	eventually(t, "both are given up", func() bool { return len(failed(t, q)) == 2 })
	is.Equal(len(started), 0)
	is.Equal(stats(t, q).Failed, 2)
	n, err = q.DeleteFailed(ctx, f.ID)
	is.NoErr(err)
	is.Equal(n, 1)
	n, err = q.RequeueAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 1)
	is.Equal(receive(t, started, 1), []told{{"b", 0}}) // has failed once more
}

// OnFailed that is used up, or whose workers die, keeps the task too.
func TestOnFailedGivesUp(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	var runs atomic.Int64
	q.Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) },
		&worqr.HandleOptions{
			OnFailed: func(context.Context, *worqr.Task) error {
				runs.Add(1)
				panic("no")
			},
			OnFailedOptions: &worqr.HandleOptions{MaxRetries: 2, Backoff: atOnce},
		})
	stop := run(t, p)
	enqueue(t, q, "a")
	eventually(t, "it is given up", func() bool { return len(failed(t, q)) == 1 && runs.Load() == 3 && stats(t, q).Running == 0 })
	stop()
	is.Equal(runs.Load(), int64(3))
	is.Equal(failedPayloads(t, q), []string{"a"})
	n, err := q.DeleteAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 1)
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

// Not before its time, on any peer.
func TestNotBeforeItsTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	type start struct {
		payload string
		at      time.Time
	}
	starts := make(chan start, 200)
	var q *worqr.Queue
	for range 3 {
		p := open(t, worqr.Options{Prefix: prefix})
		q = p.Queue("q")
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			starts <- start{string(t.Payload), time.Now()}
			return nil
		}, nil)
		run(t, p)
	}
	due := map[string]time.Time{}
	for i := range 60 {
		at := time.Now().Add(time.Duration(i*37%60) * 20 * time.Millisecond)
		due[fmt.Sprint(i)] = at
		_, err := q.EnqueueAt(t.Context(), at, []byte(fmt.Sprint(i)))
		is.NoErr(err)
	}
	for _, s := range receive(t, starts, 60) {
		if s.at.Before(due[s.payload]) {
			t.Errorf("%s started %v too early", s.payload, due[s.payload].Sub(s.at))
		}
		delete(due, s.payload)
	}
	is.Equal(len(due), 0)
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

// Whatever the queues weigh, together they occupy no more than Capacity, nothing
// is left, and a full peer goes on once something ends.
func TestCapacity(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const capacity, each = 6, 60
	p := open(t, worqr.Options{Capacity: capacity})
	var mu sync.Mutex
	used, most, above := 0, 0, 0
	use := func(units int) {
		mu.Lock()
		defer mu.Unlock()
		used += units
		most = max(most, used)
		if used > capacity {
			above++
		}
	}
	done := make(chan string, 1000)
	var queues []*worqr.Queue
	for name, o := range map[string]worqr.HandleOptions{
		"light": {Weight: 0, Priority: 2}, "middle": {Weight: 2, Priority: 1}, "heavy": {Weight: 5}, "all": {Weight: 6, Priority: -1},
	} {
		o.Concurrency, o.Backoff = 100, atOnce
		units := max(o.Weight, 1)
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			use(units)
			defer use(-units)
			runtime.Gosched()
			if t.Retries == 0 && t.Payload[0]%3 == 0 {
				return errors.New("once more")
			}
			done <- t.Queue
			return nil
		}, &o)
		queues = append(queues, q)
	}
	for i, q := range queues {
		if i%2 == 0 {
			enqueue(t, q, numbers("", each)...)
		}
	}
	stop := run(t, p)
	for i, q := range queues {
		if i%2 == 1 {
			for _, payload := range numbers("", each) {
				put(t, q, payload, payload, nil)
			}
		}
	}
	count := map[string]int{}
	for _, name := range receive(t, done, 4*each) {
		count[name]++
	}
	is.Equal(count, map[string]int{"light": each, "middle": each, "heavy": each, "all": each})
	stop()
	is.Equal(len(done), 0)
	is.Equal(above, 0)
	is.Equal(used, 0)
	is.Equal(most, capacity)
	for _, q := range queues {
		s := stats(t, q)
		is.Equal(s.Waiting+s.Scheduled+s.Running+s.Failed, 0)
	}
}

// The higher priority goes first, and the lower does not starve.
func TestPriority(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{Capacity: 1})
	order := make(chan string, 1000)
	hold := make(chan struct{})
	holds := make(chan string, 1)
	handle := func(name string, priority int) *worqr.Queue {
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			if string(t.Payload) == "holds" {
				holds <- ""
				<-hold
				return nil
			}
			order <- t.Queue
			return nil
		}, &worqr.HandleOptions{Priority: priority, Concurrency: 4})
		return q
	}
	low, high := handle("low", -1), handle("high", 1)
	run(t, p)
	enqueue(t, low, "holds")
	receive(t, holds, 1)
	enqueue(t, low, numbers("", 100)...)
	enqueue(t, high, numbers("", 100)...)
	before := p.Stats().Started
	is.Equal(before, int64(1)) // nothing above the capacity was taken
	hold <- struct{}{}
	all := receive(t, order, 200)
	first := map[string]int{}
	for _, name := range all[:80] {
		first[name]++
	}
	if first["high"] < 60 {
		t.Errorf("of the first 80, %d were of the higher priority: %v", first["high"], all[:80])
	}
	if first["low"] < 5 {
		t.Errorf("of the first 80, %d were of the lower priority: it starves", first["low"])
	}
	// Now the other way round.
	is.NoErr(low.SetOptions(&worqr.HandleOptions{Priority: 2, Concurrency: 4}))
	enqueue(t, low, "holds")
	receive(t, holds, 1)
	enqueue(t, high, numbers("", 100)...)
	enqueue(t, low, numbers("", 100)...)
	hold <- struct{}{}
	clear(first)
	for _, name := range receive(t, order, 200)[:80] {
		first[name]++
	}
	is.True(first["low"] >= 60)
	is.True(first["high"] >= 5)
}

// Capacity, Concurrency and the rest can be changed while it runs.
func TestOptionsAtRunTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{Capacity: 1})
	q := p.Queue("q")
	var running atomic.Int64
	started, release := make(chan string, 1000), make(chan error, 1000)
	options := worqr.HandleOptions{Concurrency: 100, Backoff: atOnce}
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		running.Add(1)
		defer running.Add(-1)
		started <- string(t.Payload)
		select {
		case err := <-release:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, &options)
	stop := run(t, p)
	enqueue(t, q, numbers("", 30)...)
	receive(t, started, 1)
	is.NoErr(p.SetCapacity(3))
	receive(t, started, 2)
	is.Equal(running.Load(), int64(3))
	is.NoErr(p.SetCapacity(1))
	for range 2 {
		release <- nil
	}
	eventually(t, "the excess has ended", func() bool { return running.Load() == 1 })
	is.Equal(len(started), 0) // nothing is taken above the lower bound
	release <- nil
	receive(t, started, 1)
	eventually(t, "the other has ended", func() bool { return running.Load() == 1 })
	is.NoErr(p.SetCapacity(0)) // no bound
	receive(t, started, 26)
	is.Equal(running.Load(), int64(27))
	for range 27 {
		release <- nil
	}
	eventually(t, "all have ended", func() bool { return running.Load() == 0 })

	options.Concurrency = 1
	is.NoErr(q.SetOptions(&options))
	eventually(t, "all is stored", func() bool { return p.Stats().Finished == 30 })
	enqueue(t, q, numbers("", 5)...)
	receive(t, started, 1)
	options.Concurrency = 3
	is.NoErr(q.SetOptions(&options))
	receive(t, started, 2)
	is.Equal(running.Load(), int64(3))
	is.Equal(p.Stats().Started, int64(33))
	options.Concurrency = 1
	is.NoErr(q.SetOptions(&options))
	for range 3 {
		release <- nil
	}
	receive(t, started, 1)
	is.Equal(running.Load(), int64(1))
	is.NoErr(p.SetCapacity(10))
	options.Concurrency, options.Weight = 10, 10
	is.NoErr(q.SetOptions(&options))
	options.Weight, options.MaxRetries = 1, 2 // holds when a task ends
	is.NoErr(q.SetOptions(&options))
	receive(t, started, 1)
	for range 3 {
		release <- nil
		release <- errors.New("no")
	}
	eventually(t, "all is done", func() bool { return running.Load() == 0 && stats(t, q).Waiting+stats(t, q).Scheduled == 0 })
	for range len(started) {
		<-started
	}
	options.MaxRetries, options.Timeout = -1, 50*time.Millisecond
	is.NoErr(q.SetOptions(&options))
	for range len(release) {
		<-release
	}
	enqueue(t, q, "too long")
	receive(t, started, 1)
	eventually(t, "it has failed", func() bool { return slices.Contains(failedPayloads(t, q), "too long") })
	stop()
}

// The context of an attempt that takes too long ends, and the task is tried
// again, with what the handler says.
func TestTimeout(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, c := range map[string]struct {
		err     error
		reason  string
		retried bool
	}{
		"cause":     {worqr.ErrTimeout, "", true},
		"error":     {no, "", true},
		"nil":       {nil, "", false},
		"Permanent": {worqr.Permanent(no), "no", false},
		"Broken":    {worqr.Malformed(no), "no", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			p := open(t, worqr.Options{})
			q := p.Queue("q")
			causes, again := make(chan error, 1), make(chan int, 1)
			q.Handle(func(ctx context.Context, t *worqr.Task) error {
				if t.Retries > 0 {
					again <- t.Retries
					return nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return c.err
			}, &worqr.HandleOptions{Timeout: 50 * time.Millisecond, Backoff: atOnce})
			stop := run(t, p)
			enqueue(t, q, "a")
			is.Equal(receive(t, causes, 1), []error{worqr.ErrTimeout})
			if c.retried {
				is.Equal(receive(t, again, 1), []int{1})
			}
			eventually(t, "it is over", func() bool { s := p.Stats(); return s.Finished+s.Failed == 1 })
			stop()
			is.Equal(len(again), 0)
			f := failed(t, q)
			is.Equal(len(f) == 1, c.reason != "")
			if len(f) == 1 {
				is.True(strings.Contains(f[0].Error, c.reason))
				is.Equal(f[0].Kind == worqr.FailureMalformed, name == "Broken")
			}
		})
	}
}

// A handler that ignores that its time is over is disowned: another task gets
// its slot, it is logged once with its stack, and when it returns at last that
// changes nothing.
func TestDisowned(t *testing.T) {
	t.Parallel()
	const ignores = "a handler didn't return after its context ended"
	for _, late := range []string{"nil", "error", "panic", "Finish"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			lines := make(said, 1000)
			p := open(t, worqr.Options{Prefix: prefix, Capacity: 1, Logger: slog.New(slog.NewTextHandler(lines, nil))})
			q := p.Queue("q")
			started, release, returned := make(chan string, 10), make(chan struct{}), make(chan error, 1)
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				started <- fmt.Sprint(string(t.Payload), t.Retries)
				if string(t.Payload) == "a" && t.Retries == 0 {
					return stubborn(release, returned, late, t)
				}
				return nil
			}, &worqr.HandleOptions{Concurrency: 1, Timeout: 500 * time.Millisecond, Grace: 50 * time.Millisecond, Backoff: atOnce})
			stop := run(t, p)
			put(t, q, "key", "a", nil)
			is.Equal(receive(t, started, 1), []string{"a0"})
			enqueue(t, q, "b")
			is.Equal(receive(t, started, 2), []string{"a1", "b0"})
			is.Equal(p.Stats().StuckHandlers, int64(1))
			eventually(t, "these are finished", func() bool { return p.Stats().Finished == 2 })
			is.Equal(p.Stats().RunningHandlers, int64(0))
			put(t, q, "key", "c", nil)
			is.Equal(receive(t, started, 1), []string{"c0"})
			eventually(t, "this is finished", func() bool { return p.Stats().Finished == 3 })
			told := ""
			eventually(t, "it is logged", func() bool {
				select {
				case told = <-lines:
				default:
				}
				return strings.Contains(told, ignores)
			})
			is.True(strings.Contains(told, "stubborn")) // its stack
			close(release)
			if late == "Finish" {
				is.True(is_(receive(t, returned, 1)[0], worqr.ErrNotOwner))
			}
			eventually(t, "it has returned", func() bool { return p.Stats().StuckHandlers == 0 })
			enqueue(t, q, "d")
			is.Equal(receive(t, started, 1), []string{"d0"})
			stop()
			is.Equal(len(started), 0)
			s := p.Stats()
			is.Equal(s.Finished, int64(4))
			is.Equal(s.Retried, int64(1))
			is.Equal(s.HandlerErrors, int64(1))
			is.Equal(s.Failed, int64(0))
			is.Equal(s.RunningHandlers, int64(0))
			for range len(lines) {
				is.True(!strings.Contains(<-lines, ignores)) // once
			}
			is.NoErr(ctx.Err())
			nothingLeft(t, prefix, "q")
		})
	}
}

// stubborn does not look at its context.
func stubborn(release chan struct{}, returned chan<- error, late string, t *worqr.Task) error {
	<-release
	switch late {
	case "error":
		return worqr.Permanent(errors.New("too late"))
	case "panic":
		panic("too late")
	case "Finish":
		returned <- t.Finish(context.Background())
	}
	return nil
}

// Disowned by StopWork: the slot is there when the peer works on the queue again.
func TestDisownedByStopWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	began, release := make(chan string, 2), make(chan struct{})
	defer close(release)
	var runs atomic.Int64
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		began <- string(task.Payload)
		if runs.Add(1) == 1 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Grace: 50 * time.Millisecond})
	run(t, p)
	enqueue(t, q, "a")
	receive(t, began, 1)
	is.NoErr(q.StopWork(t.Context()))
	is.NoErr(q.StartWork(t.Context()))
	is.Equal(receive(t, began, 1), []string{"a"}) // in the slot
	is.Equal(p.Stats().StuckHandlers, int64(1))
}

// Disowned by a cancel: the task ends, and never runs again.
func TestDisownedByCancel(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	started, release := make(chan string, 10), make(chan struct{})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		<-release
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Grace: 50 * time.Millisecond})
	stop := run(t, p)
	put(t, q, "key", "a", nil)
	receive(t, started, 1)
	report, err := q.CancelKey(t.Context(), "key")
	is.NoErr(err)
	put(t, q, "key", "b", nil)
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.Equal(receive(t, started, 1), []string{"b"})
	is.Equal(p.Stats().StuckHandlers, int64(1))
	close(release)
	eventually(t, "both have returned", func() bool { return p.Stats().StuckHandlers == 0 && p.Stats().Finished == 1 })
	stop()
	is.Equal(p.Stats().Canceled, int64(1))
	is.Equal(len(failed(t, q)), 0)
	nothingLeftBut(t, prefix, "q")
}

// Peers with nothing to do are silent but for their beats, with something
// planned and without.
func TestIdleIsSilent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	const peers, queues, beat = 3, 2, time.Second
	h := func(context.Context, *worqr.Task) error { return nil }
	var q *worqr.Queue
	for range peers {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 3 * beat})
		for i := range queues {
			q = p.Queue(fmt.Sprint("q", i))
			q.Handle(h, &worqr.HandleOptions{OnFailed: h})
		}
		run(t, p)
	}
	put(t, q, "key", "later", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	c := redistest.Dial(t, server.URL())
	since, before := time.Now(), scriptCalls(t, c)
	time.Sleep(3 * beat) // what is measured
	calls, beats := scriptCalls(t, c)-before, int(time.Since(since)/beat)+1
	t.Logf("%d scripts in %d beats of %d peers on %d queues", calls, beats, peers, queues)
	// A beat a peer and queue, a failed queue is one; a little more for whoever
	// keeps the registrations.
	if most := beats*peers*queues*2 + beats*peers*2; calls > most {
		t.Errorf("%d scripts were called, at most %d are beats", calls, most)
	}
	is.Equal(stats(t, q).Scheduled, 1)
}

// A queue that finds less to do than it was given room for leaves the rest to
// others.
func TestCapacityIsNotHoarded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const capacity = 300
	p := open(t, worqr.Options{Capacity: capacity})
	started, release := make(chan string, 1000), make(chan struct{}, 1000)
	var queues []*worqr.Queue
	for _, name := range []string{"one", "two"} {
		q := p.Queue(name)
		q.Handle(func(context.Context, *worqr.Task) error {
			started <- ""
			<-release
			return nil
		}, &worqr.HandleOptions{Concurrency: capacity})
		queues = append(queues, q)
	}
	stop := run(t, p)
	one, two := queues[0], queues[1]
	enqueue(t, one, numbers("", capacity)...)
	receive(t, started, capacity)
	enqueue(t, two, "a") // waits for its turn
	is.Equal(len(started), 0)
	for range capacity + 1 {
		release <- struct{}{}
	}
	eventually(t, "all has ended", func() bool { return p.Stats().Finished == capacity+1 && p.Stats().RunningHandlers == 0 })
	receive(t, started, 1)
	defer func() { close(release); stop() }()
	enqueue(t, one, numbers("", capacity)...)
	receive(t, started, capacity)
}

// What a queue was given for a round leaves no trace when its options change:
// others get the capacity that it does not use.
func TestOptionsHoardNothing(t *testing.T) {
	t.Parallel()
	const capacity = 64
	p := open(t, worqr.Options{Capacity: capacity, Lease: time.Hour})
	started, release := make(chan string, 1000), make(chan struct{})
	opts := &worqr.HandleOptions{Concurrency: capacity}
	one, two := p.Queue("one"), p.Queue("two")
	for _, q := range []*worqr.Queue{one, two} {
		q.Handle(func(context.Context, *worqr.Task) error {
			started <- ""
			<-release
			return nil
		}, opts)
	}
	run(t, p)
	defer close(release)
	idle(t, one, 1)
	idle(t, two, 1)
	must(t, one.SetOptions(opts))
	enqueue(t, two, numbers("", capacity)...)
	receive(t, started, capacity)
}

// A lower Concurrency holds for all but what is being asked for: nothing that the
// higher one kept for later rounds is used.
func TestConcurrencyLowered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const tasks = 100
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	var running, most atomic.Int64
	started, release := make(chan string, tasks), make(chan struct{})
	q := p.Queue("q")
	q.Handle(func(context.Context, *worqr.Task) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		started <- ""
		<-release
		running.Add(-1)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	enqueue(t, q, numbers("", tasks)...)
	receive(t, started, 1)
	server.Signal(t, syscall.SIGSTOP) // at most one round is under way
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 5 * tasks}))
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 1}))
	server.Signal(t, syscall.SIGCONT)
	for i := range int64(tasks) {
		release <- struct{}{}
		eventually(t, "one more is finished", func() bool { return p.Stats().Finished == i+1 })
	}
	is.True(most.Load() <= 20) // one, and what one round asks for in the beginning
}

// Tasks of which one more death would be the last start one at a time on a
// worker, without a beat between them, and hold up nothing else.
func TestNearlyCrashed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
	q := p.Queue("q")
	const suspects = 30
	for i := range suspects {
		if i%2 == 0 {
			enqueue(t, q, fmt.Sprint("suspect", i))
		} else {
			put(t, q, fmt.Sprint(i), fmt.Sprint("suspect", i), nil)
		}
	}
	for range 2 {
		v := open(t, worqr.Options{Prefix: prefix})
		_, err := working(t, v, "q").StartTasks(ctx, suspects)
		is.NoErr(err)
		failWorker(t, v, v.WorkerID(), suspects)
		is.NoErr(v.Close())
	}
	for i := range suspects {
		put(t, q, fmt.Sprint("good", i), "good", nil)
		enqueue(t, q, "good")
	}
	var running, together atomic.Int64
	first, release := make(chan string, 1), make(chan struct{})
	done := make(chan string, 1000)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if t.Crashes == 2 {
			if running.Add(1) > 1 {
				together.Add(1)
			}
			defer running.Add(-1)
			select {
			case first <- "":
				<-release
			default:
			}
		}
		done <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	stop := run(t, p)
	receive(t, first, 1)
	for _, payload := range receive(t, done, 2*suspects) {
		is.Equal(payload, "good")
	}
	since := time.Now()
	close(release)
	all := receive(t, done, suspects)
	is.True(time.Since(since) < 15*time.Second) // not by beats
	slices.Sort(all)
	is.Equal(len(slices.Compact(all)), suspects)
	eventually(t, "all is finished", func() bool { return p.Stats().Finished == 3*suspects })
	stop()
	is.Equal(together.Load(), int64(0))
	is.Equal(failed(t, q), nil)
	nothingLeft(t, prefix, "q")
}

// silent checks that the peers on a server of the test's own say nothing more.
func silent(t testing.TB, server *redistest.Server) {
	t.Helper()
	c := redistest.Dial(t, server.URL())
	before := scriptCalls(t, c)
	time.Sleep(500 * time.Millisecond) // what is measured
	if calls := scriptCalls(t, c) - before; calls > 5 {
		t.Errorf("%d scripts were called, and nothing could be done", calls)
	}
}

// A worker that may start none of many that are due, since one more death would
// be their last and one of them runs, is idle; they have their turn, one by one.
func TestManyNearlyCrashed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	const suspects = 300
	accused(t, server.URL(), "p", "q", suspects)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := p.Queue("q")
	started, release := make(chan string, 1000), make(chan struct{})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		if t.Crashes > 0 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 8})
	run(t, p)
	receive(t, started, 1) // an accused one
	enqueue(t, q, "good")
	is.Equal(receive(t, started, 1), []string{"good"})
	idle(t, q, 1)
	silent(t, server)
	is.Equal(len(started), 0)
	close(release)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == suspects+1 })
	is.Equal(failed(t, q), nil)
}

// With KeepFailed, the failed queue is bounded also after the one peer that worked
// on it has been killed.
func TestFailedIsBoundedAfterAKill(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const keep, all = 10, 100
	prefix := redistest.Prefix(t)
	_, err := redistest.Conn(t).Do("ZADD", prefix+":failed:workers:{q}", time.Now().Add(-time.Minute).UnixMilli(), "dead")
	is.NoErr(err)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	q.Handle(func(context.Context, *worqr.Task) error {
		return worqr.Permanent(errors.New("no"))
	}, &worqr.HandleOptions{KeepFailed: keep})
	run(t, p)
	enqueue(t, q, numbers("", all)...)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == all })
	is.Equal(stats(t, q).Failed, keep)
}
