package api

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

var leftOut = regexp.MustCompile(` count=(\d+) `)

// leftOutOf returns the sum of the counts in summaries.
func leftOutOf(t *testing.T, lines []string) (n int) {
	t.Helper()
	for _, line := range lines {
		m := leftOut.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no count: %s", line)
		}
		i := sure(strconv.Atoi(m[1]))(t)
		n += i
	}
	return n
}

// However many tasks fail, the number of log lines per second is bounded. Together the lines
// account for each failure. Each place that panics is logged with its stack, and the last summary
// doesn't wait for another failure.
func TestFailureFlood(t *testing.T) {
	is := parallel(t)
	told := &journal{}
	p := open(t, worqr.Options{Logger: told.Logger()})
	const many = 5000
	for name, retries := range map[string]int{"final": -1, "retried": 1} {
		p.Queue(name).Handle(func(_ context.Context, t *worqr.Task) error {
			switch string(t.Payload) {
			case "task 1000":
				panicHere()
			case "task 2000":
				panicThere()
			}
			return errors.New("no")
		}, &worqr.HandleOptions{Concurrency: 50, MaxRetries: retries, Backoff: func(*worqr.Task, error) time.Duration { return time.Hour }})
		enqueue(t, p.Queue(name), numbers("task ", many)...)
	}
	began := time.Now()
	run(t, p)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == many && p.Stats().Retried == many })
	seconds := int(time.Since(began)/time.Second) + 2 // counting those that have begun
	finals := told.Lines("task failed for good")
	eventually(t, "the summary is logged", func() bool {
		finals = told.Lines("worqr: task failed for good")
		return len(finals)+leftOutOf(t, told.Lines("worqr: more tasks failed for good")) == many
	})
	retried := told.Lines("worqr: task failed and will be retried")
	is.True(len(retried) <= 50*seconds)
	is.True(len(finals) <= 50*seconds)
	is.True(strings.Contains(finals[0], "kind=failed attempts=1 err=no"))
	is.True(strings.Contains(retried[0], "retry_in=1h0m0s err=no"))
	is.True(strings.Contains(retried[0], "attempt=1"))
	for _, at := range []string{"panicHere", "panicThere"} {
		is.True(len(told.Lines(at)) >= 1)
		is.True(strings.Contains(told.Lines(at)[0], "worqr: handler panicked"))
	}
	eventually(t, "the summary of retries is logged", func() bool {
		retried = told.Lines("worqr: task failed and will be retried")
		return len(retried)+leftOutOf(t, told.Lines("worqr: more tasks failed and will be retried, or have other warnings")) == many-2 // the panics have lines of their own
	})
	for _, line := range told.Lines("will be retried") { // including the summary
		is.True(strings.Contains(line, "level=WARN"))
	}
	is.Equal(len(told.Lines("payload")), 0)
	is.Equal(len(told.Lines("task 1")), 0)
}

//go:noinline
func panicHere() { panic("here") }

//go:noinline
func panicThere() { panic("there") }

// With LogAll each failure has a line. With LogPanics only panics have one.
func TestFailureLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy worqr.FailureLog
		lines  int
	}{"all": {worqr.LogAll, 300}, "panics": {worqr.LogPanics, 0}} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			told := &journal{}
			p, q := openQueue(t, worqr.Options{Logger: told.Logger(), FailureLog: c.policy})
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				if string(t.Payload) == "7" {
					panicHere()
				}
				return errors.New("no\x1b[2J")
			}, &worqr.HandleOptions{MaxRetries: -1})
			enqueue(t, q, numbers("", 300)...)
			stop := run(t, p)
			eventually(t, "all have failed", func() bool { return p.Stats().Failed == 300 })
			stop()
			is.Equal(len(told.Lines("worqr: task failed for good")), c.lines)
			is.Equal(len(told.Lines("worqr: handler panicked")), 1)
			is.Equal(len(told.Lines("\x1b")), 0)
			is.Equal(len(told.Lines("more")), 0)
		})
	}
	_, err := worqr.Open("redis://localhost", &worqr.Options{FailureLog: 3})
	is.New(t).True(errors.Is(err, worqr.ErrInvalid))
}

// A line about a task has its type. A peer that's told so also logs keys and headers, also of tasks that OnFailed handles.
func TestLogLabels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   worqr.Options
		labels string
	}{
		"default": {worqr.Options{}, "type=charge"},
		"chosen": {worqr.Options{LogKeys: true, LogHeaders: []string{"request-id", "missing"}},
			`key=order\n` + strings.Repeat("7", 94) + `… type=charge headers.request-id=req-7`},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			told := &journal{}
			c.opts.Logger = told.Logger()
			p, q := openQueue(t, c.opts)
			handle := func(_ context.Context, t *worqr.Task) error {
				t.Headers["type"] = "changed" // a handler owns its headers
				if t.Retries == 0 {
					return errors.New("no")
				}
				panicHere()
				return nil
			}
			q.Handle(handle, &worqr.HandleOptions{MaxRetries: 1, Backoff: func(*worqr.Task, error) time.Duration { return 0 },
				OnFailed: handle, OnFailedOptions: &worqr.HandleOptions{MaxRetries: -1}})
			_, err := q.Add(t.Context(), worqr.TaskSpec{Key: "order\n" + strings.Repeat("7", 200), Payload: []byte("x"),
				Headers: map[string]string{"type": "charge", "request-id": "req-7", "card": "canary"}})
			is.NoErr(err)
			stop := run(t, p)
			eventually(t, "it has failed twice", func() bool { return p.Stats().Failed == 2 })
			stop()
			for line, n := range map[string]int{"worqr: task failed and will be retried": 1, "worqr: handler panicked": 1, "worqr: task failed for good": 2} {
				lines := told.Lines(line)
				is.Equal(len(lines), n)
				for _, l := range lines {
					is.True(strings.Contains(l, " "+c.labels+" "))
				}
			}
			is.Equal(len(told.Lines("canary")), 0)
			if !c.opts.LogKeys {
				is.Equal(len(told.Lines("order"))+len(told.Lines("req-7")), 0)
			}
		})
	}
}

// A panic right after an ordinary error is logged with its stack, even if its task was canceled in
// the meantime.
func TestPanicBehindError(t *testing.T) {
	is := parallel(t)
	told := &journal{}
	p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
	runs := make(chan string, 3)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		runs <- string(t.Payload)
		switch string(t.Payload) {
		case "error":
			return errors.New("no")
		case "panic":
			panicHere()
		}
		<-ctx.Done()
		panicThere()
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, MaxRetries: -1, KeepFailed: 10})
	stop := run(t, p)
	enqueue(t, q, "error", "panic", "canceled")
	receive(t, runs, 3)
	sure(q.Cancel(t.Context(), []byte("canceled")))(t)
	eventually(t, "all have ended", func() bool { return p.Stats().Failed == 2 && p.Stats().Canceled == 1 })
	stop()
	is.NoErr(p.Close()) // waits until its log is written
	for _, at := range []string{"panicHere", "panicThere"} {
		is.Equal(len(told.Lines(at)), 1)
	}
	// Log lines about a task have the digest of its payload, to find them by.
	is.Equal(len(told.Lines(" digest="+sha("error")[:8]+" kind=failed")), 1)
	is.Equal(len(told.Lines(" digest="+sha("panic")[:8]+" attempt=1")), 1)
}

// A Logger that never returns blocks nothing: tasks start, fail and finish, the lease is kept, and
// the peer stops.
func TestLoggerBlocks(t *testing.T) {
	t.Parallel()
	g := newGate(func(string) bool { return true })
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Logger: slog.New(g)})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if string(t.Payload) == "bad" {
			panic("no")
		}
		return nil
	}, &worqr.HandleOptions{MaxRetries: -1})
	stop := run(t, p)
	<-g.Halted
	other := open(t, worqr.Options{Prefix: prefix})
	enqueue(t, q, "a", "bad", "bad", "b")
	eventually(t, "all have ended", func() bool { return p.Stats().Failed == 2 && p.Stats().Finished == 2 })
	id := p.WorkerID()
	failWorker(t, other, id, 0) // which the peer logs
	eventually(t, "it comes back", func() bool { return p.WorkerID() != id && stats(t, q).Workers == 1 })
	enqueue(t, q, "c")
	eventually(t, "it works on", func() bool { return p.Stats().Finished == 3 })
	stop()
	close(g.Open)
}

// A Logger may panic or end its goroutine, and still gets the next lines. TestReentrant covers what
// it may call.
func TestLoggerMisbehaves(t *testing.T) {
	is := parallel(t)
	var lines atomic.Int64
	g := newGate(func(line string) bool {
		lines.Add(1)
		switch {
		case strings.Contains(line, "panicked"):
			panic("the Logger")
		case strings.Contains(line, "for good"):
			runtime.Goexit()
		}
		return false
	})
	p, q := openQueue(t, worqr.Options{Logger: slog.New(g)})
	q.Handle(func(context.Context, *worqr.Task) error { panic("no") }, &worqr.HandleOptions{MaxRetries: -1})
	stop := run(t, p)
	enqueue(t, q, "a", "b", "c")
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == 3 })
	stop()
	is.True(lines.Load() >= 5)
}

// An evil is an error whose Error method misbehaves.
type evil struct{ how func() }

func (e evil) Error() string { e.how(); return "evil" }

type evilUnwrap struct{ how func() }

func (evilUnwrap) Error() string   { return "evil" }
func (e evilUnwrap) Unwrap() error { e.how(); return nil }

// If Backoff, or a method of an error or a panic value, panics or ends the goroutine, the task is retried.
func TestUserCodeMisbehaves(t *testing.T) {
	t.Parallel()
	for how, misbehave := range map[string]func(){
		"panics": func() { panic("how") }, "exits": runtime.Goexit,
	} {
		for what, fail := range map[string]func() error{
			"Error": func() error { return evil{misbehave} }, "Unwrap": func() error { return evilUnwrap{misbehave} },
			"panic": func() error { panic(evil{misbehave}) }, "Backoff": func() error { return errors.New("no") },
		} {
			t.Run(what+" "+how, func(t *testing.T) {
				is := parallel(t)
				told := &journal{}
				p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
				q.Handle(func(_ context.Context, t *worqr.Task) error {
					if string(t.Payload) == "bad" {
						return fail()
					}
					return nil
				}, &worqr.HandleOptions{Concurrency: 2, Grace: 100 * time.Millisecond, Backoff: func(*worqr.Task, error) time.Duration {
					if what == "Backoff" {
						misbehave()
					}
					return time.Hour
				}})
				enqueue(t, q, "bad", "good", "bad")
				stop := run(t, p)
				eventually(t, "it waits to be tried again", func() bool { return p.Stats().Retried == 2 && p.Stats().Finished == 1 })
				stop()
				is.Equal(p.Stats().RunningHandlers, int64(0))
				is.Equal(p.Stats().StuckHandlers, int64(0))
				is.Equal(stats(t, q).Scheduled, 2)
				if what == "panic" {
					is.True(len(told.Lines("worqr: handler panicked")) > 0)
				}
			})
		}
	}
}
