package tracing

import (
	"cmp"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/worqrtrace"
)

// A Story is what a Trace gets of an attempt: its start, and then its end. If its end is known first, it's told after
// the start. A nil Story tells nothing. Its methods may not be called concurrently.
type Story struct {
	to     *Caller
	taken  time.Time       // when the task arrived
	start  worqrtrace.Task // zero until someone works on the task
	left   time.Time       // when nobody did anymore; zero before that
	result int             // bytes
	text   string          // of the handler's error
	end    *End            // nil until the attempt has ended for this peer
}

// An End is how an attempt has ended for this peer.
type End struct {
	Outcome worqrtrace.Outcome
	Kind    inspect.FailureKind
	Why     string        // of Failed and Lost, in place of the handler's error; of others, if that's unknown
	Delay   time.Duration // of Retried and Snoozed
}

// Story begins the story of an attempt. It returns nil if nobody wants it.
func (c *Caller) Story() *Story {
	if !c.Tasks {
		return nil
	}
	return &Story{to: c, taken: time.Now()}
}

// Began tells that a handler or caller has begun to work on the task. Later calls do nothing.
func (s *Story) Began(task worqrtrace.Task) {
	if s == nil || !s.start.At.IsZero() {
		return
	}
	task.At = time.Now()
	task.Waited = task.At.Sub(s.taken)
	s.start = task
	s.to.Started(task)
	if s.end != nil { // it was lost before the caller got it
		s.tellEnd()
	}
}

// Left records that nobody works on the task anymore, with the size of the result and the text of the error.
func (s *Story) Left(result int, text string) {
	if s != nil && s.left.IsZero() {
		s.left, s.result, s.text = time.Now(), result, text
	}
}

// Over records that the attempt has ended for this peer. Later calls do nothing.
func (s *Story) Over(end End) {
	if s == nil || s.end != nil {
		return
	}
	if s.end = &end; !s.start.At.IsZero() {
		s.tellEnd()
	}
}

func (s *Story) tellEnd() {
	e, end := s.start, s.end
	e.At, e.Outcome = time.Now(), end.Outcome
	e.Ran = cmp.Or(s.left, e.At).Sub(s.start.At)
	switch e.Error = cmp.Or(s.text, end.Why); end.Outcome {
	case worqrtrace.Finished:
		e.ResultSize, e.Error = s.result, ""
	case worqrtrace.Retried, worqrtrace.Snoozed:
		e.Next = e.At.Add(end.Delay)
	case worqrtrace.Failed:
		e.Kind, e.Error = end.Kind, end.Why
	case worqrtrace.Lost:
		e.Error = end.Why
	}
	s.to.Ended(e)
}
