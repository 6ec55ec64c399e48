package inspect

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/words"
)

// A CopyState says where a copy of a task is.
type CopyState string

const (
	CopyWaiting   CopyState = "waiting" // on the list, or added
	CopyScheduled CopyState = "scheduled"
	CopyBlocked   CopyState = "blocked" // behind the running task with its key
	CopyRunning   CopyState = "running" // held by a worker
	CopyFailed    CopyState = "failed"
)

// A Reason says why a copy of a task doesn't run.
type Reason string

const (
	ReasonPaused       Reason = "paused"
	ReasonNoWorker     Reason = "no-worker"
	ReasonBusy         Reason = "busy" // no worker is idle
	ReasonNotDue       Reason = "not-due"
	ReasonWithheld     Reason = "withheld"      // it recurs, and no live peer has its schedule
	ReasonBehind       Reason = "behind"        // other tasks start before it
	ReasonBlocked      Reason = "blocked"       // a task with its key is running
	ReasonSuspect      Reason = "suspect"       // workers died holding it; if one more crash would fail it, it waits to run alone
	ReasonLeaseExpired Reason = "lease-expired" // its worker's heartbeats have stopped
	ReasonReturning    Reason = "returning"     // its worker is gone, and it's being returned
	ReasonStopping     Reason = "stopping"      // it was canceled while it ran, and its worker is to stop it
	ReasonHeldUp       Reason = "held-up"       // tasks of a worker that is gone are being returned first
	ReasonFailed       Reason = "failed"
	ReasonAside        Reason = "aside" // its handler in the failed queue has failed, too
)

// A TaskCopy is one copy of a task, in an Explanation.
type TaskCopy struct {
	State      CopyState
	Key        string    // "" if it has none
	EnqueuedAt time.Time // by Redis's clock; zero if it isn't known
	Reasons    []Reason  // why it doesn't run; none if it does or is about to
	Before     int       // tasks that start before it, as far as known
	DueAt      time.Time // of a scheduled or blocked copy

	Retries  int
	Crashes  int       // workers that died holding it
	Error    string    // of the last attempt
	Attempts []Attempt // that failed, newest first; the last one's Error is cut

	// For running copies.
	AttemptID  string
	Token      int64
	StartedAt  time.Time // by the worker's clock
	WorkerID   string    // that holds it, or ran it last
	WorkerName string    // "" if it isn't registered anymore; then Host and PID are missing, too
	Host       string
	PID        int
	EvictAt    time.Time // about when; zero unless the worker's lease has expired

	// For failed copies.
	Kind     FailureKind
	FailedAt time.Time
}

// An Explanation is what Queue.Explain returns: where a task is and why it doesn't run.
type Explanation struct {
	Queue       string
	At          time.Time // by Redis's clock
	NoSuchQueue bool
	Paused      bool
	Workers     int // serving the queue
	IdleWorkers int // with free slots
	NotSearched int // waiting tasks that weren't searched
	Copies      []TaskCopy
	Recurs      *RecurringTask // what recurs under the key, for a query by key; nil if nothing does
	Prefix      string         // the prefix that was searched
	ByPayload   bool           // it was searched by payload, which finds no tasks with keys
}

// String returns the Sentences, one on each line.
func (e *Explanation) String() string { return strings.Join(e.Sentences(), "\n") }

// Sentences returns a description of each copy, and then one of what recurs; or one that says why there is none of
// both. They have neither the payload nor the key.
func (e *Explanation) Sentences() []string {
	if len(e.Copies) == 0 && e.Recurs == nil {
		return []string{e.nothing()}
	}
	all := make([]string, len(e.Copies))
	for i := range e.Copies {
		all[i] = e.sentence(&e.Copies[i])
	}
	if e.Recurs != nil {
		all = append(all, e.Recurs.sentence(e.Queue))
	}
	return all
}

func (e *Explanation) nothing() string {
	switch {
	case e.NotSearched > 0:
		return fmt.Sprintf("No copy of the task was found on %q. It may be further back: %s searched.", e.Queue, words.Tasks(e.NotSearched, "wasn't", "weren't"))
	case e.NoSuchQueue:
		return fmt.Sprintf("No queue %q exists under the prefix %q. Check the name, the prefix and the URL of Redis.", e.Queue, e.Prefix)
	}
	says := fmt.Sprintf("No copy of the task is on %q: it was never enqueued, or it's done, canceled or deleted.", e.Queue)
	if e.ByPayload {
		says += " Tasks with a key are found by that, or by a header."
	}
	return says
}

func (e *Explanation) sentence(c *TaskCopy) string {
	var s strings.Builder
	counts := fmt.Sprintf("retries: %d, crashes: %d", c.Retries, c.Crashes)
	last := func() {
		if c.State != CopyScheduled && c.Retries+c.Crashes > 0 {
			fmt.Fprintf(&s, " So far: %s.", counts)
		}
		if c.Error != "" {
			fmt.Fprintf(&s, " The last attempt failed: %q.", c.Error)
		}
	}
	switch c.State {
	case CopyWaiting:
		fmt.Fprintf(&s, "Waiting on %q.", e.Queue)
		last()
	case CopyScheduled:
		fmt.Fprintf(&s, "Scheduled on %q for %s (%s).", e.Queue, words.Clock(c.DueAt), counts)
		last()
	case CopyBlocked:
		fmt.Fprintf(&s, "Waiting on %q until the task that runs under its key has ended.", e.Queue)
	case CopyRunning:
		s.WriteString("Running on " + c.worker())
		if !c.StartedAt.IsZero() {
			fmt.Fprintf(&s, " since %s", words.Clock(c.StartedAt))
		}
		if c.AttemptID != "" {
			fmt.Fprintf(&s, ", as attempt %s with token %d", words.Shown(c.AttemptID), c.Token)
		}
		s.WriteString(".")
		last()
	case CopyFailed:
		fmt.Fprintf(&s, "Failed on %q at %s (%s, %s): %q.", e.Queue, words.Clock(c.FailedAt), words.Shown(string(c.Kind)), counts, c.Error)
		if c.WorkerID != "" {
			fmt.Fprintf(&s, " It was last on %s.", c.worker())
		}
		s.WriteString(" Requeue it to run it again.")
	}
	if slices.Contains(c.Reasons, ReasonNotDue) {
		fmt.Fprintf(&s, " Due in %v.", c.DueAt.Sub(e.At).Round(time.Millisecond))
	}
	if why := e.Why(c); why != "" {
		s.WriteString(" " + why)
	} else if len(c.Reasons) == 0 && (c.State == CopyWaiting || c.State == CopyScheduled) {
		s.WriteString(" It's about to start.")
	}
	return s.String()
}

// worker names the worker of a copy.
func (c *TaskCopy) worker() string {
	if c.WorkerName == "" {
		return "worker " + words.Shown(c.WorkerID)
	}
	return fmt.Sprintf("worker %s (%s, pid %d on %s)", words.Shown(c.WorkerID), words.Shown(c.WorkerName), c.PID, words.Shown(c.Host))
}

// Why returns why one of the copies doesn't run, in sentences; "" if State and DueAt say it.
func (e *Explanation) Why(c *TaskCopy) string {
	var all []string
	for _, reason := range c.Reasons {
		switch reason {
		case ReasonPaused:
			all = append(all, "The queue is paused; resume it.")
		case ReasonNoWorker:
			all = append(all, "No worker serves this queue; start the service that handles it.")
		case ReasonBusy:
			all = append(all, fmt.Sprintf("All workers are busy (%d).", e.Workers))
		case ReasonWithheld:
			all = append(all, "It's withheld because no live peer has its schedule; start a peer that calls Every for it.")
		case ReasonBehind:
			all = append(all, words.Tasks(c.Before, "starts", "start")+" before it.")
		case ReasonSuspect:
			all = append(all, words.Counted(c.Crashes, "worker")+" died holding it. If one more crash would fail it, it waits until its peer runs no other such task.")
		case ReasonLeaseExpired:
			all = append(all, "The worker's heartbeats have stopped.")
			if !c.EvictAt.IsZero() {
				all = append(all, fmt.Sprintf("Unless they resume, it's evicted in about %v, and the task returns to the front.", max(0, c.EvictAt.Sub(e.At)).Round(100*time.Millisecond)))
			}
		case ReasonReturning:
			all = append(all, "The worker is gone, and the task is being returned to the front.")
		case ReasonStopping:
			all = append(all, "It was canceled, and its worker is to stop it.")
		case ReasonHeldUp:
			all = append(all, "Tasks of a worker that is gone are being returned; nothing starts until then.")
		case ReasonAside:
			all = append(all, "OnFailed returned an error, so it stays.")
		}
	}
	return strings.Join(all, " ")
}

// became describes how an occurrence ended, as part of a sentence.
func became(outcome string) string {
	switch outcome {
	case "canceled", "skipped", "lost":
		return "was " + outcome
	}
	return words.Shown(outcome) // finished, failed or crashed
}

func (r *RecurringTask) sentence(queue string) string {
	says := fmt.Sprintf("It recurs on %q", queue)
	if r.Expression != "" {
		says += fmt.Sprintf(" (%s)", words.Shown(r.Expression))
	}
	switch last := r.Last(); {
	case !r.Current.IsZero():
		says += fmt.Sprintf("; the occurrence of %s hasn't ended", words.Clock(r.Current))
	case last.Outcome != "" && last.DueAt.IsZero():
		says += fmt.Sprintf("; the last run wasn't scheduled, and %s", became(last.Outcome))
	case last.Outcome != "":
		says += fmt.Sprintf("; the last occurrence, due %s, %s", words.Clock(last.DueAt), became(last.Outcome))
	}
	if says += ". "; r.Next.IsZero() {
		says += "No next run is planned."
	} else {
		says += fmt.Sprintf("The next time is %s.", words.Clock(r.Next))
	}
	if !r.Asserted {
		says += " No live peer has its schedule, so it's withheld; start a peer that calls Every for it."
	}
	return says
}

// Format prints the sentences.
func (e Explanation) Format(s fmt.State, _ rune) { _, _ = fmt.Fprint(s, e.String()) }

func (e Explanation) LogValue() slog.Value { return slog.StringValue(e.String()) }

func (c TaskCopy) Format(s fmt.State, _ rune) { logs.Show(s, "copy of a task", c) }

func (c TaskCopy) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("state", string(c.State)), slog.Any("reasons", c.Reasons), slog.String("worker", c.WorkerID),
		slog.String("attempt_id", c.AttemptID), slog.Int("retries", c.Retries), slog.Int("crashes", c.Crashes))
}
