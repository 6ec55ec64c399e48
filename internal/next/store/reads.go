package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

// Reads returns a Runner for calls that change nothing. It repeats them: once if the reply was
// lost, and for as long as patience if Redis is down. Their errors aren't ErrUnknown, since such a
// call has no effect that could be unknown.
func Reads(by Runner, patience time.Duration) Runner { return &reads{by, patience} }

type reads struct {
	by       Runner
	patience time.Duration
}

func (r *reads) Do(ctx context.Context, calls ...redisconn.Call) (replies []redisconn.Reply) {
	r.repeat(ctx, func() error {
		replies = r.by.Do(ctx, calls...)
		for _, reply := range replies {
			if redisconn.Away(reply.Err) {
				return reply.Err
			}
		}
		return nil
	})
	for i := range replies {
		replies[i].Err = certain(replies[i].Err)
	}
	return replies
}

func (r *reads) One(ctx context.Context, c redisconn.Call) (v any, err error) {
	r.repeat(ctx, func() error {
		v, err = r.by.One(ctx, c)
		return err
	})
	return v, certain(err)
}

// Owner returns the node of a cluster that has a key; "" if it isn't known.
func (r *reads) Owner(key string) string { return (&absence{of: r.by}).home(key) }

func (r *reads) repeat(ctx context.Context, call func() error) {
	began, retry := time.Now(), NewBackoff()
	for again := false; ; again = true {
		err := call()
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !again && errors.Is(err, ErrUnknown):
			continue // on a new connection
		case !redisconn.Away(err) || time.Since(began) >= r.patience:
			return
		}
		select {
		case <-time.After(retry.Next()):
		case <-ctx.Done():
			return
		}
	}
}

// A lostRead is the error of a read whose reply was lost.
type lostRead struct{ err error }

// certain converts the error of a call that changes nothing.
func certain(err error) error {
	if errors.Is(err, ErrUnknown) {
		return &lostRead{err}
	}
	return err
}

func (e *lostRead) Error() string { return e.err.Error() }

// Unwrap returns why the reply was lost.
func (e *lostRead) Unwrap() []error {
	several, ok := e.err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(several.Unwrap()), func(err error) bool { return errors.Is(err, ErrUnknown) })
}
