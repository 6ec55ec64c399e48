package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// An Attempt is one start of a task.
type Attempt struct {
	ID      string // a UUIDv7
	Payload []byte // raw; whose it is may change it
	Entry   string // of the schedule; "" of the list
	Token   int64
	Retries int
	Crashes int
	Failure *store.Grave // what has happened to it; only in a failed queue

	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	identity
	size    int                  // of Payload as it was taken; the handler may change that
	covered []store.Cancellation // cancels of it of which it's still to be said that it runs; protected by Session.mu
	round   int64                // the last one that was to end it, or 0; likewise
	tried   store.Ending         // the end that was, or may have been, carried out; likewise
	ended   bool                 // it was; likewise
	plain   bool                 // it is of the list
	risky   bool                 // one more death would be its last; a peer runs one such at a time

	run atomic.Pointer[run] // of a handler
}

// newAttempt makes the task of what was started. It may take a while; identify is to follow
// where the digest is not known.
func newAttempt(r *Session, id string, s store.Start) *Attempt {
	t := &Attempt{
		ID: id, Payload: s.Payload, Entry: s.Entry, Token: s.Token, Retries: s.Retries, Crashes: s.Crashes, Failure: s.Failure,
		session: r, size: max(len(s.Payload), s.Bytes), plain: s.Entry == "",
	}
	switch {
	case s.Bytes > 0:
		t.never = true // else it would go back under the digest of nothing
	case len(s.Payload) > store.Large:
		t.late = &unmatched{known: make(chan struct{})}
	default:
		t.digest = hashOf(s.Payload)
	}
	t.ctx, t.cancel = context.WithCancelCause(r.base)
	return t
}

// endLocked ends the context, and has the handler be watched until it returns.
func (t *Attempt) endLocked(cause error) {
	if t.ctx == nil || t.ctx.Err() != nil {
		return // it has
	}
	t.cancel(cause)
	if a := t.run.Load(); a != nil && a.unwatch == nil && cause != context.Canceled {
		go a.watch()
	}
}

// assureLocked ends the context of a task that was taken ahead when it is not certain to be
// ours any more.
func (t *Attempt) assureLocked(now time.Time) {
	if !t.session.sureLocked(now) {
		t.endLocked(ErrLeaseExpired)
	}
}

// Context ends when the task is no longer to be worked on.
func (t *Attempt) Context() context.Context { return t.ctx }

// End ends the process. An end whose reply was lost may be repeated: if the
// worker is still a member and does not hold the process, nobody but itself
// can have ended it. So it was this end, if no other was tried before.
func (t *Attempt) End(ctx context.Context, o store.Outcome) error {
	r, s := t.session, &ending{Outcome: t.outcome(o), done: make(chan settled, 1)}
	r.mu.Lock()
	before := t.tryLocked(o.Verb)
	r.sayLocked(s)
	r.mu.Unlock()
	d := r.settle(ctx, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.concludeLocked(o.Verb, before, d)
}

// outcome completes what ends the process.
func (t *Attempt) outcome(o store.Outcome) store.Outcome {
	o.Process, o.Token, o.Plain, o.Size = t.ID, t.Token, t.plain, t.size
	if t.size > store.Large {
		o.Digest = t.sum()
	}
	if o.Verb == store.Finish {
		o.Encode(t.session.engine.maxResult)
	}
	return o
}

// sum is the digest, or "" where it is not known.
func (t *Attempt) sum() string {
	if t.isKnown() && !t.never {
		return t.digest.String()
	}
	return ""
}

// named begins the attributes of a log line about the task with what it is found by: the
// attempt, and eight digits of the digest, which stay the same over retries. Payload and key
// are in no log.
func (t *Attempt) named(attrs ...any) []any {
	all := []any{"queue", t.session.queue.id, "attempt_id", t.ID}
	if digest := t.sum(); digest != "" {
		all = append(all, "digest", digest[:8])
	}
	return append(all, attrs...)
}

// try notes that the process is to end by a verb, and returns the one by which it
// was to end before; conclude follows.
func (t *Attempt) tryLocked(verb store.Ending) (before store.Ending) {
	before = t.tried
	if before == "" {
		t.tried = verb
	}
	return before
}

// conclude makes what became of the wish to end the process an error. It may be that of a
// Pool, or the cause of a context: methods of these may use the task, so none is called.
func (t *Attempt) concludeLocked(verb, before store.Ending, d settled) error {
	switch {
	case d.unknown:
		return d.err
	case d.err != nil:
		if before == "" && t.tried == verb {
			t.tried = "" // it was not carried out
		}
		return d.err
	case d.what == store.Gone && t.tried != verb:
		return ErrNotOwner
	case d.what == store.Gone && before == "" && !t.ended:
		t.session.engine.counts.Lost.Add(1)
		t.tried = ""
		return ErrNotOwner
	}
	t.tried, t.ended = verb, true
	return nil
}
