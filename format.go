package worqr

import (
	"fmt"
	"log/slog"
	"time"
)

// Whatever is printed or logged of a task, with whatever verb, is without its payload,
// its key and its result: these are secret, and have to be asked for by name. But in an
// unexported field of something else fmt calls no methods. Of what is at work, nothing is
// printed that changes.

// Format implements fmt.Formatter.
func (p *Peer) Format(s fmt.State, _ rune) { show(s, "peer", p) }

// LogValue implements slog.LogValuer.
func (p *Peer) LogValue() slog.Value {
	if p == nil {
		return slog.Value{}
	}
	return slog.GroupValue(slog.String("id", p.WorkerID()))
}

// Format implements fmt.Formatter.
func (q Queue) Format(s fmt.State, _ rune) { show(s, "queue", q) }

// LogValue implements slog.LogValuer.
func (q Queue) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", q.name))
}

// Format implements fmt.Formatter.
func (t Task) Format(s fmt.State, _ rune) { show(s, "task", t) }

// LogValue implements slog.LogValuer.
func (t Task) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("attempt_id", t.AttemptID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}

// Format implements fmt.Formatter.
func (t RunningTask) Format(s fmt.State, _ rune) { show(s, "running task", t) }

// LogValue implements slog.LogValuer.
func (t RunningTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("attempt_id", t.AttemptID), slog.String("worker", t.WorkerID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.String("since", t.StartedAt.Format(time.RFC3339Nano)))
}

// Format implements fmt.Formatter.
func (t ScheduledTask) Format(s fmt.State, _ rune) { show(s, "scheduled task", t) }

// LogValue implements slog.LogValuer.
func (t ScheduledTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("at", t.DueAt.Format(time.RFC3339Nano)), slog.Int("bytes", len(t.Payload)),
		slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}

// Format implements fmt.Formatter.
func (t FailedTask) Format(s fmt.State, _ rune) { show(s, "failed task", t) }

// LogValue implements slog.LogValuer.
func (t FailedTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("id", t.ID), slog.String("kind", string(t.Kind)), slog.String("reason", t.Error),
		slog.Int("bytes", len(t.Payload)), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes),
		slog.String("worker", t.WorkerID), slog.String("at", t.FailedAt.Format(time.RFC3339Nano)))
}

// Format implements fmt.Formatter.
func (c CancelReport) Format(s fmt.State, _ rune) { show(s, "cancel", c) }

// LogValue implements slog.LogValuer.
func (c CancelReport) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("removed", c.Removed), slog.Int("stopped", c.Stopped), slog.Int("finished", c.Finished))
}

// Format implements fmt.Formatter.
func (e Event) Format(s fmt.State, _ rune) { show(s, "event", e) }

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("kind", string(e.Kind)), slog.String("queue", e.Queue), slog.String("worker", e.WorkerID),
		slog.Int("bytes", e.PayloadSize), slog.Int("count", e.Count))
}

// show prints what something is and its LogValue.
func show(s fmt.State, what string, of slog.LogValuer) {
	_, _ = fmt.Fprint(s, what, of.LogValue())
}
