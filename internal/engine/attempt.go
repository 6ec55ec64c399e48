package engine

import (
	"cmp"
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// An Attempt is one start of a task.
type Attempt struct {
	ID      string // a UUIDv7
	Payload []byte // raw; its current owner may change it
	Entry   string // its key in the schedule or among added tasks; "" for the list
	Card    store.Card
	Due     int64  // ms of Redis time when it was due; 0 if that isn't known
	Error   string // of the previous attempt
	Token   int64
	Retries int
	Crashes int
	Failure *store.FailedTask // how it failed; only in a failed queue

	session *Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	digest  hash                 // of Payload when it was taken
	byKey   bool                 // cancels of the payload don't apply to it
	size    int                  // of Payload when it was taken; the handler may change Payload
	card    int                  // bytes of the card when it was taken
	covered []store.Cancellation // cancels that cover it, until Redis knows that it still runs; protected by Session.mu
	round   int64                // the last round that would end it, or 0; protected by Session.mu
	tried   store.Ending         // the ending that Redis has carried out or may have; protected by Session.mu
	ended   bool                 // protected by Session.mu
	plain   bool                 // it comes from the list
	added   bool                 // it comes from the added tasks
	risky   bool                 // one more crash would fail it; a peer runs one such task at a time

	run   atomic.Pointer[run] // of a handler
	story *story              // nil if it isn't traced
}

// newAttempt returns the attempt of a started task. It may take a while.
func newAttempt(s *Session, id string, start store.Start) *Attempt {
	t := &Attempt{
		ID: id, Payload: start.Payload, Entry: start.Entry, Token: start.Token, Retries: start.Retries, Crashes: start.Crashes, Failure: start.Failure,
		Due: start.Due, Error: start.Error, session: s, size: len(start.Payload), card: len(start.Card), plain: start.Entry == "", added: start.Added,
	}
	switch {
	case start.Failure != nil: // its limits are for the handler that failed
		t.Card = store.CardOf(start.Failure.From, start.Card)
		t.Card.Timeout, t.Card.MaxRetries = 0, 0
	case start.Entry != "" && !start.ByKey: // a key of Put, even if it looks like that of an added task
		t.Card, _ = store.ParseCard(start.Card)
	case start.Entry != "":
		t.Card = store.CardOf(start.Entry, start.Card)
	}
	t.digest, t.byKey = hashOf(start.Payload), start.ByKey
	t.ctx, t.cancel = context.WithCancelCause(s.base)
	if s.engine.Trace.Tasks {
		t.story = &story{taken: time.Now(), headers: maps.Clone(t.Card.Headers)}
	}
	return t
}

// options returns the queue's options, overridden by the task's.
func (t *Attempt) options(o *Options) *Options {
	if t.Card.Timeout == 0 && t.Card.MaxRetries == 0 {
		return o
	}
	own := *o
	own.Timeout, own.MaxRetries = cmp.Or(t.Card.Timeout, o.Timeout), cmp.Or(t.Card.MaxRetries, o.MaxRetries)
	return &own
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
	if !t.session.sureLocked(now) {
		t.endLocked(ErrLeaseExpired)
	}
}

// Context ends when work on the task should stop.
func (t *Attempt) Context() context.Context { return t.ctx }

// Draining is closed when the worker begins to leave.
func (t *Attempt) Draining() <-chan struct{} { return t.session.draining }

// End ends the process. You may repeat it if the reply was lost: if the worker is still a member
// and doesn't hold the process, only the worker itself can have ended it. So this call ended it,
// unless another one was tried before.
func (t *Attempt) End(ctx context.Context, o store.Outcome) error {
	return retry(ctx, t.session.engine.CallTimeout, func() error { return t.end(ctx, o) })
}

func (t *Attempt) end(ctx context.Context, o store.Outcome) error {
	s, end := t.session, &ending{Outcome: t.outcome(o), done: make(chan settled, 1)}
	s.mu.Lock()
	before := t.tryLocked(o.Verb)
	t.leftLocked(len(o.Result), "")
	s.sayLocked(end)
	s.mu.Unlock()
	d := s.settle(ctx, end)
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.concludeLocked(o.Verb, before, d)
}

// outcome fills in what Redis needs to end the process.
func (t *Attempt) outcome(o store.Outcome) store.Outcome {
	o.Process, o.Token, o.Plain, o.Added, o.Size, o.Card = t.ID, t.Token, t.plain, t.added, t.size, t.card
	if o.Verb == store.Fail {
		o.Due = t.Due
	}
	if o.Verb == store.Finish {
		o.Limit(t.session.engine.MaxResult)
	}
	return o
}

// named prepends to attrs the attributes that identify the task in a log line: the attempt, and
// eight digits of the digest, which stay the same over retries. No log line shows payloads or keys.
func (t *Attempt) named(attrs ...any) []any {
	return append([]any{"queue", t.session.queue.id, "attempt_id", t.ID, "digest", t.digest.String()[:8]}, attrs...)
}

// tryLocked records the verb that will end the process, and returns the previous one. Call
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
