package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// Listings and counts include due tasks, listed tasks and later tasks, even if each fills several
// pages.
func TestReadOutsOfBothLanes(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	var due, later []string
	for i := range 250 {
		due, later = append(due, fmt.Sprint("due", i)), append(later, fmt.Sprint("later", i))
		put(t, q, later[i], later[i], &worqr.PutOptions{At: time.Now().Add(time.Hour + time.Duration(i)*time.Second)})
	}
	enqueue(t, q, numbers("list", 250)...)
	is.Equal(string(sure(q.Peek(t.Context()))(t)), "list0")
	for i, payload := range due {
		put(t, q, payload, payload, &worqr.PutOptions{At: time.UnixMilli(int64(1000 + i))})
	}
	is.Equal(string(sure(q.Peek(t.Context()))(t)), "due0")
	is.Equal(waiting(t, q), slices.Concat(due, numbers("list", 250), later))
	is.Equal(len(scheduled(t, q)), 500)
	is.Equal(sure(q.Len(t.Context()))(t), 750)
}

// A running peer finds parts that others add, and Explain finds a task on a part by the queue's
// name alone.
func TestSpreadGrows(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	p.AgreeEach(20 * time.Millisecond)
	done := make(chan string, 100)
	p.Queue("q").Spread(2).Handle(tell(done), nil)
	run(t, p)
	enqueue(t, p.Queue("q").Spread(2), "before")
	receive(t, done, 1)

	grown := open(t, worqr.Options{Prefix: prefix})
	q := grown.Queue("q").Spread(7)
	q.Handle(func(ctx context.Context, _ *worqr.Task) error { <-ctx.Done(); return ctx.Err() }, &worqr.HandleOptions{Concurrency: 1, Prefetch: -1})
	stop := run(t, grown)
	eventually(t, "it has seven parts", func() bool { return q.Put(t.Context(), "first", []byte("x"), nil) == nil })
	stop()
	for i := range 30 {
		put(t, q, fmt.Sprint("k", i), fmt.Sprint("t", i), nil)
	}
	receive(t, done, 31)

	put(t, q, "later", "later", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	named := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	is.Equal(len(sure(named.Explain(t.Context(), []byte("later")))(t).Copies), 1)
	is.Equal(len(sure(named.ExplainKey(t.Context(), "later"))(t).Copies), 1)
}

// A peer that knows only the name of a spread queue finds tasks even if only Enqueue has added any.
func TestSpreadIsTold(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	enqueue(t, open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(4), "a", "b", "c")
	named := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	is.Equal(len(sure(named.Explain(t.Context(), []byte("b")))(t).Copies), 1)
}

// StopWork stops all parts, including those that others added. StartWork resumes them, together
// with parts added in the meantime.
func TestSpreadStopWork(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	big := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(7)
	p := open(t, worqr.Options{Prefix: prefix})
	p.AgreeEach(10 * time.Millisecond)
	done := make(chan string, 100)
	q := p.Queue("q").Spread(2)
	q.Handle(tell(done), nil)
	for _, k := range numbers("first", 30) {
		put(t, big, k, k, nil)
	}
	run(t, p)
	receive(t, done, 30)
	is.NoErr(q.StopWork(ctx))
	is.Equal(stats(t, big).Workers, 0)
	for _, k := range numbers("t", 30) {
		put(t, big, k, k, nil)
	}
	is.Equal(sure(big.Len(ctx))(t), 30)
	is.Equal(stats(t, big).Workers, 0)
	is.True(is_(q.StopWork(ctx), worqr.ErrNotWorking))
	is.NoErr(q.StartWork(ctx))
	receive(t, done, 30)
}

// If calls on some parts of a queue fail, and the outcome of one is unknown, that's what the caller
// learns: otherwise it would take the failed call for one without effect.
func TestUnknownOutcomeOfAPart(t *testing.T) {
	is := parallel(t)
	is.True(errors.Is(worqr.EachOf(3, func(part int) error {
		return []error{context.Canceled, nil, store.ErrUnknown}[part]
	}), store.ErrUnknown))
}
