package dash

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A found task has what listings, but not explanations, show of it.
type found struct {
	Payload []byte
	Key     string
	Headers map[string]string
	Expires time.Time
	Error   string // of the last attempt
	Failed  string // its id in the failed queue
}

// anywhere lists where a task may be if only the payload's digest is known.
var anywhere = []inspect.CopyState{inspect.CopyRunning, inspect.CopyScheduled, inspect.CopyBlocked, inspect.CopyWaiting, inspect.CopyFailed}

// find looks for a task in the listings of these states, as far as they're read before ctx ends. It
// returns nil if it finds none, with an error if a listing couldn't be read.
func (d *dashboard) find(ctx context.Context, queue string, in []inspect.CopyState, is func(key string, payload []byte) bool) (_ *found, err error) {
	q := d.peer.Queue(queue)
	for t := range some(in, inspect.CopyRunning, q.Running(ctx), mostRunning, &err) {
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Error: printable(t.LastError)}, nil
		}
	}
	for _, list := range []struct {
		of    inspect.CopyState
		named []inspect.NamedState
	}{
		{inspect.CopyScheduled, []inspect.NamedState{inspect.NamedScheduled}},
		{inspect.CopyBlocked, []inspect.NamedState{inspect.NamedBlocked}},
		{inspect.CopyWaiting, []inspect.NamedState{inspect.NamedReady, inspect.NamedRisky}},
	} {
		for t := range some(in, list.of, q.Named(ctx, list.named...), mostRows, &err) {
			if is(t.Key, t.Payload) {
				return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Expires: t.Expires, Error: printable(t.LastError)}, nil
			}
		}
	}
	for t := range some(in, inspect.CopyFailed, q.Failed(ctx), mostRows, &err) {
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Error: printable(t.Error), Failed: t.ID}, nil
		}
	}
	for payload := range some(in, inspect.CopyWaiting, q.Tasks(ctx), mostRows, &err) {
		if is("", payload) {
			return &found{Payload: payload}, nil
		}
	}
	return nil, err
}

// glance is find with a list's time limit, for pages: a stream renders its page again and again, and
// other pages wait for that.
func (d *dashboard) glance(ctx context.Context, queue string, in []inspect.CopyState, is func(key string, payload []byte) bool) (*found, error) {
	ctx, end := context.WithTimeout(ctx, listTime)
	defer end()
	return d.find(ctx, queue, in, is)
}

// some yields the first rows of a listing, if its state is one of those in. It sets failed if the
// listing fails.
func some[T any](in []inspect.CopyState, state inspect.CopyState, all iter.Seq2[T, error], most int, failed *error) iter.Seq[T] {
	return func(yield func(T) bool) {
		if !slices.Contains(in, state) {
			return
		}
		n := 0
		for row, err := range all {
			if err != nil {
				*failed = err
			}
			if n++; err != nil || n > most || !yield(row) {
				return
			}
		}
	}
}
