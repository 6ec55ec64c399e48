package api

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// While Redis stands still every call fails when CallTimeout is over, on a connection
// that was idle as on one that was not, and a worker and its task outlive that.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	for name, idle := range map[string]time.Duration{"busy": 0, "idle": 1100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			p := openAt(t, server.URL(), worqr.Options{Prefix: "p", CallTimeout: timeout, Lease: time.Hour})
			q := working(t, p, "q")
			enqueue(t, q, "a", "b")
			task, err := q.StartTask(t.Context())
			is.NoErr(err)
			time.Sleep(idle) // the idle time itself
			server.Signal(t, syscall.SIGSTOP)
			calls := map[string]func() error{
				"Enqueue":   func() error { return q.Enqueue(context.Background(), []byte("c")) },
				"Len":       func() error { _, err := q.Len(t.Context()); return err },
				"Cancel":    func() error { _, err := q.Cancel(context.Background(), []byte("d")); return err },
				"StartTask": func() error { _, err := q.StartTask(context.Background()); return err },
				"Finish":    func() error { return task.Finish(context.Background()) },
			}
			type failure struct {
				name string
				err  error
				took time.Duration
			}
			failures := make(chan failure, len(calls))
			for name, call := range calls {
				go func() {
					began := time.Now()
					failures <- failure{name, call(), time.Since(began)}
				}()
			}
			for _, f := range receive(t, failures, len(calls)) {
				if f.err == nil || f.took > 3*timeout { // a busy machine may take as long again
					t.Errorf("%s: %v after %v", f.name, f.err, f.took)
				}
				if !errors.Is(f.err, os.ErrDeadlineExceeded) && !errors.Is(f.err, context.DeadlineExceeded) {
					t.Errorf("%s: %v is no timeout", f.name, f.err)
				}
			}
			server.Signal(t, syscall.SIGCONT)
			eventually(t, "it is finished", func() bool { return task.Finish(t.Context()) == nil })
		})
	}
	for _, d := range []time.Duration{-1, time.Millisecond} {
		_, err := worqr.Open("redis://localhost", &worqr.Options{CallTimeout: d})
		is.New(t).True(errors.Is(err, worqr.ErrInvalid))
	}
}
