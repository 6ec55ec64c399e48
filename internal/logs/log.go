// Package logs writes a peer's log on a separate goroutine, within limits.
package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"
)

// A Log writes a peer's lines to the Logger of its options, in order, on a
// goroutine that runs only while there are lines. Logging therefore runs no user code
// and never blocks: it is safe under any lock, and a Logger that is slow, blocks,
// panics or calls the peer delays nothing but the log.
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

	lines  Relay[slog.Record]
	server server
}

// Limits for the lines that wait for a slow Logger.
const (
	maxLines     = 10_000
	maxLineBytes = 8 << 20
)

// New returns a Log that writes to a Logger. If the Logger panics, the line is lost, and one
// message goes to stderr.
func New(to *slog.Logger) *Log {
	return &Log{lines: Relay[slog.Record]{
		Pass: func(r slog.Record) {
			if h := to.Handler(); h.Enabled(context.Background(), r.Level) {
				_ = h.Handle(context.Background(), plain(r)) // like slog.Logger
			}
		},
		Most: maxLines, Bytes: maxLineBytes, Weigh: weigh,
		Left: func(missing int) slog.Record {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "worqr: the Logger is too slow; lines are missing", 0)
			r.Add("lines", missing)
			return r
		},
		Broken: func(v any) {
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
	r := slog.NewRecord(time.Now(), level, msg, pc[0])
	r.Add(attrs...)
	l.lines.Put(r)
}

// weigh returns the approximate size of a line in bytes.
func weigh(r slog.Record) int {
	size := 500
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindString {
			size += len(a.Value.String())
		}
		return true
	})
	return size
}

// Flush waits until all lines are written, unless the Logger blocks.
func (l *Log) Flush() { l.lines.Flush() }

// plain returns a line with its errors replaced by their text: not every Logger survives methods
// that panic.
func plain(r slog.Record) slog.Record {
	p := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(Text(WithoutInput(err)))
		}
		p.AddAttrs(a)
		return true
	})
	return p
}
