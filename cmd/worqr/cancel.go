package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/words"
)

type cancelCommand struct {
	onQueue
	Payload *string       `arg:"" optional:"" help:"Payload of the task; all its copies without a key are canceled. Without it or --key, it's read from standard input, byte for byte."`
	Key     *string       `placeholder:"KEY" help:"Cancel the tasks under this key, whatever their payload. Tasks with keys are found only this way."`
	Wait    time.Duration `default:"30s" help:"How long to wait for running copies to stop; the default is 30s, and 0s doesn't wait."`
}

func (c *cancelCommand) Validate() error {
	if c.Payload != nil && c.Key != nil {
		return usage("expected a payload or --key, not both")
	}
	if c.Wait < 0 {
		return usage("--wait may not be negative")
	}
	return nil
}

func (c *cancelCommand) Run(ctx context.Context, con *console, q *worqr.Queue) (err error) {
	var report *worqr.CancelReport
	if c.Key != nil {
		report, err = q.CancelKey(ctx, *c.Key)
	} else {
		var payload []byte
		if payload, err = con.payload(ctx, c.Payload); err != nil {
			return err
		}
		report, err = q.Cancel(ctx, payload)
	}
	if err != nil {
		return c.cutOff(con.out, err, 0, "nothing is known to be canceled", map[string]any{})
	}
	waiting, done := context.WithTimeout(ctx, max(c.Wait, time.Nanosecond))
	defer done()
	waited := report.Wait(waiting)
	late := errors.Is(waited, context.DeadlineExceeded) && waiting.Err() != nil && ctx.Err() == nil
	text := fmt.Sprintf("%d removed, %d running", report.Removed, report.Running)
	row := map[string]any{"removed": report.Removed, "running": report.Running, "still_running": waited != nil}
	none := report.Removed+report.Running == 0
	switch {
	case waited != nil && !late:
		return c.cutOff(con.out, waited, 1, text+" and told to stop", row)
	case none && c.Key != nil:
		text = "nothing found"
	case waited == nil && report.Running == 1:
		text += ": it has ended"
	case waited == nil && report.Running > 1:
		text += ": they have ended"
	}
	if err := c.tell(con.out, row, "%s", text); err != nil {
		return err
	}
	if late && c.Wait > 0 {
		con.say("a copy is still running after %s; to find its worker: worqr explain", age(c.Wait))
	}
	if none && c.Key == nil {
		con.say("no task without a key has this payload, or it stopped at once; to cancel by key, use: %s", c.command("cancel --key KEY QUEUE", string(c.Queue)))
	}
	return toldIf(late && c.Wait > 0, nil)
}

// A keysCommand changes the waiting tasks of keys.
type keysCommand struct {
	onQueue
	Keys []string `arg:"" name:"key" help:"Keys of the waiting tasks."`

	done   string // what it counts, such as "removed"
	change func(q *worqr.Queue, ctx context.Context, key string) (changed bool, err error)
}

func (c *keysCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	n := 0
	for _, key := range c.Keys {
		changed, err := c.change(q, ctx, key)
		if err != nil {
			return c.cutOff(con.out, err, n, words.Counted(n, "task")+" "+c.done, map[string]any{c.done: n})
		}
		if changed {
			n++
		}
	}
	return toldIf(n < len(c.Keys), c.tell(con.out, map[string]int{c.done: n}, "%s %s", words.Counted(n, "task"), c.done))
}

type drainCommand struct {
	onNamed
	Timeout period `placeholder:"DURATION" help:"How long to wait; by default until Ctrl-C."`
}

func (c *drainCommand) Run(ctx context.Context, con *console, f *fleet) error {
	var paused queueNames
	failed := c.forEach(ctx, con, f, (*worqr.Queue).Pause, func(name string) error {
		paused = append(paused, queueName(name))
		return nil
	})
	if len(paused) == 0 {
		return failed
	}
	ctx, stop := c.Timeout.bound(ctx)
	defer stop()
	rows, lost, err := c.wait(ctx, con, f, paused)
	late := err != nil && c.Timeout > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded)
	if err != nil && (!late || rows == nil && lost == nil) { // nothing is known of them
		con.say("the queues stay paused; to start their tasks again, use: %s", c.command("resume QUEUE", texts(paused)...))
		for _, name := range paused {
			if c.JSON {
				failed = errors.Join(failed, printJSON(con.out, map[string]any{"queue": name, "drained": false, "error": cause(err)}))
			}
		}
		return errors.Join(err, failed)
	}
	for _, row := range rows {
		text := "is paused, and none of its tasks runs"
		if row.Running > 0 {
			text = "is paused; still running: " + words.Counted(row.Running, "task")
		}
		if err := c.tell(con.out, row, "%s %s", printable(row.Queue), text); err != nil {
			return err
		}
	}
	for _, u := range lost {
		if err := c.tell(con.out, u.row(), "%s is paused; its running tasks can't be read: %s", printable(string(u.queue)), printable(u.err.Error())); err != nil {
			return err
		}
	}
	if late {
		con.say("not drained after %s; list the running tasks: %s", age(time.Duration(c.Timeout)), c.command("running QUEUE", texts(c.Queues)...))
	}
	return toldIf(late, cmp.Or(failed, someUnread(len(lost))))
}

// wait waits until no task of the readable queues runs.
func (c *drainCommand) wait(ctx context.Context, con *console, f *fleet, queues queueNames) (rows []drainedRow, lost []*unread, err error) {
	looks := time.NewTicker(100 * time.Millisecond)
	defer looks.Stop()
	for last := -1; ; {
		running := 0
		now, bad := []drainedRow(nil), []*unread(nil)
		for row, err := range f.counts(ctx, queues) {
			if u := asUnread(err); u != nil {
				bad = append(bad, u)
				continue
			}
			if err != nil {
				return rows, lost, err
			}
			running += row.Running
			now = append(now, drainedRow{row.Queue, row.Running, row.Running == 0})
		}
		if rows, lost = now, bad; running == 0 {
			return rows, lost, nil
		}
		if running != last {
			con.say("%s still running", words.Counted(running, "task"))
		}
		last = running
		select {
		case <-looks.C:
		case <-ctx.Done():
			return rows, lost, context.Cause(ctx)
		}
	}
}

// A drainedRow is the outcome for a queue.
type drainedRow struct {
	Queue   string
	Running int
	Drained bool
}

func texts(all queueNames) (names []string) {
	for _, q := range all {
		names = append(names, string(q))
	}
	return names
}

type deleteCommand struct {
	onQueue
	confirmation
}

func (c *deleteCommand) Validate() error { return c.given(string(c.Queue)) }

func (c *deleteCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	n, what := s.Waiting+s.Scheduled, "waiting task"
	if err := c.ask(ctx, con, string(c.Queue), fmt.Sprintf("delete %s of the queue %q", words.Counted(n, what), c.Queue)); err != nil {
		return err
	}
	if err := q.Delete(ctx); err != nil { // it doesn't count
		return c.cutOff(con.out, err, n, "up to "+words.Counted(n, what)+" may be deleted", map[string]any{"deleted": nil, "uncertain": true})
	}
	return toldIf(n == 0, c.tell(con.out, map[string]int{"deleted": n}, "%s deleted", words.Counted(n, what)))
}
