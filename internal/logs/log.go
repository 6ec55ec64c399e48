// Package logs writes a peer's log on its own goroutine, within limits.
package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"
)

// A Log writes a peer's lines to the Logger of its options, in order, on a goroutine that runs only
// while there are lines. Most lines come from heartbeats, rounds and connections, which must not
// wait. So a Logger that is slow, blocks, panics or calls the peer delays nothing but the log.
type Log struct {
	Before func(msg string, attrs []any) // a hook for tests; otherwise nil

	Server   string               // the address of Redis, without a password; "" if unknown
	Away     func(err error) bool // reports whether an error means that Redis doesn't answer; nil: no error does
	Answered func(err error) bool // reports whether an error is a reply of Redis; nil: no error is
	Refused  func(err error) bool // reports whether Redis refuses the login; nil: it never does

	// Lost and Restored, if not nil, are called when Redis stops answering, and when it answers
	// again. They only put the event aside.
	Lost     func(err error)
	Restored func(away time.Duration)

	to     slog.Handler
	lines  Calls
	server server
}

// New returns a Log that writes to a Logger. If the Logger panics, the line is lost, and one
// message goes to stderr.
func New(to *slog.Logger) *Log {
	return &Log{to: to.Handler(), lines: Calls{
		Dropped: func(n int) { to.Warn("worqr: the Logger is too slow; lines are missing", "lines", n) },
		Panicked: func(v any) {
			_, _ = fmt.Fprintln(os.Stderr, "worqr: the Logger panics, so lines are missing:", Text(v)) // there's no other place for it
		},
	}}
}

// named prepends the server to the attributes, if it is known.
func (l *Log) named(attrs ...any) []any {
	if l.Server == "" {
		return attrs
	}
	return append([]any{"server", l.Server}, attrs...)
}

// Debug, Info, Warn and Error log a line. They neither block nor call the Logger.
func (l *Log) Debug(msg string, attrs ...any) { l.put(slog.LevelDebug, msg, attrs) }
func (l *Log) Info(msg string, attrs ...any)  { l.put(slog.LevelInfo, msg, attrs) }
func (l *Log) Warn(msg string, attrs ...any)  { l.put(slog.LevelWarn, msg, attrs) }
func (l *Log) Error(msg string, attrs ...any) { l.put(slog.LevelError, msg, attrs) }

func (l *Log) put(level slog.Level, msg string, attrs []any) {
	if l.Before != nil {
		l.Before(msg, attrs)
	}
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	r, attrs := slog.NewRecord(time.Now(), level, msg, pc[0]), slices.Clone(attrs)
	l.lines.Add(func() { // like slog.Logger, but with the text of errors: not every Logger survives methods that panic
		if !l.to.Enabled(context.Background(), level) {
			return
		}
		for i, a := range attrs {
			if err, ok := a.(error); ok {
				attrs[i] = Text(WithoutInput(err))
			}
		}
		r.Add(attrs...)
		_ = l.to.Handle(context.Background(), r)
	})
}

// Flush waits until all lines are written, unless the Logger blocks.
func (l *Log) Flush() { l.lines.Flush() }
