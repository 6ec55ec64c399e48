package worqr

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/worqr/worqr/internal/store"
)

// A start is what a Task keeps to itself. It is behind a pointer so that a Task can be
// printed by value, without its payload: a method with such a receiver copies no lock.
type start struct {
	rounds *rounds
	ctx    context.Context
	cancel context.CancelCauseFunc
	identity
	size    int                  // of Payload as it was taken; the handler may change that
	entry   string               // of its key; "" if it has none
	covered []store.Cancellation // cancels of it of which it's still to be said that it runs; protected by rounds.mu
	plain   bool                 // it is of the list
	risky   bool                 // one more death would be its last; a peer runs one such at a time
	round   int64                // the last one that was to end it, or 0; protected by rounds.mu

	attempt atomic.Pointer[attempt] // of a handler

	mu    sync.Mutex   // protects the fields below
	tried store.Ending // the end that was, or may have been, carried out
	ended bool         // it was
}

// newTask makes the task of what was started. It may take a while; identify is to follow
// where the digest is not known.
func newTask(r *rounds, id string, s store.Start) *Task {
	t := &Task{
		AttemptID: id, Queue: r.queue.name, Payload: s.Payload, Token: s.Token, Retries: s.Retries, Crashes: s.Crashes,
		start: &start{rounds: r, size: max(len(s.Payload), s.Bytes), plain: s.Entry == ""},
	}
	switch {
	case s.Bytes > 0:
		t.never = true // else it would go back under the digest of nothing
	case len(s.Payload) > store.Large:
		t.known = make(chan struct{})
	default:
		t.digest = hashOf(s.Payload)
	}
	if key := store.KeyOf(s.Entry); key != "" {
		t.Key, t.entry = key, s.Entry
	}
	if s.Failure != nil {
		t.Failure = failure(s.Failure)
		t.Key = t.Failure.Key
	}
	t.ctx, t.cancel = context.WithCancelCause(r.base)
	return t
}

// end ends the context, and has the handler be watched until it returns.
// rounds.mu is held.
func (t *Task) end(cause error) {
	if t.ctx == nil || t.ctx.Err() != nil {
		return // it has
	}
	t.cancel(cause)
	if a := t.attempt.Load(); a != nil && a.unwatch == nil && cause != context.Canceled {
		go a.watch()
	}
}

// assure ends the context of a task that was taken ahead when it is not certain to be
// ours any more.
func (t *Task) assure() {
	t.rounds.mu.Lock()
	defer t.rounds.mu.Unlock()
	if !t.rounds.sure() {
		t.end(ErrLeaseExpired)
	}
}

// settle ends the process. An end whose reply was lost may be repeated: if the
// worker is still a member and does not hold the process, nobody but itself
// can have ended it. So it was this end, if no other was tried before.
func (t *Task) settle(ctx context.Context, o store.Outcome) error {
	before := t.try(o.Verb)
	return t.conclude(o.Verb, before, t.rounds.settle(ctx, t, o))
}

// outcome completes what ends the process.
func (t *Task) outcome(o store.Outcome) store.Outcome {
	o.Process, o.Token, o.Plain, o.Size = t.AttemptID, t.Token, t.plain, t.size
	if t.size > store.Large {
		o.Digest = t.sum()
	}
	if o.Verb == store.Finish { // else a handler that was disowned may still write it
		o.Result = t.Result
		o.Encode(t.rounds.queue.peer.opts.MaxResult)
	}
	return o
}

// sum is the digest, or "" where it is not known.
func (t *Task) sum() string {
	if t.isKnown() && !t.never {
		return t.digest.String()
	}
	return ""
}

// try notes that the process is to end by a verb, and returns the one by which it
// was to end before; conclude follows.
func (t *Task) try(verb store.Ending) (before store.Ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.tried
	if before == "" {
		t.tried = verb
	}
	return before
}

// conclude makes what became of the wish to end the process an error. It may be that of a
// Pool, or the cause of a context: methods of these may use the task, so none is called.
func (t *Task) conclude(verb, before store.Ending, d settled) error {
	t.mu.Lock()
	defer t.mu.Unlock()
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
		t.rounds.queue.peer.counts.lost.Add(1)
		t.tried = ""
		return ErrNotOwner
	}
	t.tried, t.ended = verb, true
	return nil
}
