package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

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
