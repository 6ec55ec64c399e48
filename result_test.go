package worqr_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Bad keys are refused, and unknown ones have no result: at once.
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

// A task without KeepResult has none, and says so at once.
func TestResultNotKept(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	put(t, q, "x", "payload", nil)
	is.True(is_(failure(q.Result(ctx, "x")), worqr.ErrNotEnded))
	is.True(is_(failure(q.Wait(ctx, "x")), worqr.ErrNoResult))
	task, err := q.StartTask(ctx)
	is.NoErr(err)
	is.True(is_(failure(q.Wait(ctx, "x")), worqr.ErrNoResult))
	is.NoErr(task.Finish(ctx))
	is.True(is_(failure(q.Result(ctx, "x")), worqr.ErrNoResult))
}

// Printing a result shows neither its value nor its error.
func TestResultIsSecret(t *testing.T) {
	is := parallel(t)
	r := worqr.Result{Outcome: worqr.OutcomeFailed, Value: []byte("secret"), Size: 6, Error: "secret", EndedAt: time.Unix(0, 0).UTC()}
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

// keeping puts a task that waits for an hour and whose result is kept.
func keeping(t testing.TB, q *worqr.Queue, key string) {
	t.Helper()
	put(t, q, key, "payload", &worqr.PutOptions{At: time.Now().Add(time.Hour), Properties: worqr.Properties{KeepResult: time.Hour}})
}
