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

// A some is the flag that limits a list.
type some struct {
	Limit int `short:"n" placeholder:"N" help:"Print at most N; by default all."`
}

// A taskRow is a task that waits.
type taskRow struct {
	State      string    `json:"state"`
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

// listed is the state of a task on the queue's list. The others are an inspect.NamedState.
const listed = "listed"

type tasksCommand struct {
	onQueue
	some
	State string `placeholder:"STATE" enum:",listed,ready,scheduled,risky,blocked" default:"" help:"Only tasks in this state: listed, ready, scheduled, risky or blocked."`
}

// Run prints a line for each waiting task.
func (c *tasksCommand) Run(ctx context.Context, con *console) error {
	f, q, err := c.toKnown(ctx, c.Queue)
	if err != nil {
		return err
	}
	defer f.close()
	n, err := printRows(con.out, c.form, "STATE WAITED DUE RETRIES KEY HEADERS PAYLOAD ERROR", first(c.Limit, c.rows(ctx, q)), func(r taskRow) []string {
		return []string{
			r.State, sinceMoment(r.EnqueuedAt), nextMoment(r.DueAt), strconv.Itoa(r.Retries), keyText(r.Key), headerText(r.all),
			brief(r.Payload, shownPayload), brief(r.LastError, shownPayload),
		}
	})
	if err == nil && n == 0 {
		con.say("no such task is waiting")
	}
	return err
}

// rows yields the tasks on the list, and then the named ones.
func (c *tasksCommand) rows(ctx context.Context, q *worqr.Queue) iter.Seq2[taskRow, error] {
	list := turned(q.Tasks(ctx), func(payload []byte) taskRow { return taskRow{State: listed, Payload: blob(payload)} })
	if c.State == listed {
		return list
	}
	var states []inspect.NamedState // none is all
	if c.State != "" {
		states = append(states, inspect.NamedState(c.State))
	}
	named := turned(q.Named(ctx, states...), func(t inspect.NamedTask) taskRow {
		return taskRow{
			string(t.State), blob(t.Key), t.DueAt.UTC(), t.EnqueuedAt.UTC(), t.Expires.UTC(), t.Retries, t.Crashes, blob(t.LastError),
			headerRowOf(t.Headers), blob(t.Payload),
		}
	})
	if c.State != "" {
		return named
	}
	return chained(list, named)
}
