// Package invoke calls handlers, which may panic, end their goroutine, or not return when their context ends.
package invoke

import (
	"bytes"
	"context"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/verdict"
)

// Limits are those of a call.
type Limits struct {
	Timeout time.Duration // after which the context ends with Late; 0: none
	Late    error
	Grace   time.Duration // how long the handler has to return once its context has ended
}

// A Call is one call of a handler. Its methods may be called concurrently, but Do only once.
type Call struct {
	ctx    context.Context
	cancel context.CancelFunc // nil without a Timeout
	limits Limits
	late   func(cause error)
	label  string // of the goroutine

	mu       sync.Mutex  // protects the fields below
	returned bool        // the handler has returned
	givenUp  bool        // the handler hasn't returned in time
	grace    *time.Timer // calls late; nil while its context hasn't ended
}

// New prepares a call of a handler. Its Timeout begins. late is called, on a goroutine of its own, if the handler hasn't
// returned within Grace of the end of its context. If ctx can end, call Expire then.
func New(ctx context.Context, l Limits, label string, late func(cause error)) *Call {
	c := &Call{ctx: ctx, limits: l, label: label, late: late}
	if l.Timeout > 0 {
		c.ctx, c.cancel = context.WithTimeoutCause(ctx, l.Timeout, l.Late)
	}
	return c
}

// Context returns the context for the handler.
func (c *Call) Context() context.Context { return c.ctx }

// Expire records that ctx has ended. With a Timeout, Do notices that by itself.
func (c *Call) Expire() {
	if c.cancel == nil {
		go c.expire()
	}
}

func (c *Call) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.returned && c.grace == nil {
		c.grace = time.AfterFunc(c.limits.Grace, func() { c.late(context.Cause(c.ctx)) })
	}
}

// Do calls the handler, and then judge with its error: that of a panic is a *verdict.Panic. After that, it calls done,
// even if judge ends the goroutine. isLate reports that the handler was given up.
func (c *Call) Do(handler func() error, judge func(err error), done func(err error, isLate bool)) {
	err := verdict.ErrGoexit
	unwatch := func() bool { return true }
	if c.cancel != nil {
		unwatch = context.AfterFunc(c.ctx, c.expire)
	}
	defer func() {
		unwatch()
		done(err, !c.hasReturned())
	}()
	defer func() { // even if the handler ends the goroutine
		if v := recover(); v != nil {
			err = verdict.Panicked(v)
		}
		judge(err)
	}()
	err = handler()
}

// hasReturned records that the handler has returned. It returns false if it was given up before.
func (c *Call) hasReturned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = true
	if c.grace != nil {
		c.grace.Stop()
	}
	return !c.givenUp
}

// GiveUp records that nobody waits for the handler anymore. It returns false if it has returned, or was given up before.
func (c *Call) GiveUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned || c.givenUp {
		return false
	}
	c.givenUp = true
	return true
}

// Free ends the context, and frees its timer.
func (c *Call) Free() {
	if c.cancel != nil {
		c.cancel()
	}
}

// labelKey marks the goroutines of handlers in profiles. With it, the stack of a handler that doesn't return can be
// found.
const labelKey = "worqr.handler"

var labeled atomic.Int64 // goroutines of all peers of the program

// Label marks the current goroutine, which calls handlers, and returns the label.
func Label(ctx context.Context, of string) string {
	label := of + "/" + strconv.FormatInt(labeled.Add(1), 10)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(labelKey, label)))
	return label
}

// Stack returns the stack of the call's goroutine while it calls the handler. It briefly stops the program.
func (c *Call) Stack() string {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // it writes to memory
	for block := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(block, `"`+c.label+`"`) && strings.Contains(block, "(*Call).Do") {
			return block
		}
	}
	return ""
}
