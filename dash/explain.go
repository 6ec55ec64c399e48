package dash

import (
	"cmp"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// A copied is a copy of a task, with its description.
type copied struct {
	inspect.TaskCopy
	Sentence string
}

// summary describes where a copy of a task is, why it doesn't run, and what to do. The facts below it have the
// rest.
func summary(c *inspect.TaskCopy) string {
	var all []string
	if text := where(c); text != "" {
		all = append(all, text)
	}
	for _, r := range c.Reasons {
		if text := why(r, c); text != "" {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return "About to start."
	}
	return strings.Join(all, " ")
}

// where adds to the name of the state.
func where(c *inspect.TaskCopy) string {
	switch c.State {
	case inspect.CopyScheduled:
		if d := time.Until(c.DueAt); d > 0 {
			return "Starts in " + span(d) + "."
		}
		return "Due " + span(time.Since(c.DueAt)) + " ago."
	case inspect.CopyBlocked:
		return "Starts once the running task with its key has ended."
	case inspect.CopyRunning:
		text := "On " + line(cmp.Or(c.WorkerName, c.WorkerID), 60)
		if !c.StartedAt.IsZero() {
			text += ", for " + span(time.Since(c.StartedAt))
		}
		return text + "."
	case inspect.CopyFailed:
		text := span(time.Since(c.FailedAt)) + " ago"
		switch {
		case c.Retries == 1:
			text += ", after a retry"
		case c.Retries > 1:
			text += ", after " + words.Grouped(c.Retries) + " retries"
		}
		return text + ". Requeue it to run it again."
	case inspect.CopyWaiting:
	}
	return ""
}

// why explains why a copy doesn't run, unless where has done so.
func why(r inspect.Reason, c *inspect.TaskCopy) string {
	switch r {
	case inspect.ReasonPaused:
		return "The queue is paused; resume it."
	case inspect.ReasonNoWorker:
		return "No worker serves this queue; start a peer that handles it."
	case inspect.ReasonBusy:
		return "All workers are busy."
	case inspect.ReasonBehind:
		return words.Counted(c.Before, "task") + " will start before it."
	case inspect.ReasonSuspect:
		return words.Counted(c.Crashes, "worker") + " died holding it. If one more crash would fail it, it waits until its peer runs no other such task."
	case inspect.ReasonLeaseExpired:
		if c.EvictAt.IsZero() {
			return "That worker's heartbeats have stopped."
		}
		return "That worker's heartbeats have stopped. Unless they resume, it's evicted " + due(c.EvictAt) + ", and the task returns to the front."
	case inspect.ReasonWithheld:
		return "No live peer has its schedule; start a peer that calls Every for it."
	case inspect.ReasonReturning:
		return "That worker is gone, and the task is being returned to the front."
	case inspect.ReasonStopping:
		return "It was canceled, and that worker is to stop it."
	case inspect.ReasonHeldUp:
		return "Tasks of a worker that is gone are being returned; nothing starts until then."
	case inspect.ReasonAside:
		return "The handler for failed tasks has failed, too."
	case inspect.ReasonNotDue, inspect.ReasonBlocked, inspect.ReasonFailed:
		return ""
	}
	return printable(string(r))
}
