package peertest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// Said is a log that sends each line on a channel.
type Said chan string

func (s Said) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

// A Journal is a log that tests read.
type Journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

// Lines returns the lines that contain a text.
func (j *Journal) Lines(with string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buf.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A Gate blocks the first caller that logs a line for which stop is true, until the gate is opened.
// Peers use it as BeforeLog, or in their Logger.
type Gate struct {
	slog.Handler
	stop   func(line string) bool
	Lines  atomic.Int64  // how many lines stop was true for
	Halted chan struct{} // closed when a caller is blocked
	Open   chan struct{}
}

func NewGate(stop func(line string) bool) *Gate {
	return &Gate{Handler: slog.DiscardHandler, stop: stop, Halted: make(chan struct{}), Open: make(chan struct{})}
}

func (g *Gate) Before(msg string, attrs []any) {
	if g.stop(fmt.Sprint(append([]any{msg}, attrs...)...)) && g.Lines.Add(1) == 1 {
		close(g.Halted)
		<-g.Open
	}
}

func (g *Gate) Enabled(context.Context, slog.Level) bool { return true }

func (g *Gate) Handle(_ context.Context, r slog.Record) error {
	g.Before(r.Message, nil)
	return nil
}
