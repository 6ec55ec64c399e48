// Package tracing calls a user's trace functions: in order, after the fact, on a goroutine of their own.
package tracing

import (
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/worqrtrace"
)

// A Caller is a Trace for the peer's own packages. All but ConnectionLost and Missed are never nil. They only put the
// call aside, so they run no user code, don't block, and may be called under any lock.
type Caller struct {
	worqrtrace.Trace
	Tasks    bool // the user set Started or Ended
	Enqueues bool // the user set Enqueued

	calls logs.Calls
}

// New returns a Caller for the functions of t, which may be nil. The log makes it call
// ConnectionLost and ConnectionRestored.
func New(t *worqrtrace.Trace, log *logs.Log) *Caller {
	if t == nil {
		t = &worqrtrace.Trace{}
	}
	c := &Caller{Tasks: t.Started != nil || t.Ended != nil, Enqueues: t.Enqueued != nil}
	c.Trace = worqrtrace.Trace{
		Enqueued: aside(c, t.Enqueued), Canceled: aside(c, t.Canceled), Changed: aside(c, t.Changed),
		Started: aside(c, t.Started), Ended: aside(c, t.Ended), Failed: aside(c, t.Failed), FailedDropped: aside(c, t.FailedDropped),
		Joined: aside(c, t.Joined), Left: aside(c, t.Left), TasksReturned: aside(c, t.TasksReturned),
		Evicted: aside(c, t.Evicted), WorkerFailed: aside(c, t.WorkerFailed),
		ConnectionRestored: aside(c, t.ConnectionRestored),
	}
	missed := t.Missed
	c.calls.Dropped = func(n int) {
		log.Warn("worqr: Trace functions are too slow; calls were dropped", "calls", n)
		if missed != nil {
			missed(n)
		}
	}
	c.calls.Panicked = func(v any) {
		log.Error("worqr: a Trace function panicked; that call was lost", "err", logs.Text(v))
	}
	if lost := t.ConnectionLost; lost != nil {
		log.Lost = func(err error) {
			l := worqrtrace.Connection{At: time.Now(), Server: log.Server}
			c.calls.Add(func() { // the error may be a Pool's, with methods that call the peer
				l.Error = logs.Text(logs.WithoutInput(err))
				lost(l)
			})
		}
	}
	log.Restored = func(away time.Duration) {
		c.ConnectionRestored(worqrtrace.Connection{At: time.Now(), Server: log.Server, Away: away})
	}
	return c
}

// aside returns a function that makes f be called later.
func aside[T any](c *Caller, f func(T)) func(T) {
	if f == nil {
		return func(T) {}
	}
	return func(v T) { c.calls.Add(func() { f(v) }) }
}

// Flush waits for the pending calls, but not for a function that blocks.
func (c *Caller) Flush() { c.calls.Flush() }
