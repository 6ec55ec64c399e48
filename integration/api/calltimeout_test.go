package api

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// While Redis hangs, every call fails after CallTimeout, and a worker and its task survive. The
// test compares the time with that of a peer with another CallTimeout, since a busy machine delays
// both. internal/redisconn tests that the state of the connection makes no difference.
func TestCallTimeout(t *testing.T) {
	is := parallel(t)
	const short, long = time.Second, 6 * time.Second
	server := redistest.Start(t)
	type failure struct {
		call string
		of   time.Duration // the timeout
		took time.Duration
	}
	failures := make(chan failure, 12)
	paused := make(chan struct{})
	var tasks []*worqr.Task
	for _, timeout := range []time.Duration{short, long} {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", CallTimeout: timeout, Lease: time.Hour})
		q := working(t, p, timeout.String())
		enqueue(t, q, "a", "b")
		sure(q.Add(t.Context(), worqr.TaskSpec{Key: "later", At: time.Now().Add(time.Hour), KeepResult: time.Hour}))(t)
		task := take(t, q)
		tasks = append(tasks, task)
		for name, call := range map[string]func(context.Context) error{
			"Enqueue":   func(ctx context.Context) error { return q.Enqueue(ctx, []byte("c")) },
			"Stats":     func(ctx context.Context) error { _, err := q.Stats(ctx); return err },
			"Cancel":    func(ctx context.Context) error { _, err := q.Cancel(ctx, []byte("d")); return err },
			"StartTask": func(ctx context.Context) error { _, err := q.StartTask(ctx); return err },
			"Finish":    task.Finish,
			"Wait":      func(ctx context.Context) error { _, err := q.Wait(ctx, "later"); return err },
		} {
			go func() {
				<-paused
				began := time.Now()
				err := call(context.Background())
				if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) { // that would be the caller's
					t.Errorf("%s: %v isn't the timeout of the call", name, err)
				}
				failures <- failure{name, timeout, time.Since(began)}
			}()
		}
	}
	server.Pause(t)
	close(paused)
	longer := map[string]time.Duration{} // with the long timeout
	for _, f := range receive(t, failures, cap(failures)) {
		longer[f.call] += map[bool]time.Duration{true: f.took, false: -f.took}[f.of == long]
	}
	for call, longer := range longer {
		if longer < (long-short)/2 {
			t.Errorf("%s takes %v longer where the timeout is %v and not %v", call, longer, long, short)
		}
	}
	server.Resume(t)
	for _, task := range tasks {
		eventually(t, "it is finished", func() bool { return task.Finish(t.Context()) == nil })
	}
	for _, d := range []time.Duration{-1, time.Millisecond} {
		_, err := worqr.Open("redis://localhost", &worqr.Options{CallTimeout: d})
		is.True(errors.Is(err, worqr.ErrInvalid))
	}
}
