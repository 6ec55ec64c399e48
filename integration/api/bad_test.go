package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

func TestBadNames(t *testing.T) {
	t.Parallel()
	p := open(t, worqr.Options{})
	ctx := t.Context()
	for _, name := range []string{"", "{", "a}", "a b", "\x00", "a\nb", "a\xff", strings.Repeat("x", 256)} {
		q := p.Queue(name)
		errs := verbs(ctx, p, q)
		errs["StartTask"], errs["StartWork"], errs["StopWork"] = failure(q.StartTask(ctx)), q.StartWork(ctx), q.StopWork(ctx)
		for verb, err := range errs {
			ofPeer := slices.Contains([]string{"Queues", "Workers", "FailWorker", "Sweep", "StartWorker"}, verb)
			if !ofPeer && !is_(err, worqr.ErrBadName) {
				t.Errorf("%s on %q: %v", verb, name, err)
			}
		}
	}
	handled := open(t, worqr.Options{})
	handled.Queue("{bad}").Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	if err := handled.Run(ctx); !is_(err, worqr.ErrBadName) {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	is := parallel(t)
	_, err := worqr.Open(redistest.URL(), &worqr.Options{Prefix: "a{b}"})
	is.True(is_(err, worqr.ErrBadName))
	_, err = worqr.Open(redistest.URL(), &worqr.Options{Lease: time.Millisecond})
	is.True(is_(err, worqr.ErrInvalid))
	_, err = worqr.Open("redis://:hunter2@host:notaport", nil) // internal/redisconn tests other bad URLs
	is.True(is_(err, worqr.ErrInvalid) && !strings.Contains(err.Error(), "hunter2"))
	p := worqr.New(&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(redistest.URL()) }}, &worqr.Options{Prefix: "{}"})
	is.True(is_(p.Queue("q").Enqueue(t.Context(), nil), worqr.ErrBadName))
	is.True(is_(p.StartWorker(t.Context()), worqr.ErrBadName))
	is.True(is_(p.Run(t.Context()), worqr.ErrBadName))
	for _, err := range p.Queues(t.Context()) {
		is.True(is_(err, worqr.ErrBadName))
	}
	for _, err := range p.Events(t.Context()) {
		is.True(is_(err, worqr.ErrBadName))
	}
}

func TestMisuse(t *testing.T) {
	is := parallel(t)
	h := func(context.Context, *worqr.Task) error { return nil }
	panics(t, "no pool", func() { worqr.New(nil, nil) })
	p, q := openQueue(t, worqr.Options{})
	panics(t, "nil handler", func() { q.Handle(nil, nil) })
	panics(t, "negative concurrency", func() { q.Handle(h, &worqr.HandleOptions{Concurrency: -1}) })
	q.Handle(h, nil)
	panics(t, "second handler", func() { p.Queue("q").Handle(h, nil) })

	ctx := t.Context()
	is.True(is_(q.Enqueue(ctx), worqr.ErrInvalid))
	is.True(is_(failure(q.EnqueueOnce(ctx, "", []byte("a"))), worqr.ErrInvalid))
	is.True(is_(failure(q.EnqueueOnce(ctx, "nonce")), worqr.ErrInvalid))
	is.True(is_(q.Enqueue(ctx, make([][]byte, worqr.MaxBatchSize+1)...), worqr.ErrInvalid))
	is.True(is_(failure(q.StartTasks(ctx, 0)), worqr.ErrInvalid))
	is.True(is_(failure(q.StartTasks(ctx, 1_000_000)), worqr.ErrInvalid))
	is.True(is_(failure(p.FailWorker(ctx, "")), worqr.ErrInvalid))

	run(t, p)
	eventually(t, "it runs", func() bool { s, err := q.Stats(ctx); return err == nil && s.Workers == 1 })
	is.True(is_(p.Run(ctx), worqr.ErrInvalid))
	panics(t, "a second handler while it runs", func() { p.Queue("q").Handle(h, nil) })
	panics(t, "a bad name while it runs", func() { p.Queue("a b").Handle(h, nil) })

	over, end := context.WithCancel(ctx)
	end()
	is.True(is_(q.Enqueue(over, []byte("a")), context.Canceled))
	is.Equal(len(waiting(t, q)), 0)
}

// If Redis isn't running or refuses the login, every verb fails immediately with a clear error.
func TestNoRedis(t *testing.T) {
	t.Parallel()
	absent := "redis://:hunter2@" + redistest.Nowhere(t)
	guarded := redistest.Start(t, "--requirepass", "secret")
	for what, url := range map[string]string{
		"connection refused": absent,
		"WRONGPASS":          "redis://:hunter2@" + guarded.Addr(),
		"NOAUTH":             guarded.URL(),
	} {
		t.Run(what, func(t *testing.T) {
			p := openAt(t, url, worqr.Options{Prefix: "p"})
			for verb, err := range verbs(t.Context(), p, p.Queue("q")) {
				switch {
				case err == nil:
					t.Errorf("%s succeeds", verb)
				case !strings.Contains(err.Error(), what):
					t.Errorf("%s: %v", verb, err)
				case strings.Contains(err.Error(), "hunter2"):
					t.Errorf("%s shows the password: %v", verb, err)
				case is_(err, worqr.ErrUnknownOutcome):
					t.Errorf("%s is not sure that nothing happened: %v", verb, err)
				}
			}
		})
	}
}

// A full Redis refuses new tasks. Everything else keeps working, until the queue is empty.
func TestFullRedis(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 10 * time.Second})
	enqueue(t, q, numbers("", 500)...)
	c := redistest.Dial(t, server.URL())
	redistest.Do(t, c, "CONFIG", "SET", "maxmemory", "1")
	for verb, err := range map[string]error{"Enqueue": q.Enqueue(t.Context(), []byte("x")), "Add": failure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("x"), Unique: true}))} {
		if err == nil || !strings.Contains(err.Error(), "raise maxmemory") || !strings.Contains(err.Error(), ": OOM") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	is.NoErr(q.Pause(t.Context()))
	is.NoErr(q.Resume(t.Context()))
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 10 * time.Second})
	oq := working(t, other, "q") // a new member, to be evicted below
	sure(oq.StartTasks(t.Context(), 10))(t)
	is.Equal(cancel(t, q, "499").Removed, 1)
	starts, _ := counting(t, p, "q", nil)
	receive(t, starts, 489)
	is.Equal(sure(p.FailWorker(t.Context(), other.WorkerID()))(t), 10)
	receive(t, starts, 10)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 499 })
}

// If the Redis user may not return tasks, the error isn't mistaken for a wrong type or for nothing to return. They are
// returned once the user has the permission.
func TestReturnIsForbidden(t *testing.T) {
	for _, command := range []string{"lmove", "hstrlen", "zrevrange"} {
		t.Run(command, func(t *testing.T) {
			is := parallel(t)
			server, c := redistest.StartAndDial(t)
			allow := func(rule ...any) {
				t.Helper()
				redistest.Do(t, c, "ACL", append([]any{"SETUSER", "narrow"}, rule...)...)
			}
			allow("on", ">secret", "~*", "&*", "+@all", "-"+command)
			p := openAt(t, strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1), worqr.Options{Prefix: "p"})
			q := working(t, p, "q")
			enqueue(t, q, "a")
			add(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q"), worqr.TaskSpec{Key: "b"})
			take(t, q)
			take(t, q)
			for _, err := range []error{q.StopWork(t.Context()), failure(p.Sweep(t.Context()))} {
				is.True(is_(err, worqr.ErrDenied) && !strings.Contains(err.Error(), ": WRONGTYPE"))
			}
			allow("+" + command)
			sure(p.Sweep(t.Context()))(t)
			is.Equal(waiting(t, q), []string{"a"})
			is.Equal(stats(t, q).Waiting, 2)
		})
	}
}

// If the Redis user may not delete what remains of an ended task, it doesn't end at all, however often that is tried.
func TestEndIsForbidden(t *testing.T) {
	for _, command := range []string{"del", "hdel"} {
		t.Run(command, func(t *testing.T) {
			is := parallel(t)
			server, c := redistest.StartAndDial(t)
			allow := func(rule ...any) {
				t.Helper()
				redistest.Do(t, c, "ACL", append([]any{"SETUSER", "narrow"}, rule...)...)
			}
			allow("on", ">secret", "~*", "&*", "+@all")
			p := openAt(t, strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1), worqr.Options{Prefix: "p"})
			q := working(t, p, "q")
			enqueue(t, q, "fails", "retries")
			fails, retries := take(t, q), take(t, q)
			allow("-" + command)
			for range 3 {
				is.True(is_(fails.Fail(t.Context(), errors.New("no")), worqr.ErrDenied))
				is.True(is_(retries.Retry(t.Context(), time.Hour), worqr.ErrDenied))
			}
			allow("+" + command)
			is.NoErr(fails.Fail(t.Context(), errors.New("no")))
			is.NoErr(retries.Retry(t.Context(), time.Hour))
			is.Equal(len(failed(t, q)), 1)
			is.Equal(stats(t, q).Scheduled, 1)
		})
	}
}

// If a foreign key blocks the place that a task would move to, the call fails with a clear error.
// The task is in one of the two places, or still held by this worker.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	fail := func(ctx context.Context, task *worqr.Task) error { return task.Fail(ctx, errors.New("no")) }
	stop := func(ctx context.Context, task *worqr.Task) error { return task.Stop(ctx) }
	for kind, c := range map[string]struct {
		end     func(context.Context, *worqr.Task) error
		refused bool // the other keys only matter to workers of the failed queue
	}{
		"queues": {stop, true}, "failed:tasks": {fail, true}, "failed:ready": {fail, true},
		"failed:idle": {fail, false}, "failed:workers": {fail, false},
	} {
		t.Run(kind, func(t *testing.T) {
			is := parallel(t)
			prefix, conn := redistest.Prefix(t), redistest.Conn(t)
			q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
			enqueue(t, q, "a")
			task := take(t, q)
			foreign := prefix + ":" + kind + ":{q}"
			redistest.Do(t, conn, "SET", foreign, "foreign")
			err := c.end(t.Context(), task)
			if c.refused {
				is.True(err != nil && strings.Contains(err.Error(), "WRONGTYPE"))
				is.NoErr(task.Context().Err()) // still held
			} else {
				is.NoErr(err)
			}
			redistest.Do(t, conn, "DEL", foreign)
			is.NoErr(c.end(t.Context(), task))
			is.Equal(append(waiting(t, q), failedPayloads(t, q)...), []string{"a"})
			is.Equal(stats(t, q).Running, 0)
		})
	}
}

// If another program deletes what is stored of a task, that task is lost, the others start, and the worker doesn't
// retry in a loop.
func TestForeignEntry(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	started := make(chan string, 10)
	q.Handle(tell(started), &worqr.HandleOptions{Concurrency: 8})
	add(t, q, worqr.TaskSpec{Key: "x", Payload: []byte("x")})
	add(t, q, worqr.TaskSpec{Key: "y", Payload: []byte("y")})
	redistest.Do(t, c, "HDEL", "p:tasks:{q}", "k:x")
	run(t, p)
	is.Equal(receive(t, started, 1), []string{"y"})
	eventually(t, "y is finished", func() bool { return p.Stats().Finished == 1 })
	idle(t, q, 1)
	silent(t, server)
	add(t, q, worqr.TaskSpec{Key: "x", Payload: []byte("x")})
	is.Equal(receive(t, started, 1), []string{"x"})
	eventually(t, "x is finished", func() bool { return p.Stats().Finished == 2 })
	is.Equal(stats(t, q).Scheduled, 0)
}
