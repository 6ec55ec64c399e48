package engine

import (
	"maps"

	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
	"github.com/worqr/worqr/worqrtrace"
)

// beganLocked tells a Trace that a handler or caller has begun to work on the task.
func (t *Attempt) beganLocked() {
	if t.story == nil {
		return
	}
	t.story.Began(worqrtrace.Task{
		Queue: t.session.queue.name, WorkerID: t.session.member.Worker, AttemptID: t.ID, Key: t.key(), Digest: t.short(),
		Token: t.Token, Retries: t.Retries, Crashes: t.Crashes, Size: t.size, OnFailed: t.Failure != nil,
		EnqueuedAt: store.Moment(t.Enqueued), DueAt: store.Moment(t.Due), Headers: maps.Clone(t.Metadata.Headers),
	})
}

var outcomes = map[store.Ending]worqrtrace.Outcome{
	store.Done: worqrtrace.Finished, store.Retry: worqrtrace.Retried, store.Snooze: worqrtrace.Snoozed,
	store.Fail: worqrtrace.Failed, store.Stop: worqrtrace.Stopped, store.Drop: worqrtrace.Canceled,
}

// answeredLocked tells a Trace what Redis has answered to the attempt's ending.
func (t *Attempt) answeredLocked(end *ending, what store.Settled) {
	over := tracing.End{Outcome: outcomes[end.Verb], Kind: end.Kind, Why: end.Reason, Delay: end.Delay}
	switch {
	case what == store.Gone:
		over = tracing.End{Outcome: worqrtrace.Lost, Why: ErrNotOwner.Error()}
	case what == store.Canceled, end.Verb == store.Drop:
		over = tracing.End{Outcome: worqrtrace.Canceled, Why: ErrCanceled.Error()}
	}
	t.story.Over(over)
}

// overLocked tells a Trace how the attempt has ended for this peer without an answer: it was lost, and it's unknown
// whether its end was stored, or it was returned when the worker left.
func (t *Attempt) overLocked(outcome worqrtrace.Outcome, why error) {
	t.story.Over(tracing.End{Outcome: outcome, Why: why.Error()})
}
