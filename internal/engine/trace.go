package engine

import (
	"cmp"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A Trace receives what happens to tasks. Its functions may be nil. They are called under the lock
// of the queue, so that an outcome never comes before its start, and must only put the event aside.
type Trace struct {
	Started func(t *Attempt, began time.Time, waited time.Duration) // by a handler, or for the caller of Start
	Ended   func(t *Attempt, e *End)                                // follows each Started once
	Dropped func(queue, worker string, tasks int)                   // from a full failed queue
	// Failed reports tasks that failed without being started, on the queue or, if failed, its
	// failed queue.
	Failed func(queue, worker string, failed bool, kind store.Kind, tasks int)
}

// An End is how an attempt ended for this peer.
type End struct {
	At     time.Time
	Waited time.Duration // before it began
	Ran    time.Duration
	Verb   store.Ending // what was stored; "" if another worker took the task over, or it's unknown
	Kind   store.Kind   // for Fail
	Delay  time.Duration
	Result int    // bytes
	Error  string // why it didn't finish
}

// A story holds what is traced of an attempt. Session.mu protects it.
type story struct {
	taken  time.Time // when it arrived
	began  time.Time // zero until someone works on it
	left   time.Time // when its handler returned or its caller ended it; zero before that
	result int       // bytes
	text   string    // of the error
	end    *End

	headers map[string]string // copies that handlers can't change
}

// beganLocked records that a handler or caller has begun to work on the task.
func (t *Attempt) beganLocked(now time.Time) {
	h := t.story
	if h == nil || !h.began.IsZero() {
		return
	}
	h.began = now
	trace := t.session.engine.Trace
	if trace.Started != nil {
		trace.Started(t, now, now.Sub(h.taken))
	}
	if h.end != nil && trace.Ended != nil { // it was lost before the caller got it
		h.end.Waited = now.Sub(h.taken)
		trace.Ended(t, h.end)
	}
}

// leftLocked records that nobody works on the task anymore, and the result.
func (t *Attempt) leftLocked(result int, text string) {
	if h := t.story; h != nil && h.left.IsZero() {
		h.left, h.result, h.text = time.Now(), result, text
	}
}

// overLocked records that the attempt has ended for this peer, with its outcome, if known.
func (t *Attempt) overLocked(o *store.Outcome) {
	h := t.story
	if h == nil || h.end != nil {
		return
	}
	h.end = &End{At: time.Now(), Verb: o.Verb, Kind: o.Kind, Error: h.text}
	switch o.Verb {
	case store.Drop:
		h.end.Error = cmp.Or(h.text, ErrCanceled.Error())
	case store.Retry, store.Snooze:
		h.end.Delay = o.Delay
	case store.Finish:
		h.end.Result, h.end.Error = h.result, ""
	case store.Fail:
		h.end.Error = o.Reason
	}
	if h.began.IsZero() {
		return // beganLocked reports the outcome, if work on it begins
	}
	if h.left.IsZero() {
		h.left = h.end.At
	}
	h.end.Waited, h.end.Ran = h.began.Sub(h.taken), h.left.Sub(h.began)
	if trace := t.session.engine.Trace; trace.Ended != nil {
		trace.Ended(t, h.end)
	}
}

// settledLocked records Redis's answer to the attempt's ending.
func (t *Attempt) settledLocked(end *ending, what store.Settled) {
	switch what {
	case store.Gone:
		t.lostLocked(ErrNotOwner)
	case store.Canceled:
		t.overLocked(&store.Outcome{Verb: store.Drop})
	default:
		t.overLocked(&end.Outcome)
	}
}

// lostLocked records that the worker no longer holds the task, and that it's unknown whether its
// end was stored. why is an error of this package.
func (t *Attempt) lostLocked(why error) {
	if h := t.story; h != nil && h.end == nil {
		h.text = why.Error()
		t.overLocked(&store.Outcome{})
	}
}

// returnedLocked records that the task went back to the front when its worker left.
func (t *Attempt) returnedLocked(why error) {
	if h := t.story; h != nil && h.end == nil {
		h.text = cmp.Or(h.text, why.Error())
		t.overLocked(&store.Outcome{Verb: store.Stop})
	}
}

// given returns tasks to the caller that asked for them, once their payloads may change.
func (s *Session) given(tasks []*Attempt) []*Attempt {
	for _, t := range tasks {
		t.wait()
	}
	if s.engine.stories {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		for _, t := range tasks {
			t.beganLocked(now)
		}
	}
	return tasks
}

func (t *Attempt) Worker() string { return t.session.member.Worker }

// Size returns the original size of the payload, in bytes.
func (t *Attempt) Size() int { return t.size }

// Digest returns the beginning of the payload's digest, as in log lines, or "".
func (t *Attempt) Digest() string {
	digest := t.sum()
	return digest[:min(len(digest), 8)]
}

// Traced returns the original headers, if the attempt is traced.
func (t *Attempt) Traced() (headers map[string]string) {
	if t.story != nil {
		headers = t.story.headers
	}
	return headers
}

func (t *Attempt) Queue() string { return t.session.queue.name }
