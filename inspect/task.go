package inspect

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/causes"
	"github.com/worqr/worqr/internal/logs"
)

// A NamedState says where a named task waits.
type NamedState string

const (
	NamedReady     NamedState = "ready"     // it may start
	NamedScheduled NamedState = "scheduled" // it waits for its time
	NamedRisky     NamedState = "risky"     // one more crash would make it fail: a worker runs one such task at a time
	NamedBlocked   NamedState = "blocked"   // behind the running task with its key
)

// A NamedTask is a row of Queue.Named: a task from Add, or one from Enqueue that waits for a retry or is
// risky.
type NamedTask struct {
	Key        string // "" for a unique task, and for one from Enqueue
	State      NamedState
	Payload    []byte
	Headers    map[string]string
	DueAt      time.Time // by Redis's clock: when it may start, or could; zero if it never had a time
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	Expires    time.Time // zero: never
	Retries    int
	Crashes    int    // of a task from Add
	LastError  string // of the last attempt, at most 1,024 bytes; "" if there was none
}

// A RunningTask is a row of Queue.Running: a task that a worker holds, running or prefetched.
type RunningTask struct {
	AttemptID string // unique within the queue
	WorkerID  string
	Payload   []byte
	Key       string // "" if it has none
	Token     int64
	StartedAt time.Time // by the worker's clock

	Headers    map[string]string
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	LastError  string    // of the previous attempt; "" if there was none
	DueAt      time.Time // the time given in Add, or that of an occurrence; otherwise zero

	Attempt, Retries, Crashes int // as in worqr.Task
}

// A RecurringTask is a row of Queue.Recurring: a schedule as Redis has it.
type RecurringTask struct {
	Key        string
	Expression string // as in EveryOptions; "" if it wasn't given
	// Next is the time of the next occurrence; past if it's late, zero if there is none.
	Next time.Time
	// Times are the next ones of the schedule, up to ten, as far as Redis knows them.
	Times []time.Time
	// Current is the time of the occurrence that runs or waits for a retry; zero if none does.
	Current time.Time
	// Asserted reports whether a running peer has the schedule; otherwise it ends soon.
	Asserted bool
	// Ends says how the last occurrences ended, up to five, newest first.
	Ends []RecurringEnd
}

// A RecurringEnd says how an occurrence of a recurring task ended. A run of RunNow, or of Add under the key, counts if it
// has finished.
type RecurringEnd struct {
	Outcome string    // "finished", "failed", "crashed", "canceled", "skipped" or "lost"
	DueAt   time.Time // zero for a run that wasn't scheduled
	At      time.Time // when it ended
}

// Failed reports whether the occurrence failed, crashed too many workers, or was lost.
func (e RecurringEnd) Failed() bool {
	return e.Outcome == "failed" || e.Outcome == "crashed" || e.Outcome == "lost"
}

// Failures returns how many of Ends failed.
func (t RecurringTask) Failures() (n int) {
	for _, e := range t.Ends {
		if e.Failed() {
			n++
		}
	}
	return n
}

// Last returns how the last occurrence ended; the zero value if none has.
func (t RecurringTask) Last() RecurringEnd {
	if len(t.Ends) == 0 {
		return RecurringEnd{}
	}
	return t.Ends[0]
}

// A FailedTask is a row of Queue.Failed, and the Failure of a task that OnFailed handles.
type FailedTask struct {
	ID       string // for RequeueFailed and DeleteFailed; it has the escaped key, and a number
	Payload  []byte
	Key      string // "" if it had none
	Kind     FailureKind
	Error    string    // of the last attempt, at most 4,096 bytes
	Retries  int       // attempts that failed before the last
	Crashes  int       // workers that died holding it
	WorkerID string    // the worker that ran it last or, for FailureCrashed, moved it here
	FailedAt time.Time // by Redis's clock
	Attempts []Attempt // that failed, newest first; the last one's Error is cut

	Headers    map[string]string
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	DueAt      time.Time // the time given in Add, or that of an occurrence; otherwise zero
}

// An Attempt is one that failed, of a task that was retried or has failed for good. Redis keeps the last five, or those
// that fit into 1 KiB. Attempts that ended with the death of their workers aren't among them: Crashes counts these.
type Attempt struct {
	WorkerID  string
	StartedAt time.Time // when a handler or caller began; this and EndedAt are by the worker's clock
	EndedAt   time.Time
	Error     string // at most 200 bytes
}

// A FailureKind says why a task is in the failed queue.
type FailureKind string

const (
	// FailureError: its retries were used up, or worqr.Permanent or Task.Fail ended it.
	FailureError FailureKind = "failed"
	// FailureMalformed: its payload can't be decoded.
	FailureMalformed FailureKind = "malformed"
	// FailureExpired: its Expires came before it started.
	FailureExpired FailureKind = "expired"
	// FailureCrashed: too many workers died holding it.
	FailureCrashed FailureKind = "crashed"
)

func (t NamedTask) Format(s fmt.State, _ rune) { logs.Show(s, "named task", t) }

func (t NamedTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("state", string(t.State)), slog.String("at", t.DueAt.Format(time.RFC3339Nano)), slog.Int("bytes", len(t.Payload)),
		slog.Int("headers", len(t.Headers)), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes))
}

func (t RunningTask) Format(s fmt.State, _ rune) { logs.Show(s, "running task", t) }

func (t RunningTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("attempt_id", t.AttemptID), slog.String("worker", t.WorkerID), slog.Int("bytes", len(t.Payload)),
		slog.Int64("token", t.Token), slog.String("since", t.StartedAt.Format(time.RFC3339Nano)))
}

// Cause returns the first line of Error without what differs between errors with the same cause: ids, numbers,
// addresses, times and quoted text. Use it to group failed tasks.
func (t FailedTask) Cause() string { return causes.Of(t.Error) }

func (t FailedTask) Format(s fmt.State, _ rune) { logs.Show(s, "failed task", t) }

func (t FailedTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("number", t.ID[strings.LastIndexAny(t.ID, ":#")+1:]), slog.String("kind", string(t.Kind)), slog.String("error", t.Error),
		slog.Int("bytes", len(t.Payload)), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes),
		slog.String("worker", t.WorkerID), slog.String("at", t.FailedAt.Format(time.RFC3339Nano)))
}

// Gaps returns the shortest and the longest time between Times; zeros if there are fewer than two. The first of several
// doesn't count: it may be overdue, and then follows no other.
func (t RecurringTask) Gaps() (shortest, longest time.Duration) {
	for i := max(1, min(2, len(t.Times)-1)); i < len(t.Times); i++ {
		gap := t.Times[i].Sub(t.Times[i-1])
		if longest = max(longest, gap); shortest == 0 || gap < shortest {
			shortest = gap
		}
	}
	return shortest, longest
}

func (t RecurringTask) Format(s fmt.State, _ rune) { logs.Show(s, "recurring task", t) }

func (t RecurringTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("next", t.Next.Format(time.RFC3339Nano)), slog.Bool("asserted", t.Asserted), slog.String("last_outcome", t.Last().Outcome))
}
