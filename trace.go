package worqr

import (
	"errors"
	"maps"
	"time"

	"github.com/worqr/worqr/worqrtrace"
)

// change does what a method does, which returns how many tasks it has changed, and tells the Trace.
func (q *Queue) change(method, verb, key string, do func() (tasks int, err error)) (int, error) {
	if q.bad != nil {
		return 0, q.wrap(verb, q.bad)
	}
	began := time.Now()
	n, err := do()
	now, err := time.Now(), q.wrap(verb, err)
	q.peer.trace.Changed(worqrtrace.Queue{At: now, Queue: q.name, Method: method, Key: key, Tasks: n, Err: err, Took: now.Sub(began)})
	return n, err
}

// changeOne is change for a method that changes one task, or none.
func (q *Queue) changeOne(method, verb, key string, do func() (bool, error)) (bool, error) {
	n, err := q.change(method, verb, key, func() (int, error) {
		if did, err := do(); !did || err != nil {
			return 0, err
		}
		return 1, nil
	})
	return n == 1, err
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
