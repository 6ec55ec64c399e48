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
// that was idle as on one that was not, and a worker and its task outlive that. How long it
// takes is compared with how long it takes beside it, with another CallTimeout: the machine
// is as busy for both.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	const short, long = time.Second, 6 * time.Second
	for name, test := range map[string]struct{ idle, apart time.Duration }{
		"busy": {0, (long - short) / 2},
		// The connection is checked for a quarter of the timeout, and a new one tried for 2 s.
		"idle": {1100 * time.Millisecond, (long - short) / 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			calls := map[time.Duration]map[string]func() error{}
			tasks := map[time.Duration]*worqr.Task{}
			for _, timeout := range []time.Duration{short, long} {
				p := openAt(t, server.URL(), worqr.Options{Prefix: "p", CallTimeout: timeout, Lease: time.Hour})
				q := working(t, p, timeout.String())
				enqueue(t, q, "a", "b")
				task := sure(q.StartTask(t.Context()))(t)
				tasks[timeout] = task
				calls[timeout] = map[string]func() error{
					"Enqueue":   func() error { return q.Enqueue(context.Background(), []byte("c")) },
					"Len":       func() error { _, err := q.Len(t.Context()); return err },
					"Cancel":    func() error { _, err := q.Cancel(context.Background(), []byte("d")); return err },
					"StartTask": func() error { _, err := q.StartTask(context.Background()); return err },
					"Finish":    func() error { return task.Finish(context.Background()) },
				}
			}
			time.Sleep(test.idle) // the idle time itself
			server.Signal(t, syscall.SIGSTOP)
			type failure struct {
				name          string
				err           error
				timeout, took time.Duration
			}
			failures := make(chan failure, 2*len(calls[short]))
			for timeout, calls := range calls {
				for name, call := range calls {
					go func() {
						began := time.Now()
						failures <- failure{name, call(), timeout, time.Since(began)}
					}()
				}
			}
			took := map[time.Duration]map[string]time.Duration{short: {}, long: {}}
			for _, f := range receive(t, failures, cap(failures)) {
				took[f.timeout][f.name] = f.took
				if !errors.Is(f.err, os.ErrDeadlineExceeded) && !errors.Is(f.err, context.DeadlineExceeded) {
					t.Errorf("%s: %v is no timeout", f.name, f.err)
				}
			}
			for name, shorter := range took[short] {
				longer := took[long][name]
				if longer-shorter < test.apart {
					t.Errorf("%s: %v where the timeout is %v, and %v where it is %v", name, shorter, short, longer, long)
				}
			}
			server.Signal(t, syscall.SIGCONT)
			for _, task := range tasks {
				eventually(t, "it is finished", func() bool { return task.Finish(t.Context()) == nil })
			}
		})
	}
	for _, d := range []time.Duration{-1, time.Millisecond} {
		_, err := worqr.Open("redis://localhost", &worqr.Options{CallTimeout: d})
		is.New(t).True(errors.Is(err, worqr.ErrInvalid))
	}
}
