package main

import (
	"cmp"
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
	Queue      string
	WorkerName string // "" if it isn't registered
	inspect.RunningTask
}

type runningCommand struct {
	onQueues
	Older period `placeholder:"DURATION" help:"Show only tasks that have run for longer, such as 10m."`
}

func (c *runningCommand) Run(ctx context.Context, con *console, f *fleet, names queueNames) error {
	workers := workerNames(ctx, f)
	rows := ofEach(ctx, f, names, func(q *worqr.Queue) iter.Seq2[runningRow, error] {
		return turned(q.Running(ctx), func(t inspect.RunningTask) runningRow {
			return runningRow{q.Name(), workers[t.WorkerID], t}
		})
	})
	if c.Older > 0 {
		before := time.Now().Add(-time.Duration(c.Older))
		rows = kept(rows, func(r runningRow) bool { return !r.StartedAt.IsZero() && r.StartedAt.Before(before) })
	}
	n, err := printRows(con.out, c.form, "QUEUE FOR RETRIES CRASHES WORKER ATTEMPT KEY PAYLOAD ERROR", rows, func(r runningRow) []string {
		return []string{
			printable(r.Queue), sinceMoment(r.StartedAt), strconv.Itoa(r.Retries), strconv.Itoa(r.Crashes), printable(cmp.Or(r.WorkerName, r.WorkerID)),
			printable(r.AttemptID), keyText(r.Key), brief(string(r.Payload), shownPayload), brief(r.LastError, shownPayload),
		}
	})
	switch {
	case err != nil || n > 0:
	case c.Older > 0:
		con.say("no task has been running for longer than %s", age(time.Duration(c.Older)))
	default:
		con.say("no task is running")
	}
	return toldIf(n > 0 && c.Older > 0, err)
}

// workerNames returns the names of the registered workers by id, as far as they can be read: a row without one shows
// the id.
func workerNames(ctx context.Context, f *fleet) map[string]string {
	names := map[string]string{}
	for w, err := range f.Workers(ctx) {
		if err != nil {
			break
		}
		names[w.ID] = w.Name
	}
	return names
}

func keyText(key string) string {
	if key == "" {
		return "-"
	}
	return brief(key, 40)
}

// A some is the flag that limits a list.
type some struct {
	Limit uint `short:"n" placeholder:"N" help:"Print at most N; by default all."`
}

// listed is the state of a task on the queue's list.
const listed inspect.NamedState = "listed"

type tasksCommand struct {
	onQueue
	some
	State inspect.NamedState `placeholder:"STATE" enum:",listed,ready,scheduled,risky,blocked" default:"" help:"Only tasks in this state: listed, ready, scheduled, risky or blocked."`
}

func (c *tasksCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	n, err := printRows(con.out, c.form, "STATE WAITED DUE RETRIES KEY HEADERS PAYLOAD ERROR", first(c.Limit, c.rows(ctx, q)), func(r inspect.NamedTask) []string {
		return []string{
			string(r.State), sinceMoment(r.EnqueuedAt), nextMoment(r.DueAt), strconv.Itoa(r.Retries), keyText(r.Key), headerText(r.Headers),
			brief(string(r.Payload), shownPayload), brief(r.LastError, shownPayload),
		}
	})
	if err == nil && n == 0 {
		con.say("no such task is waiting")
	}
	return err
}

// rows yields the tasks on the list, and then the named ones.
func (c *tasksCommand) rows(ctx context.Context, q *worqr.Queue) iter.Seq2[inspect.NamedTask, error] {
	list := turned(q.Tasks(ctx), func(payload []byte) inspect.NamedTask { return inspect.NamedTask{State: listed, Payload: payload} })
	if c.State == listed {
		return list
	}
	if c.State != "" {
		return q.Named(ctx, c.State)
	}
	return func(yield func(inspect.NamedTask, error) bool) {
		for row, err := range list {
			if !yield(row, err) || err != nil {
				return
			}
		}
		q.Named(ctx)(yield)
	}
}
