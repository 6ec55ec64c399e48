package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A recurringRow is a schedule as Redis has it.
type recurringRow struct {
	Queue string
	inspect.RecurringTask
}

// state describes a recurring task, except its next time.
func (r recurringRow) state() string {
	switch {
	case !r.Asserted:
		return "no peer has it"
	case !r.Current.IsZero():
		return "running"
	}
	return "-"
}

// often says how often it recurs: its expression or, without one, by its next times.
func (r recurringRow) often() string {
	switch shortest, longest := r.Gaps(); {
	case r.Expression != "":
		return brief(r.Expression, 60)
	case longest == 0:
		return "-"
	case shortest == longest:
		return "every " + gap(longest)
	default:
		return "every " + gap(shortest) + " to " + gap(longest)
	}
}

// gap formats the time between two occurrences.
func gap(d time.Duration) string {
	switch day := 24 * time.Hour; {
	case d < time.Minute:
		return d.String()
	case d > day && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return whole(d)
}

type recurringCommand struct {
	onQueues
	some
}

func (c *recurringCommand) Run(ctx context.Context, con *console, f *fleet, names queueNames) error {
	rows := ofEach(ctx, f, names, func(q *worqr.Queue) iter.Seq2[recurringRow, error] {
		return turned(q.Recurring(ctx), func(t inspect.RecurringTask) recurringRow { return recurringRow{q.Name(), t} })
	})
	n, err := printRows(con.out, c.form, "QUEUE KEY RECURS NEXT LAST ENDED STATE", first(c.Limit, rows), func(r recurringRow) []string {
		last := "-"
		if r.Last().Outcome != "" {
			last = printable(r.Last().Outcome)
		}
		if n := r.Failures(); n > 0 {
			last += fmt.Sprintf(" (%d of %d failed)", n, len(r.Ends))
		}
		return []string{printable(r.Queue), keyText(r.Key), r.often(), nextMoment(r.Next), last, sinceMoment(r.Last().At), r.state()}
	})
	if err == nil && n == 0 && !c.JSON {
		con.say("there are no recurring tasks; peers register them with Queue.Every")
	}
	return err
}

type runNowCommand struct {
	onQueue
	Key string `arg:"" help:"Key of the recurring task, as \"worqr recurring\" shows it."`
}

func (c *runNowCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	row := map[string]any{"queue": c.Queue, "key": c.Key}
	found, err := q.RunNow(ctx, c.Key)
	if err != nil {
		return c.cutOff(con.out, err, 0, "no further run is known to be due", row)
	}
	if !found {
		return nothing(fmt.Sprintf("no recurring task has this key; list them with: %s", c.command("recurring QUEUE", string(c.Queue))))
	}
	row["due"] = true
	return c.tell(con.out, row, "it runs once more, as soon as a worker of the queue is free")
}
