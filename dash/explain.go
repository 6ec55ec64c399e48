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
func summary(e *inspect.Explanation, c *inspect.TaskCopy) string {
	text := strings.TrimSpace(where(c) + " " + printable(e.Why(c)))
	return cmp.Or(text, "About to start.")
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
