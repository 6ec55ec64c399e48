package engine

import (
	"cmp"
	"time"

	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// A story is what a Trace gets of an attempt. Session.mu protects it. An outcome is never told
// before its start.
type story struct {
	taken   time.Time         // when the task arrived
	headers map[string]string // copies that handlers can't change
	start   worqrtrace.Task   // zero until someone works on the task
	left    time.Time         // when its handler returned or its caller ended it; zero before that
	result  int               // bytes
	text    string            // of the error
	over    *store.End        // what was stored, or one without a verb; nil until the attempt has ended for this peer
}

// beganLocked records that a handler or caller has begun to work on the task.
func (t *Attempt) beganLocked(now time.Time) {
	h := t.story
	if h == nil || !h.start.At.IsZero() {
		return
	}
	from := t.Name
	if t.Failure != nil {
		from = t.Failure.Back
	}
	h.start = worqrtrace.Task{
		At: now, Queue: t.session.queue.name, WorkerID: t.session.member.Worker, AttemptID: t.ID, Key: store.KeyOf(from), Digest: t.short(),
		Token: t.Token, Retries: t.Retries, Crashes: t.Crashes, Size: t.size, OnFailed: t.Failure != nil, Waited: now.Sub(h.taken),
		EnqueuedAt: store.Moment(t.Enqueued), DueAt: store.Moment(t.Due), Headers: h.headers,
	}
	t.session.engine.Trace.Started(h.start)
	if h.over != nil { // it was lost before the caller got it
		t.endedLocked()
	}
}

// leftLocked records that nobody works on the task anymore, and the result.
func (t *Attempt) leftLocked(result int, text string) {
	if h := t.story; h != nil && h.left.IsZero() {
		h.left, h.result, h.text = time.Now(), result, text
	}
}

// overLocked records that the attempt has ended for this peer, with its outcome, if known.
func (t *Attempt) overLocked(o *store.End) {
	h := t.story
	if h == nil || h.over != nil {
		return
	}
	if h.over = o; !h.start.At.IsZero() { // otherwise beganLocked reports the outcome, if work on it begins
		t.endedLocked()
	}
}

// endedLocked reports the outcome.
func (t *Attempt) endedLocked() {
	h, e, o := t.story, t.story.start, t.story.over
	e.At, e.Error = time.Now(), h.text
	e.Ran = cmp.Or(h.left, e.At).Sub(h.start.At)
	switch o.Verb {
	case store.Done:
		e.Outcome, e.ResultSize, e.Error = worqrtrace.Finished, h.result, ""
	case store.Retry:
		e.Outcome, e.Next = worqrtrace.Retried, e.At.Add(o.Delay)
	case store.Snooze:
		e.Outcome, e.Next = worqrtrace.Snoozed, e.At.Add(o.Delay)
	case store.Fail:
		e.Outcome, e.Kind, e.Error = worqrtrace.Failed, o.Kind, o.Reason
	case store.Stop:
		e.Outcome = worqrtrace.Stopped
	case store.Drop:
		e.Outcome, e.Error = worqrtrace.Canceled, cmp.Or(h.text, ErrCanceled.Error())
	default:
		e.Outcome = worqrtrace.Lost
	}
	t.session.engine.Trace.Ended(e)
}

// settledLocked records Redis's answer to the attempt's ending.
func (t *Attempt) settledLocked(end *ending, what store.Settled) {
	switch what {
	case store.Gone:
		t.lostLocked(ErrNotOwner)
	case store.Canceled:
		t.overLocked(&store.End{Verb: store.Drop})
	default:
		t.overLocked(&end.End)
	}
}

// lostLocked records that the worker no longer holds the task, and that it's unknown whether its
// end was stored. why is an error of this package.
func (t *Attempt) lostLocked(why error) {
	if h := t.story; h != nil && h.over == nil {
		h.text = why.Error()
		t.overLocked(&store.End{})
	}
}

// returnedLocked records that the task went back to the front when its worker left.
func (t *Attempt) returnedLocked(why error) {
	if h := t.story; h != nil && h.over == nil {
		h.text = cmp.Or(h.text, why.Error())
		t.overLocked(&store.End{Verb: store.Stop})
	}
}
