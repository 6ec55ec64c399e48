package engine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A want is a caller's request for up to n tasks, as many as one round brings.
type want struct {
	n     int
	got   chan supply // gets one answer
	until time.Time   // for how long the caller doesn't learn that Redis refuses it for a reason that passes
	gone  bool        // nobody waits for it anymore; protected by Session.mu
}

// A supply is the answer to a want.
type supply struct {
	tasks []*Attempt
	err   error // if there are none
}

// tellLocked answers the request. Only the first answer counts.
func (w *want) tellLocked(tasks []*Attempt, err error) {
	w.gone = true
	select {
	case w.got <- supply{tasks, err}:
	default:
	}
}

// Start takes up to n tasks for a caller, as many as one round brings. It blocks until Redis has answered. It fails
// with ErrNoTask if there are none. Redis refuses some rounds for reasons that pass: they are repeated for CallTimeout.
func (s *Session) Start(ctx context.Context, n int) (all []*Attempt, err error) {
	w := &want{n: n, got: make(chan supply, 1), until: time.Now().Add(s.engine.CallTimeout)}
	s.mu.Lock()
	if s.ended != nil || s.closing {
		defer s.mu.Unlock()
		return nil, cmp.Or(s.ended, ErrNotWorking)
	}
	s.wants = append(s.wants, w)
	s.mu.Unlock()
	s.nudge()
	t, cause := await(ctx, s, w.got)
	if cause == nil {
		return s.given(ctx, t)
	}
	s.mu.Lock()
	s.wants = slices.DeleteFunc(s.wants, func(o *want) bool { return o == w })
	w.tellLocked(nil, cause) // unless it has just been answered; tasks that still arrive are returned
	s.mu.Unlock()
	return s.given(ctx, <-w.got)
}

// given prepares tasks for the caller that asked for them: it reads large ones.
func (s *Session) given(ctx context.Context, got supply) (tasks []*Attempt, err error) {
	for _, t := range got.tasks {
		why := t.fetch(ctx)
		s.mu.Lock()
		switch bad, ok := why.(*unfit); {
		case why == nil:
			t.beganLocked()
			tasks = append(tasks, t)
		case ok:
			s.sayLocked(t.unbegun(bad.End))
		default:
			s.giveBackLocked(t)
			err = why
		}
		s.mu.Unlock()
	}
	if len(tasks) > 0 {
		return tasks, nil
	}
	return nil, cmp.Or(err, got.err, ErrNoTask)
}

// await waits for the answer to a request that becomes part of a round. It stops when ctx ends or
// Redis is silent: rounds themselves are repeated until they're answered.
func await[T any](ctx context.Context, s *Session, answer <-chan T) (T, error) {
	patience := s.engine.CallTimeout
	timer := time.NewTimer(patience)
	defer timer.Stop()
	due := time.Now().Add(patience)
	var none T
	for {
		select {
		case got := <-answer:
			return got, nil
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-timer.C:
		}
		now := time.Now()
		if stood := now.Sub(due) > patience/4; !stood && s.view.Silent() { // a process that stood still has heard nothing
			return none, errSilent
		}
		timer.Reset(patience / 4)
		due = now.Add(patience / 4)
	}
}

var errSilent = fmt.Errorf("no answer from Redis: %w", os.ErrDeadlineExceeded)

// End ends the attempt, and blocks until Redis has done that. You may repeat it if the reply was lost: an attempt
// that an earlier call has ended in the same way has ended. Redis refuses some calls for reasons that pass: they
// are repeated for CallTimeout.
func (t *Attempt) End(ctx context.Context, e store.End) error {
	s := t.session
	end := &ending{End: t.endOf(e, true), task: t, done: make(chan error, 1), until: time.Now().Add(s.engine.CallTimeout)}
	s.mu.Lock()
	t.story.Left(len(end.Result), "")
	s.sayLocked(end)
	s.mu.Unlock()
	err, cause := await(ctx, s, end.done)
	if cause == nil {
		return err
	}
	if s.unsay(end) {
		return cause
	}
	select {
	case err := <-end.done:
		return err // both were ready
	default:
		return fmt.Errorf("%w: %w", store.ErrUnknown, cause) // not under s.mu: calls cause's methods
	}
}

// unsay withdraws an ending, and reports whether it hadn't been sent yet.
func (s *Session) unsay(end *ending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.say, end)
	if i >= 0 {
		s.say = slices.Delete(s.say, i, i+1)
		s.hushLocked()
	}
	return i >= 0
}
