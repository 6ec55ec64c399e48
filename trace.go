package worqr

import (
	"errors"
	"maps"
	"time"

	"github.com/worqr/worqr/internal/tracing"
	"github.com/worqr/worqr/worqrtrace"
)

// changes begins a call that Trace.Changed reports. The returned function ends it: it takes the
// number of changed tasks and the call's error, which it returns.
func (q *Queue) changes(method, key string) func(tasks int, err error) error {
	r := q.peer.trace
	if r == nil || r.Changed == nil {
		return func(_ int, err error) error { return err }
	}
	began := time.Now()
	return func(tasks int, err error) error {
		t := worqrtrace.Queue{At: time.Now(), Queue: q.name, Method: method, Key: key, Tasks: tasks, Err: err}
		t.Took = t.At.Sub(began)
		tracing.Say(r, r.Changed, t)
		return err
	}
}

// enqueued tells the Trace about a call that has added payloads, or may have, and returns its
// error.
func (q *Queue) enqueued(began time.Time, t worqrtrace.Queue, err error, payloads ...[]byte) error {
	if began.IsZero() || err != nil && !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	t.At, t.Queue, t.Tasks, t.Err = time.Now(), q.name, len(payloads), err
	t.Took = t.At.Sub(began)
	t.Headers = maps.Clone(t.Headers)
	for _, p := range payloads {
		t.Size += len(p)
	}
	tracing.Say(q.peer.trace, q.peer.trace.Enqueued, t)
	return err
}

// canceled tells the Trace about a cancel, and how many waiting tasks it removed.
func (q *Queue) canceled(began time.Time, key string, removed int) {
	if !began.IsZero() {
		now := time.Now()
		tracing.Say(q.peer.trace, q.peer.trace.Canceled, worqrtrace.Queue{At: now, Queue: q.name, Key: key, Tasks: removed, Took: now.Sub(began)})
	}
}
