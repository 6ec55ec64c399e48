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
	for _, name := range []string{"", "{", "a}", "a b", "\x00", "a\nb", strings.Repeat("x", 256)} {
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
	for _, url := range []string{
		"", "localhost:6379", "http://localhost", "redis://:hunter2@host:notaport", "redis://:hunter2@host/notadb",
		"redis://:hunter2@%zz", "unix://", "unix:///path?db=x", "redis:hunter2",
		"redis://:hunter2@host:99999", "redis://user:hunter2@localhost:7391:12",
	} {
		_, err := worqr.Open(url, nil)
		if !is_(err, worqr.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
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
	_, err := q.EnqueueOnce(ctx, "", []byte("a"))
	is.True(is_(err, worqr.ErrInvalid))
	_, err = q.EnqueueOnce(ctx, "nonce")
	is.True(is_(err, worqr.ErrInvalid))
	is.True(is_(q.Enqueue(ctx, make([][]byte, worqr.MaxBatchSize+1)...), worqr.ErrInvalid))
	_, err = q.StartTasks(ctx, 0)
	is.True(is_(err, worqr.ErrInvalid))
	_, err = q.StartTasks(ctx, 1_000_000)
	is.True(is_(err, worqr.ErrInvalid))
	_, err = p.FailWorker(ctx, "")
	is.True(is_(err, worqr.ErrInvalid))

	run(t, p)
	eventually(t, "it runs", func() bool { s, err := q.Stats(ctx); return err == nil && s.Workers == 1 })
	is.True(is_(p.Run(ctx), worqr.ErrInvalid))
	panics(t, "a second handler while it runs", func() { p.Queue("q").Handle(h, nil) })
	panics(t, "a bad name while it runs", func() { p.Queue("a b").Handle(h, nil) })

	over, end := context.WithCancel(ctx)
	end()
	is.True(is_(q.Enqueue(over, []byte("a")), context.Canceled))
	is.Equal(sure(q.Len(ctx))(t), 0)
}

// Redis is not there, or does not want us: a clear error from every verb, at
// once.
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

// A replica refuses what writes; when it is promoted, the same peer works.
func TestReplica(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	starts, _ := counting(t, p, "q", nil)
	idle(t, q, 1)
	c := redistest.Dial(t, server.URL())
	redistest.Do(t, c, "REPLICAOF", "127.0.0.1", "1")
	err := q.Enqueue(t.Context(), []byte("a"))
	is.True(err != nil && strings.Contains(err.Error(), "READONLY") && !is_(err, worqr.ErrUnknownOutcome))
	redistest.Do(t, c, "REPLICAOF", "NO", "ONE")
	is.NoErr(q.Enqueue(t.Context(), []byte("a"))) // at once: the connection was dropped
	receive(t, starts, 1)
}

// A full Redis refuses new work, and everything else goes on until it is empty.
func TestFullRedis(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	enqueue(t, q, numbers("", 500)...)
	c := redistest.Dial(t, server.URL())
	redistest.Do(t, c, "CONFIG", "SET", "maxmemory", "1")
	for verb, err := range map[string]error{"Enqueue": q.Enqueue(t.Context(), []byte("x")), "EnqueueUnique": q.EnqueueUnique(t.Context(), []byte("x"))} {
		if err == nil || !strings.Contains(err.Error(), "raise its maxmemory") || !strings.Contains(err.Error(), ": OOM") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	is.NoErr(q.Pause(t.Context()))
	is.NoErr(q.Resume(t.Context()))
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	oq := working(t, other, "q") // a new member, and one that will be failed
	sure(oq.StartTasks(t.Context(), 10))(t)
	is.Equal(cancel(t, q, "499").Removed, 1)
	starts, _ := counting(t, p, "q", nil)
	receive(t, starts, 489)
	is.Equal(sure(p.FailWorker(t.Context(), other.WorkerID()))(t), 10)
	receive(t, starts, 10)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 499 })
}

// Somebody else's key under one of our names: a clear error, and nothing is
// half done or lost.
func TestForeignKeys(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	enqueue(t, q, "a", "b")
	task := sure(q.StartTask(t.Context()))(t)
	redistest.Do(t, c, "RENAME", prefix+":queues:{q}", prefix+":aside:{q}")
	redistest.Do(t, c, "SET", prefix+":queues:{q}", "foreign")
	_, start := q.StartTask(t.Context())
	for verb, err := range map[string]error{
		"Enqueue": q.Enqueue(t.Context(), []byte("x")), "StartTask": start, "Stop": task.Stop(t.Context()),
	} {
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	redistest.Do(t, c, "RENAME", prefix+":aside:{q}", prefix+":queues:{q}")
	is.NoErr(task.Stop(t.Context())) // it was still ours
	is.Equal(waiting(t, q), []string{"a", "b"})
}

// What cannot go back since the user may not move it is not taken for somebody else's
// key. It goes back once the user may.
func TestReturnIsForbidden(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	allow := func(rule ...any) {
		t.Helper()
		redistest.Do(t, c, "ACL", append([]any{"SETUSER", "narrow"}, rule...)...)
	}
	allow("on", ">secret", "~*", "&*", "+@all", "-lmove")
	p := openAt(t, strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1), worqr.Options{Prefix: "p"})
	q := working(t, p, "q")
	enqueue(t, q, "a")
	take(t, q)
	err := q.StopWork(t.Context())
	is.True(err != nil && !strings.Contains(err.Error(), ": WRONGTYPE"))
	is.True(strings.Contains(err.Error(), "this user may not run a command"))
	allow("+lmove")
	sure(p.Sweep(t.Context()))(t)
	is.Equal(waiting(t, q), []string{"a"})
}

// The same of a task that fails, and of the failed queue: it is in one of both
// places, or still ours.
func TestForeignKeysOfTheFailed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"schedule", "contents", "idle", "workers"} {
		t.Run(kind, func(t *testing.T) {
			is := parallel(t)
			prefix, c := redistest.Prefix(t), redistest.Conn(t)
			q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
			enqueue(t, q, "a")
			task := take(t, q)
			foreign := prefix + ":failed:" + kind + ":{q}"
			redistest.Do(t, c, "SET", foreign, "foreign")
			err := task.Fail(t.Context(), errors.New("no"))
			if kind == "schedule" || kind == "contents" {
				is.True(err != nil && strings.Contains(err.Error(), "WRONGTYPE"))
				is.NoErr(task.Context().Err()) // still ours
			} else {
				is.NoErr(err) // these are for those who work on it
			}
			redistest.Do(t, c, "DEL", foreign)
			is.NoErr(task.Fail(t.Context(), errors.New("no")))
			is.Equal(failedPayloads(t, q), []string{"a"})
			s := stats(t, q)
			is.Equal(s.Running+s.Waiting+s.Scheduled, 0)
		})
	}
}

// Somebody else's key where a task of the schedule was: that one is lost, the
// others start, and the worker does not go round in circles.
func TestForeignEntry(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	started := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- t.Key
		return nil
	}, &worqr.HandleOptions{Concurrency: 8})
	put(t, q, "x", "x", nil)
	put(t, q, "y", "y", nil)
	redistest.Do(t, c, "SET", "p:keyed:{q}:k:x", "foreign")
	run(t, p)
	is.Equal(receive(t, started, 1), []string{"y"})
	eventually(t, "y is finished", func() bool { return p.Stats().Finished == 1 })
	idle(t, q, 1)
	silent(t, server)
	redistest.Do(t, c, "DEL", "p:keyed:{q}:k:x")
	put(t, q, "x", "x", nil)
	is.Equal(receive(t, started, 1), []string{"x"})
	eventually(t, "x is finished", func() bool { return p.Stats().Finished == 2 })
	is.Equal(stats(t, q).Scheduled, 0)
}
