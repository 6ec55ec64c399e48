package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// An Attempt is one run of a task.
type Attempt struct {
	ID       string
	Payload  []byte // its current owner may change it
	Name     string // "" for a raw task
	Metadata store.Metadata
	Enqueued int64  // ms of Redis time; 0 if it isn't known
	Due      int64  // ms of Redis time when it was to start; 0 if that isn't known
	Error    string // of the previous attempt
	Token    int64
	Retries  int
	Crashes  int
	Failure  *store.Failure // how it failed; only in a failed queue

	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	digest  store.Digest  // of Payload when it was taken; zero while a large one hasn't been read
	size    int           // of Payload when it was taken
	keep    time.Duration // for how long its result is kept
	large   bool          // its payload has to be read before it begins
	began   int64         // ms of Redis time when it was started

	// The fields below are protected by Session.mu.
	away  bool         // a round in flight ends it
	tried store.Ending // the ending that Redis has carried out or may have
	ended bool
	risky bool // one more crash would fail it; a peer runs one such task at a time

	run   atomic.Pointer[run] // of a handler
	story *story              // nil if it isn't traced
}

// newAttempt returns the attempt of a started task. It may take a while.
func newAttempt(s *Session, a *store.Attempt) *Attempt {
	t := &Attempt{
		ID: a.ID, Name: a.Name, Error: a.Error, Token: a.Token, Retries: a.Retries, Crashes: a.Crashes,
		session: s, large: a.Large, size: aheadBytes, // a large one is the only one that's prefetched
	}
	if !t.large {
		t.describe(&a.Record)
	}
	t.ctx, t.cancel = context.WithCancelCause(s.base)
	if s.engine.Trace.Tasks {
		t.story = &story{taken: time.Now(), headers: maps.Clone(t.Metadata.Headers)}
	}
	return t
}

// describe fills in what a record says.
func (t *Attempt) describe(r *store.Record) {
	t.Payload, t.Metadata, t.Failure, t.size = r.Payload, r.Metadata, r.Failure, len(r.Payload)
	t.Enqueued, t.Due, t.keep = r.Enqueued, r.Due, r.Keep
	if r.Failure != nil { // the limits are for the handler that failed
		t.Metadata.Timeout, t.Metadata.MaxRetries = 0, 0
	}
	if t.digest = store.DigestIn(t.Name); t.digest == (store.Digest{}) {
		t.digest = store.SumOf(r.Payload)
	}
}

// isNamed reports whether a cancel of a digest applies to the task: tasks with keys are canceled by key.
func (t *Attempt) isNamed(d store.Digest) bool {
	return t.digest == d && (t.Name == "" || store.DigestIn(t.Name) == d)
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
			t.session.lose(t)
			return ErrNotOwner
		case err == nil:
			t.session.mu.Lock()
			t.describe(&task.Record)
			t.large = false
			t.session.mu.Unlock()
			if end, fails := t.session.fails(&store.Attempt{Record: task.Record}, t.began, 0); fails {
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

// endLocked ends the context. From then on, it gives the handler Grace to return.
func (t *Attempt) endLocked(cause error) {
	if t.ctx == nil || t.ctx.Err() != nil {
		return // it has ended already
	}
	t.cancel(cause)
	if a := t.run.Load(); a != nil && a.unwatch == nil && cause != context.Canceled {
		go a.watch()
	}
}

// assureLocked ends the context of a prefetched task if the lease may have expired.
func (t *Attempt) assureLocked(now time.Time) {
	if !t.session.lease.isSure(now) {
		t.endLocked(ErrLeaseExpired)
	}
}

// Context ends when work on the task should stop.
func (t *Attempt) Context() context.Context { return t.ctx }

// Draining is closed when the worker begins to leave.
func (t *Attempt) Draining() <-chan struct{} { return t.session.draining }

// End ends the attempt. You may repeat it if the reply was lost: if the worker is still a member
// and doesn't hold the attempt, only the worker itself can have ended it. So this call ended it,
// unless another one was tried before.
func (t *Attempt) End(ctx context.Context, e store.End) error {
	return retry(ctx, t.session.engine.CallTimeout, func() error { return t.end(ctx, e) })
}

func (t *Attempt) end(ctx context.Context, e store.End) error {
	s, end := t.session, &ending{End: t.endOf(e), done: make(chan settled, 1)}
	s.mu.Lock()
	before := t.tryLocked(e.Verb)
	t.leftLocked(len(e.Result), "")
	s.sayLocked(end)
	s.mu.Unlock()
	d := s.settle(ctx, end)
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.concludeLocked(e.Verb, before, d)
}

// endOf fills in what Redis needs to end the attempt.
func (t *Attempt) endOf(e store.End) store.End {
	e.Attempt, e.Token, e.Name, e.Size, e.Digest = t.ID, t.Token, t.Name, t.size, t.digest
	if e.Verb == store.Done {
		e.Delay = t.keep
	}
	if most := t.session.engine.MaxResult; len(e.Result) > most {
		t.session.engine.failures.oversized(t, len(e.Result), most)
		e.Result = nil
	}
	return e
}

// unbegun returns the ending of a task that no handler or caller has begun.
func (t *Attempt) unbegun(e store.End) *ending { return &ending{End: t.endOf(e), ours: true} }

// named prepends to attrs the attributes that identify the task in a log line: the attempt, and
// eight digits of the digest, which stay the same over retries. No log line shows payloads or keys.
func (t *Attempt) named(attrs ...any) []any {
	return append([]any{"queue", t.session.queue.id, "attempt_id", t.ID, "digest", t.short()}, attrs...)
}

// short returns eight digits of the digest, if it's known.
func (t *Attempt) short() string {
	all := t.digest.String()
	return all[:min(8, len(all))]
}

// An ending is a request to end an attempt.
type ending struct {
	store.End
	done   chan settled // gets one answer; nil if nobody waits for it
	ours   bool         // nobody waits: it's repeated until it's answered
	by     *run         // receives the answer; nil if an unbegun task goes back
	before store.Ending // the verb tried before
	held   bool         // the task was held when this was first sent
}

func (end *ending) isUnbegun() bool { return end.ours && end.by == nil }

// isUnfit reports whether the task fails without being begun.
func (end *ending) isUnfit() bool {
	if end.Verb != store.Fail || end.by == nil {
		return end.Verb == store.Fail && end.ours
	}
	_, is := end.by.unread.(*unfit)
	return is
}

func (end *ending) tellLocked(d settled) {
	if end.by != nil {
		end.by.storedLocked(end, d)
		return
	}
	select {
	case end.done <- d:
	default: // the caller has stopped waiting
	}
}

// A settled is what came of an ending.
type settled struct {
	what    store.Settled
	err     error
	unknown bool // it failed, but Redis may have carried it out
}

// tryLocked records the verb that will end the attempt, and returns the previous one. Call
// concludeLocked afterwards.
func (t *Attempt) tryLocked(verb store.Ending) (before store.Ending) {
	before = t.tried
	if before == "" {
		t.tried = verb
	}
	return before
}

// concludeLocked turns the result of an ending into an error. That error may come from a Pool or be
// the cause of a context, and its methods may use the task, so none is called.
func (t *Attempt) concludeLocked(verb, before store.Ending, d settled) error {
	switch {
	case d.unknown:
		return d.err
	case d.err != nil:
		if before == "" && t.tried == verb {
			t.tried = "" // Redis didn't carry it out
		}
		return d.err
	case d.what == store.Gone && t.tried != verb:
		return ErrNotOwner
	case d.what == store.Gone && before == "" && !t.ended:
		t.session.queue.counts.Lost.Add(1)
		t.tried = ""
		return ErrNotOwner
	}
	t.tried, t.ended = verb, true
	return nil
}

// lost returns the error of a task whose rounds ended with err.
func lost(err error) error { return &pair{ErrNotOwner, err} }

// A pair joins two errors. It formats lazily, because pairs are made under locks and a Pool's error
// is user code that may call the peer.
type pair struct{ first, second error }

func (p *pair) Error() string   { return p.first.Error() + ": " + p.second.Error() }
func (p *pair) Unwrap() []error { return []error{p.first, p.second} }

// isStored reports whether nothing more is to be done about an outcome, given what concludeLocked returned. In a pair
// with a Pool's error, ErrNotOwner comes first.
func isStored(err error) bool { return err == nil || errors.Is(err, ErrNotOwner) }
