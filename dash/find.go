package dash

import (
	"context"
	"time"
)

// A found task is what the listings tell of it, beside its explanation.
type found struct {
	Payload  []byte
	Key      string
	Headers  map[string]string
	Enqueued time.Time
	Expires  time.Time
	Error    string // of the last attempt
	Failed   string // its id in the failed queue
}

// find looks for a task in the listings, as far as they can be seen.
func (d *dashboard) find(ctx context.Context, queue string, is func(key string, payload []byte) bool) *found {
	ctx, end := context.WithTimeout(ctx, listTime)
	defer end()
	q := d.opts.Queue(queue)
	n := 0
	over := func(err error, most int) bool { n++; return err != nil || n > most }
	for t, err := range q.Running(ctx) {
		if over(err, mostRunning) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Error: printable(t.LastError)}
		}
	}
	n = 0
	for t, err := range q.Scheduled(ctx) {
		if over(err, mostRows) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Expires: t.Expires, Error: printable(t.LastError)}
		}
	}
	n = 0
	for t, err := range q.Added(ctx) {
		if over(err, mostRows) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Expires: t.Expires}
		}
	}
	n = 0
	for t, err := range q.Failed(ctx) {
		if over(err, mostRows) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Error: printable(t.Error), Failed: t.ID}
		}
	}
	n = 0
	for payload, err := range q.Tasks(ctx) {
		if over(err, mostRows) {
			break
		}
		if is("", payload) {
			return &found{Payload: payload}
		}
	}
	return nil
}
