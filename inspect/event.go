package inspect

import (
	"fmt"
	"log/slog"

	"github.com/worqr/worqr/internal/logs"
)

// An EventKind says what happened.
type EventKind string

const (
	// EventSync comes first and after each gap: no event is missed until the next EventSync.
	EventSync EventKind = "sync"
	EventWork EventKind = "work" // Count tasks were enqueued, by one call or several
	// EventDone: a worker finished a task. Retries and failures publish nothing.
	EventDone EventKind = "done"
	// EventCancel: a payload was canceled. CancelKey publishes nothing.
	EventCancel EventKind = "cancel"
	EventDelete EventKind = "delete" // the queue was deleted
	EventLost   EventKind = "lost"   // this peer noticed that Redis lost writes
)

// An Event is what Peer.Events yields: something that happened on a queue. Of a payload or a result above 64 KiB,
// EventDone has only the size; of a payload above 1 KiB, EventCancel has only the size and the digest.
type Event struct {
	Kind     EventKind
	Queue    string // "" for EventSync
	WorkerID string // for EventDone
	Payload  []byte // for EventDone and EventCancel; nil if large
	Result   []byte // for EventDone; nil if large
	Count    int    // for EventWork
	Evidence string // for EventLost: what this peer noticed

	PayloadSize, ResultSize int    // in bytes
	PayloadDigest           string // for EventCancel of a large payload: SHA-1 in hex
}

func (e Event) Format(s fmt.State, _ rune) { logs.Show(s, "event", e) }

func (e Event) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("kind", string(e.Kind)), slog.String("queue", e.Queue), slog.String("worker", e.WorkerID),
		slog.Int("bytes", e.PayloadSize), slog.Int("count", e.Count), slog.String("evidence", e.Evidence))
}
