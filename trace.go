package worqr

import (
	"errors"
	"maps"
	"time"

	"github.com/worqr/worqr/worqrtrace"
)

// changes begins a call that Trace.Changed reports. The returned function ends it: it takes the
// number of changed tasks and the call's error, which it returns.
func (q *Queue) changes(method, key string) func(tasks int, err error) error {
	began := time.Now()
	return func(tasks int, err error) error {
		now := time.Now()
		q.peer.trace.Changed(worqrtrace.Queue{At: now, Queue: q.name, Method: method, Key: key, Tasks: tasks, Err: err, Took: now.Sub(began)})
		return err
	}
}

// enqueued tells the Trace about a call that has added payloads, or may have, and returns its
// error.
func (q *Queue) enqueued(began time.Time, t worqrtrace.Queue, err error, payloads ...[]byte) error {
	if !q.peer.trace.Enqueues || err != nil && !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	t.At, t.Queue, t.Tasks, t.Err = time.Now(), q.name, len(payloads), err
	t.Took = t.At.Sub(began)
	t.Headers = maps.Clone(t.Headers)
	for _, p := range payloads {
		t.Size += len(p)
	}
	q.peer.trace.Enqueued(t)
	return err
}

// canceled tells the Trace about a cancel, and how many waiting tasks it removed.
func (q *Queue) canceled(began time.Time, key string, removed int) {
	now := time.Now()
	q.peer.trace.Canceled(worqrtrace.Queue{At: now, Queue: q.name, Key: key, Tasks: removed, Took: now.Sub(began)})
}
