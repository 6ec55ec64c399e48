package main

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// shownPayload is how many characters of a payload a table shows.
const shownPayload = 60

// A runningRow is a task that a worker holds.
type runningRow struct {
	Queue      string    `json:"queue"`
	Attempt    blob      `json:"attempt"`
	Worker     blob      `json:"worker"`
	Key        blob      `json:"key,omitempty"`
	Token      int64     `json:"token"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	EnqueuedAt time.Time `json:"enqueued_at,omitzero"`
	DueAt      time.Time `json:"due_at,omitzero"`
	Number     int       `json:"attempt_number"`
	Retries    int       `json:"retries"`
	Crashes    int       `json:"crashes"`
	LastError  blob      `json:"last_error,omitempty"`
	headerRow
	Payload blob `json:"payload"`
}

type runningCommand struct {
	onQueues
	Older time.Duration `placeholder:"DURATION" help:"Show only tasks that have run for longer, such as 10m."`
}

// Run prints a line for each task that a worker holds.
func (c *runningCommand) Run(ctx context.Context, con *console) error {
	f, names, err := c.toQueues(ctx, c.Queues)
	if err != nil {
		return err
	}
	defer f.close()
	rows := ofEach(ctx, f, names, func(q *worqr.Queue) iter.Seq2[runningRow, error] {
		return turned(q.Running(ctx), func(t inspect.RunningTask) runningRow {
			return runningRow{q.Name(), blob(t.AttemptID), blob(t.WorkerID), blob(t.Key), t.Token, t.StartedAt.UTC(), t.EnqueuedAt.UTC(), t.DueAt.UTC(), t.Attempt, t.Retries, t.Crashes, blob(t.LastError), headerRowOf(t.Headers), blob(t.Payload)}
		})
	})
	if c.Older > 0 {
		before := time.Now().Add(-c.Older)
		rows = kept(rows, func(r runningRow) bool { return !r.StartedAt.IsZero() && r.StartedAt.Before(before) })
	}
	n, err := printRows(con.out, c.form, "QUEUE FOR WORKER ATTEMPT KEY PAYLOAD", rows, func(r runningRow) []string {
		return []string{printable(r.Queue), sinceMoment(r.StartedAt), printable(r.Worker), printable(r.Attempt), keyText(r.Key), brief(r.Payload, shownPayload)}
	})
	switch {
	case err != nil || n > 0:
	case c.Older > 0:
		con.say("no task has been running for longer than %s", age(c.Older))
	default:
		con.say("no task is running")
	}
	return toldIf(n > 0 && c.Older > 0, err)
}

// keyText returns a key as a table shows it.
func keyText(key blob) string {
	if key == "" {
		return "-"
	}
	return brief(string(key), 40)
}

// A scheduledRow is a scheduled task.
type scheduledRow struct {
	Key        blob      `json:"key,omitempty"`
	DueAt      time.Time `json:"due_at,omitzero"`
	EnqueuedAt time.Time `json:"enqueued_at,omitzero"`
	Expires    time.Time `json:"expires,omitzero"`
	Retries    int       `json:"retries"`
	Crashes    int       `json:"crashes"`
	LastError  blob      `json:"last_error,omitempty"`
	headerRow
	Payload blob `json:"payload"`
}

// A some is the flag that limits a list.
type some struct {
	Limit int `short:"n" placeholder:"N" help:"Print at most N; by default all."`
}

type scheduledCommand struct {
	onQueue
	some
}

// Run prints a line for each scheduled task.
func (c *scheduledCommand) Run(ctx context.Context, con *console) error {
	f, q, err := c.toKnown(ctx, c.Queue)
	if err != nil {
		return err
	}
	defer f.close()
	rows := turned(q.Scheduled(ctx), func(t inspect.ScheduledTask) scheduledRow {
		return scheduledRow{blob(t.Key), t.DueAt.UTC(), t.EnqueuedAt.UTC(), t.Expires.UTC(), t.Retries, t.Crashes, blob(t.LastError), headerRowOf(t.Headers), blob(t.Payload)}
	})
	_, err = printRows(con.out, c.form, "DUE RETRIES KEY PAYLOAD ERROR", first(c.Limit, rows), func(r scheduledRow) []string {
		return []string{nextMoment(r.DueAt), strconv.Itoa(r.Retries), keyText(r.Key), brief(r.Payload, shownPayload), brief(r.LastError, shownPayload)}
	})
	return err
}

// A waitingRow is a task that can start when its turn comes.
type waitingRow struct {
	Key        blob      `json:"key,omitempty"`
	EnqueuedAt time.Time `json:"enqueued_at,omitzero"`
	Expires    time.Time `json:"expires,omitzero"`
	headerRow
	Payload blob `json:"payload"`
}

type waitingCommand struct {
	onQueue
	some
	Added bool `help:"Show only tasks from Add without Key, At or Unique that wait for their first start, with keys and headers."`
}

// Run prints a line for each waiting task.
func (c *waitingCommand) Run(ctx context.Context, con *console) error {
	f, q, err := c.toKnown(ctx, c.Queue)
	if err != nil {
		return err
	}
	defer f.close()
	if c.Added {
		added := turned(q.Added(ctx), func(t inspect.AddedTask) waitingRow {
			return waitingRow{blob(t.Key), t.EnqueuedAt.UTC(), t.Expires.UTC(), headerRowOf(t.Headers), blob(t.Payload)}
		})
		_, err = printRows(con.out, c.form, "KEY WAITED HEADERS PAYLOAD", first(c.Limit, added), func(r waitingRow) []string {
			return []string{keyText(r.Key), sinceMoment(r.EnqueuedAt), headerText(r.all), brief(r.Payload, shownPayload)}
		})
		return err
	}
	rows := turned(q.Tasks(ctx), func(payload []byte) waitingRow { return waitingRow{Payload: blob(payload)} })
	_, err = printRows(con.out, c.form, "PAYLOAD", first(c.Limit, rows), func(r waitingRow) []string {
		return []string{brief(r.Payload, 2*shownPayload)}
	})
	return err
}
