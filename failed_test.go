package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// No ids means none, not all, and unknown ids are ignored. TestRandom covers the rest.
func TestDeleteAndRequeueNone(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a", "b")
	for _, task := range sure(q.StartTasks(ctx, 2))(t) {
		is.NoErr(task.Fail(ctx, errors.New("no")))
	}
	for _, ids := range [][]string{nil, {}, {"unknown", ""}} {
		is.Equal(sure(q.RequeueFailed(ctx, ids...))(t), 0)
		is.Equal(sure(q.DeleteFailed(ctx, ids...))(t), 0)
	}
	is.Equal(failedPayloads(t, q), []string{"b", "a"}) // newest first
	id := failed(t, q)[0].ID
	is.Equal(sure(q.RequeueFailed(ctx, id, "unknown", id))(t), 1)
	is.Equal(waiting(t, q), []string{"b"})
}

// A verdict matches the error it wraps and has the same text.
func TestVerdicts(t *testing.T) {
	is := parallel(t)
	no := errors.New("no")
	for _, err := range []error{worqr.Permanent(no), worqr.Malformed(no), worqr.RetryAfter(no, time.Hour)} {
		is.True(errors.Is(err, no))
		is.Equal(err.Error(), "no")
		is.True(!worqr.IsSnooze(err))
	}
	is.True(worqr.IsPermanent(fmt.Errorf("so: %w", worqr.Permanent(no))) && !worqr.IsMalformed(worqr.Permanent(no)))
	is.True(worqr.IsPermanent(worqr.Malformed(no)) && worqr.IsMalformed(worqr.Malformed(no)))
	is.True(!worqr.IsPermanent(nil) && !worqr.IsMalformed(no) && !worqr.IsPermanent(worqr.RetryAfter(no, 0)))
	is.True(worqr.IsSnooze(worqr.Snooze(time.Minute)) && !worqr.IsPermanent(worqr.Snooze(time.Minute)))
	is.Equal(worqr.Snooze(time.Minute).Error(), "snoozed for 1m0s")
}

// Bad keys fail, and unknown keys have no result. Neither call blocks.
func TestResultOfUnknown(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := open(t, worqr.Options{}).Queue("q")
	for key, want := range map[string]error{"": worqr.ErrInvalid, strings.Repeat("k", worqr.MaxKeySize+1): worqr.ErrTooLarge, "x": worqr.ErrNoResult, "\x00\xff": worqr.ErrNoResult} {
		is.True(is_(failure(q.Result(ctx, key)), want))
		is.True(is_(failure(q.Wait(ctx, key)), want))
	}
	is.Equal(failure(q.Wait(ctx, "x")).Error(), `worqr: wait on "q": no result: no task waits or runs under the key, and no result is kept`)
	bad := open(t, worqr.Options{}).Queue("{}")
	is.True(is_(failure(bad.Wait(ctx, "x")), worqr.ErrBadName))
	is.True(is_(failure(bad.Result(ctx, "x")), worqr.ErrBadName))
}

// Printing a result shows neither its value nor its error.
func TestResultIsSecret(t *testing.T) {
	is := parallel(t)
	r := worqr.Result{Outcome: worqr.OutcomeFailed, Value: []byte("secret"), Error: "secret", EndedAt: time.Unix(0, 0).UTC()}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		is.Equal(fmt.Sprintf(format, r), "result[outcome=failed bytes=6 at=1970-01-01T00:00:00Z]")
	}
}

// A wait ends with its context, and when the peer is closed.
func TestWaitEnds(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	keeping(t, open(t, worqr.Options{Prefix: prefix}).Queue("q"), "x")
	p := open(t, worqr.Options{Prefix: prefix})
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- failure(p.Queue("q").Wait(ctx, "x")) }()
	cancel(fmt.Errorf("enough"))
	is.Equal((<-ended).Error(), `worqr: wait on "q": enough`)
	go func() { ended <- failure(p.Queue("q").Wait(t.Context(), "x")) }()
	is.NoErr(p.Close())
	is.True(is_(<-ended, worqr.ErrShutdown))
	is.True(is_(failure(p.Queue("q").Wait(t.Context(), "x")), worqr.ErrShutdown))
}

// keeping puts a task that is due in an hour and keeps its result.
func keeping(t testing.TB, q *worqr.Queue, key string) {
	t.Helper()
	add(t, q, worqr.TaskSpec{Key: key, Payload: []byte("payload"), At: time.Now().Add(time.Hour), KeepResult: time.Hour})
}
