// Package logs writes what a peer has to say: on a goroutine of its own, and within limits.
package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"
)

// A Log writes a peer's lines to the Logger of its options, in order, on a
// goroutine that runs only while there are lines. Logging therefore runs no user code
// and never blocks: it is safe under any lock, and a Logger that is slow, blocks,
// panics or calls the peer delays nothing but the log.
type Log struct {
	Before func(msg string, attrs []any) // a place where tests stop; else nil

	Server   string               // where Redis is, without a password; "" if that is not known
	Away     func(err error) bool // whether an error says that Redis doesn't answer; nil: none does
	Answered func(err error) bool // whether an error is a reply of Redis; nil: none is

	to     *slog.Logger
	server server

	mu      sync.Mutex // protects the fields below; nothing else is locked under it
	lines   []slog.Record
	size    int           // bytes of lines, about
	dropped int           // lines for which there was no room
	written chan struct{} // closed when all lines are written; nil when there are none
	broken  bool          // the Logger panicked, and stderr says so
}

// Bounds of the lines that wait for a slow Logger.
const (
	maxLines     = 10_000
	maxLineBytes = 8 << 20
)

// New returns a Log that writes to a Logger.
func New(to *slog.Logger) *Log { return &Log{to: to} }

// named puts the server in front of the attributes, if it is known.
func (l *Log) named(attrs ...any) []any {
	if l.Server == "" {
		return attrs
	}
	return append([]any{"server", l.Server}, attrs...)
}

// patience is how long a peer that stops waits for its last lines to be written.
const patience = time.Second

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
	l.mu.Lock()
	defer l.mu.Unlock()
	size := weigh(r)
	if len(l.lines) >= maxLines || l.size+size > maxLineBytes {
		l.dropped++
		return
	}
	l.lines = append(l.lines, r)
	l.size += size
	if l.written == nil {
		l.written = make(chan struct{})
		go l.write()
	}
}

// weigh is the size of a line in bytes, about.
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

// write hands all lines to the Logger. It survives a Logger that panics or ends the
// goroutine: that line is lost, the others are not.
func (l *Log) write() {
	over := false
	defer func() {
		if over {
			return
		}
		if v := recover(); v != nil {
			l.mu.Lock()
			broken := l.broken
			l.broken = true
			l.mu.Unlock()
			if !broken {
				_, _ = fmt.Fprintln(os.Stderr, "worqr: the Logger panics, so lines are missing:", Text(v)) // there is no other place
			}
		}
		go l.write()
	}()
	for r := range l.next {
		if h := l.to.Handler(); h.Enabled(context.Background(), r.Level) {
			_ = h.Handle(context.Background(), plain(r)) // as slog.Logger does
		}
	}
	over = true
}

// next yields the lines until there are none.
func (l *Log) next(yield func(slog.Record) bool) {
	for {
		l.mu.Lock()
		var r slog.Record
		switch {
		case len(l.lines) > 0:
			r = l.lines[0]
			l.lines[0] = slog.Record{}
			l.lines = l.lines[1:]
			l.size -= weigh(r)
		case l.dropped > 0:
			r = slog.NewRecord(time.Now(), slog.LevelWarn, "worqr: the Logger is too slow; lines are missing", 0)
			r.Add("lines", l.dropped)
			l.dropped = 0
		default:
			l.lines = nil
			close(l.written)
			l.written = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if !yield(r) {
			return
		}
	}
}

// Flush waits until all lines are written, but not for a Logger that blocks.
func (l *Log) Flush() {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(patience):
	}
}

// plain is a line whose errors are replaced by their text: not every Logger bears
// methods that panic.
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
