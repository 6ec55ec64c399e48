package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/past"
	"github.com/worqr/worqr/internal/prefetch"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
)

// An Attempt is one run of a task.
type Attempt struct {
	ID      string
	Name    string    // "" for a raw task
	Error   past.Text // of the previous attempt
	Token   int64
	Retries int
	Crashes int

	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	began   int64 // ms of Redis time when it was started
	story   *tracing.Story

	// Of a large task, fetch sets the fields below under Session.mu; who runs fetch then reads them without.
	Payload  []byte         // its current owner may change it
	Metadata store.Metadata // nobody changes it
	Enqueued int64          // ms of Redis time; 0 if it isn't known
	Due      int64          // ms of Redis time when it was to start; 0 if that isn't known
	Failure  *store.Failure // how it failed; only in a failed queue
	digest   store.Digest   // of Payload when it was taken; zero while a large one hasn't been read
	size     int            // of Payload when it was taken
	keep     time.Duration  // for how long its result is kept
	large    bool           // its payload has to be read before it begins
	expires  int64          // ms of Redis time; 0: never

	// The fields below are protected by Session.mu.
	away  bool         // a round in flight ends it
	ended store.Ending // how Redis has ended it; "" if it hasn't
	risky bool         // one more crash would fail it; a peer runs one such task at a time

	run atomic.Pointer[run] // of a handler
}

// newAttempt returns the attempt of a task that was started at a time. It may take a while.
func newAttempt(s *Session, a *store.Attempt, now int64) *Attempt {
	t := &Attempt{
		ID: a.ID, Name: a.Name, Error: a.Error, Token: a.Token, Retries: a.Retries, Crashes: a.Crashes,
		session: s, began: now, large: a.Large, size: prefetch.Bytes, // a large one is the only one that's prefetched
	}
	if !t.large {
		t.describe(&a.Record)
	}
	t.ctx, t.cancel = context.WithCancelCause(s.base)
	t.story = s.engine.Trace.Story()
	return t
}

// describe fills in what a record says.
func (t *Attempt) describe(r *store.Record) {
	t.Payload, t.Metadata, t.Failure, t.size = r.Payload, r.Metadata, r.Failure, len(r.Payload)
	t.Enqueued, t.Due, t.expires, t.keep = r.Enqueued, r.Due, r.Expires, r.Keep
	if r.Failure != nil { // the limits are for the handler that failed
		t.Metadata.Timeout, t.Metadata.MaxRetries = 0, 0
	}
	if t.digest = store.DigestIn(t.Name); t.digest == (store.Digest{}) {
		t.digest = store.SumOf(r.Payload)
	}
}

// isNamed reports whether a cancel of a digest applies to the task: tasks with keys are canceled by key. No payload has the
// zero digest; a task that isn't read yet does.
func (t *Attempt) isNamed(d store.Digest) bool {
	return d != store.Digest{} && t.digest == d && (t.Name == "" || store.DigestIn(t.Name) == d)
}

// options returns the queue's options, overridden by the task's.
func (t *Attempt) options(o *Options) *Options {
	if t.Metadata.Timeout == 0 && t.Metadata.MaxRetries == 0 {
		return o
	}
	own := *o
	own.Timeout, own.MaxRetries = cmp.Or(t.Metadata.Timeout, o.Timeout), cmp.Or(t.Metadata.MaxRetries, o.MaxRetries)
	return &own
}

// fails returns how a task ends that must not be handled: it has expired, has crashed too often, or is too
// large. In a failed queue, no task expires.
func (t *Attempt) fails(crashes int) (e store.End, fails bool) {
	e.Verb = store.Fail
	switch most := t.session.engine.MaxPayload; {
	case t.Failure == nil && !t.session.queue.isFailed() && t.expires > 0 && t.expires <= t.began:
		e.Kind, e.Reason = store.Expired, "its time was over before it started"
	case crashes > 0 && t.Crashes >= crashes:
		e.Kind, e.Reason = store.Crashed, fmt.Sprint(t.Crashes, " workers died holding it")
	case !t.large && t.size > most:
		e.Kind, e.Reason = store.Malformed, fmt.Sprintf("the payload has %d bytes; the limit is %d", t.size, most)
	default:
		return e, false
	}
	return e, true
}

// An unfit is the error of a task that fails without being begun. Of a large one, that's known once it's read.
type unfit struct{ store.End }

func (e *unfit) Error() string { return e.Reason }

// fetch reads the payload of a large task. It repeats that until Redis answers or ctx ends.
func (t *Attempt) fetch(ctx context.Context) error {
	for retry := (&store.Backoff{}); t.large; {
		task, err := t.session.view.Fetch(ctx, t.ID)
		if q := t.session.queue; ctx.Err() == nil && t.ctx.Err() == nil {
			q.unread.Note(q.engine.Log, "can't read large tasks; retrying", err, "queue", q.id)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case t.ctx.Err() != nil:
			return context.Cause(t.ctx)
		case err == nil && task == nil: // another worker may have it
			t.session.mu.Lock()
			t.interruptLocked(ErrEvicted)
			t.session.mu.Unlock()
			return ErrNotOwner
		case err == nil:
			t.session.mu.Lock()
			t.describe(&task.Record)
			t.large = false
			t.session.mu.Unlock()
			if end, fails := t.fails(0); fails {
				return &unfit{end}
			}
			return nil
		}
		select {
		case <-time.After(retry.Next()):
		case <-ctx.Done():
		case <-t.ctx.Done():
		}
	}
	return nil
}

// interruptLocked ends the context. From then on, it gives the handler Grace to return.
func (t *Attempt) interruptLocked(cause error) {
	if t.ctx == nil || t.ctx.Err() != nil {
		return // it has ended already
	}
	t.cancel(cause)
	if a := t.run.Load(); a != nil && cause != context.Canceled {
		a.call.Expire()
	}
}

// assureLocked ends the context of a prefetched task if the lease may have expired.
func (t *Attempt) assureLocked(now time.Time) {
	if !t.session.lease.isSure(now) {
		t.interruptLocked(ErrLeaseExpired)
	}
}

// Context ends when work on the task should stop.
func (t *Attempt) Context() context.Context { return t.ctx }

// Draining is closed when the queue begins to drain, or the worker to leave it.
func (t *Attempt) Draining() <-chan struct{} { return t.session.draining }

// endOf fills in what Redis needs to end the attempt; ran is false if no handler or caller has begun it.
func (t *Attempt) endOf(e store.End, ran bool) store.End {
	e.Attempt, e.Token, e.Name, e.Size, e.Digest = t.ID, t.Token, t.Name, t.size, t.digest
	var began time.Time // by a handler
	if r := t.run.Load(); r != nil {
		began = r.began
	}
	e.Follow(t.Error, began, ran)
	if e.Verb == store.Done {
		e.Delay = t.keep
	}
	if most := t.session.engine.MaxResult; len(e.Result) > most {
		t.session.engine.failures.Warn("worqr: a result is too large and isn't stored; store it elsewhere, and return a reference",
			t.session.queue.id, 1, t.named("bytes", len(e.Result), "MaxResult", most)...)
		e.Result = nil
	}
	e.Result = bytes.Clone(e.Result) // the handler's own may change before it's sent, or sent again
	return e
}

// unbegun returns the ending of a task that no handler or caller has begun.
func (t *Attempt) unbegun(e store.End) *ending {
	return &ending{End: t.endOf(e, false), task: t, unfit: e.Verb == store.Fail}
}

// named prepends to attrs the attributes that identify the task in a log line: the attempt, eight digits of the digest,
// which stay the same over retries, and what Labels choose. No log line shows payloads.
func (t *Attempt) named(attrs ...any) []any {
	ids := []any{"queue", t.session.queue.id, "attempt_id", t.ID, "digest", t.short()}
	return append(t.session.engine.Labels.Add(ids, t.key(), t.Metadata.Headers), attrs...)
}

// short returns eight digits of the digest, if it's known.
func (t *Attempt) short() string {
	all := t.digest.String()
	return all[:min(8, len(all))]
}

// key returns the key of the task, also in a failed queue; "" if it has none.
func (t *Attempt) key() string {
	if t.Failure != nil {
		return store.KeyOf(t.Failure.Back)
	}
	return store.KeyOf(t.Name)
}

// An ending is a request to end an attempt. A caller waits for its answer. One of a handler's run, or of a task that
// wasn't begun, is repeated until it's answered. Session.mu protects held and refused; the rest doesn't change.
type ending struct {
	store.End
	task    *Attempt
	done    chan error // gets one answer; nil if no caller waits for it
	until   time.Time  // for how long a caller doesn't learn that Redis refuses it for a reason that passes
	by      *run       // nil if it isn't the end of a handler's run
	unfit   bool       // the task fails without being begun
	held    bool       // the task was held when this was sent, not counting repeats
	refused bool       // Redis has refused it for another reason
}

func (end *ending) isUnbegun() bool { return end.done == nil && end.by == nil }

// tellLocked answers the request. Only the first answer counts.
func (end *ending) tellLocked(err error) {
	if end.by != nil {
		end.by.queue.storedLocked()
	}
	select {
	case end.done <- err:
	default:
	}
}

// lost returns the error of a task whose session has ended with err.
func lost(err error) error { return &pair{ErrNotOwner, err} }

// A pair joins two errors. It formats lazily, because pairs are made under locks and a Pool's error
// is user code that may call the peer.
type pair struct{ first, second error }

func (p *pair) Error() string   { return p.first.Error() + ": " + p.second.Error() }
func (p *pair) Unwrap() []error { return []error{p.first, p.second} }
