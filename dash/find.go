package dash

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A found task has what listings show of it, in addition to its explanation.
type found struct {
	Payload []byte
	Key     string
	Headers map[string]string
	Expires time.Time
	Error   string // of the last attempt
	Failed  string // its id in the failed queue
}

// anywhere lists where a task may be if only the payload's digest is known.
var anywhere = []inspect.CopyState{inspect.CopyRunning, inspect.CopyScheduled, inspect.CopyWaiting, inspect.CopyFailed}

// find looks for a task in the listings of these states, as far as they're read before ctx ends.
func (d *dashboard) find(ctx context.Context, queue string, in []inspect.CopyState, is func(key string, payload []byte) bool) *found {
	q, err := d.hooks.handle(queue)
	if err != nil {
		return nil
	}
	for t := range some(in, inspect.CopyRunning, q.Running(ctx), mostRunning) {
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Error: printable(t.LastError)}
		}
	}
	for t := range some(in, inspect.CopyScheduled, q.Scheduled(ctx), mostRows) {
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Expires: t.Expires, Error: printable(t.LastError)}
		}
	}
	for t := range some(in, inspect.CopyWaiting, q.Added(ctx), mostRows) {
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Expires: t.Expires}
		}
	}
	for t := range some(in, inspect.CopyFailed, q.Failed(ctx), mostRows) {
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Error: printable(t.Error), Failed: t.ID}
		}
	}
	for payload := range some(in, inspect.CopyWaiting, q.Tasks(ctx), mostRows) {
		if is("", payload) {
			return &found{Payload: payload}
		}
	}
	return nil
}

// some yields the first rows of a listing, if its state is one of those in.
func some[T any](in []inspect.CopyState, state inspect.CopyState, all iter.Seq2[T, error], most int) iter.Seq[T] {
	return func(yield func(T) bool) {
		if !slices.Contains(in, state) {
			return
		}
		n := 0
		for row, err := range all {
			if n++; err != nil || n > most || !yield(row) {
				return
			}
		}
	}
}
