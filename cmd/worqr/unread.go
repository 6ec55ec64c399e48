package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/reading"
	"github.com/worqr/worqr/internal/words"
)

// atOnce is how many queues are read at the same time, and patienceEach how long reading one may take.
const (
	atOnce       = 16
	patienceEach = 3 * time.Second
)

// An unread error reports that one queue can't be read; listings continue with the next one.
type unread struct {
	queue queueName
	err   error
}

func (u *unread) Error() string { return fmt.Sprintf("queue %q can't be read: %v", u.queue, u.err) }

func (u *unread) Unwrap() error { return u.err }

// An unreadRow is printed for such a queue.
type unreadRow struct {
	Queue string
	Error string
}

func (u *unread) row() unreadRow { return unreadRow{string(u.queue), u.err.Error()} }

// someUnread returns the error of a command that has printed which queues it can't read.
func someUnread(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s can't be read; the other rows are complete", words.Counted(n, "queue"))
}

// eachOf reads each queue, several at a time, and yields the results in order: an unread error for a queue that
// is damaged, or on a node that doesn't answer in time.
func eachOf[T any](ctx context.Context, all queueNames, read func(context.Context, queueName) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		limits := reading.Limits{AtOnce: atOnce, Each: patienceEach}
		one := func(ctx context.Context, i int) (T, error) { return read(ctx, all[i]) }
		rows, errs, _ := reading.Each(ctx, len(all), limits, one)
		for i, row := range rows {
			switch {
			case errs[i] != nil && ctx.Err() != nil:
				yield(row, context.Cause(ctx))
				return
			case errs[i] != nil:
				errs[i] = &unread{all[i], errs[i]}
			}
			if !yield(row, errs[i]) {
				return
			}
		}
	}
}

// ofEach lists several queues, one after the other. First, it checks concurrently which of them
// answer.
func ofEach[T any](ctx context.Context, f *fleet, all queueNames, list func(*worqr.Queue) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for q, err := range eachOf(ctx, all, func(ctx context.Context, name queueName) (*worqr.Queue, error) {
			q := f.Queue(string(name))
			_, err := q.Stats(ctx)
			return q, err
		}) {
			if err != nil {
				if !yield(none, err) {
					return
				}
				continue
			}
			for row, err := range list(q) {
				if err != nil && ctx.Err() == nil {
					err = &unread{queueName(q.Name()), err}
				}
				if !yield(row, err) {
					return
				}
			}
		}
	}
}

// asUnread returns err as an unread error, or nil.
func asUnread(err error) *unread {
	u, _ := errors.AsType[*unread](err)
	return u
}
