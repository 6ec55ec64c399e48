package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/cmd/worqr/internal/top"
	"github.com/worqr/worqr/cmd/worqr/internal/words"
)

// A queueRow has the counts of one queue.
type queueRow struct {
	Queue     string  `json:"queue"`
	Waiting   int     `json:"waiting"`
	Scheduled int     `json:"scheduled"`
	Running   int     `json:"running"`
	Failed    int     `json:"failed"`
	Workers   int     `json:"workers"`
	Idle      int     `json:"idle_workers"`
	Oldest    seconds `json:"oldest_seconds"`
	Paused    bool    `json:"paused"`
	pauseRow
	Silent bool `json:"workers_silent"` // it has workers, but none has renewed its lease in time
}

// A pauseRow says who paused a queue, and when.
type pauseRow struct {
	By    blob      `json:"paused_by,omitempty"`
	Since time.Time `json:"paused_since,omitzero"`
}

func (r pauseRow) String() string {
	text := "paused"
	if r.By != "" {
		text += " by " + brief(r.By, 40)
	}
	if !r.Since.IsZero() {
		text += " " + sinceMoment(r.Since) + " ago"
	}
	return text
}

func (r queueRow) state() string {
	switch {
	case r.Silent && r.Paused:
		return r.pauseRow.String() + ", worker silent"
	case r.Paused:
		return r.pauseRow.String()
	case r.Silent:
		return "worker silent"
	case top.Unserved(r.Workers, r.Waiting, r.Scheduled):
		return "no worker"
	}
	return "-"
}

// counts yields the counts of queues, in order.
func (f *fleet) counts(ctx context.Context, all queueNames) iter.Seq2[queueRow, error] {
	return eachOf(ctx, all, func(ctx context.Context, name queueName) (queueRow, error) {
		s, err := f.Queue(string(name)).Stats(ctx)
		return queueRow{
			string(name), s.Waiting, s.Scheduled, s.Running, s.Failed, s.Workers, s.IdleWorkers, seconds(s.Oldest),
			s.Paused, pauseRow{blob(s.PausedBy), s.PausedSince.UTC()}, s.Silent,
		}, err
	})
}

type queuesCommand struct{ onQueues }

// Run prints a line for each queue.
func (c *queuesCommand) Run(ctx context.Context, con *console) error {
	f, names, err := c.toQueues(ctx, c.Queues)
	if err != nil {
		return err
	}
	defer f.close()
	n, err := printRows(con.out, c.form, "QUEUE WAITING SCHEDULED RUNNING FAILED WORKERS IDLE OLDEST STATE", f.counts(ctx, names), func(r queueRow) []string {
		return []string{printable(r.Queue), strconv.Itoa(r.Waiting), strconv.Itoa(r.Scheduled), strconv.Itoa(r.Running), strconv.Itoa(r.Failed), strconv.Itoa(r.Workers), strconv.Itoa(r.Idle), oldest(r), r.state()}
	})
	if err == nil && n == 0 {
		con.say("no queues under the prefix %q; check --prefix and --redis", c.Prefix)
	}
	return err
}

func oldest(r queueRow) string {
	if r.Oldest == 0 {
		return "-"
	}
	return age(timeOf(r.Oldest))
}

type statsCommand struct{ onQueues }

// fleetStats are the sums over queues.
type fleetStats struct {
	Queues    int     `json:"queues"`
	Unread    int     `json:"unreadable_queues,omitempty"`
	Paused    int     `json:"paused"`
	Workers   int     `json:"workers"`
	Waiting   int     `json:"waiting"`
	Scheduled int     `json:"scheduled"`
	Running   int     `json:"running"`
	Failed    int     `json:"failed"`
	Oldest    seconds `json:"oldest_seconds"`
}

// Run prints the sums.
func (c *statsCommand) Run(ctx context.Context, con *console) error {
	f, names, err := c.toQueues(ctx, c.Queues)
	if err != nil {
		return err
	}
	defer f.close()
	var s fleetStats
	for row, err := range f.counts(ctx, names) {
		if u := asUnread(err); u != nil {
			s.Unread++
			con.say("%v", u)
			continue
		}
		if err != nil {
			return err
		}
		s.Queues++
		if row.Paused {
			s.Paused++
		}
		s.Waiting, s.Scheduled, s.Running, s.Failed = s.Waiting+row.Waiting, s.Scheduled+row.Scheduled, s.Running+row.Running, s.Failed+row.Failed
		s.Oldest = max(s.Oldest, row.Oldest)
	}
	workers, unlisted := f.workers(ctx)
	s.Workers = len(workers)
	err = c.tell(con.out, s, "queues     %d (%d paused)\nworkers    %d\nwaiting    %d\nscheduled  %d\nrunning    %d\nfailed     %d\noldest     %s",
		s.Queues, s.Paused, s.Workers, s.Waiting, s.Scheduled, s.Running, s.Failed, oldest(queueRow{Oldest: s.Oldest}))
	return errors.Join(err, someUnread(s.Unread), unlisted)
}

// A changedRow is the result of pausing or resuming a queue.
type changedRow struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
}

type pauseCommand struct {
	target
	form
	Queues queueNames `arg:"" name:"queue" help:"Queues to pause."`
}

func (c *pauseCommand) Run(ctx context.Context, con *console) error {
	return c.forEach(ctx, con, c.form, c.Queues, (*worqr.Queue).Pause, func(name string) error {
		return c.tell(con.out, changedRow{name, true}, "%s is paused", printable(name))
	})
}

type resumeCommand struct {
	target
	form
	Queues queueNames `arg:"" name:"queue" help:"Queues to resume."`
}

func (c *resumeCommand) Run(ctx context.Context, con *console) error {
	return c.forEach(ctx, con, c.form, c.Queues, (*worqr.Queue).Resume, func(name string) error {
		return c.tell(con.out, changedRow{name, false}, "%s is running", printable(name))
	})
}

// forEach calls do for each queue, even if it fails for some, and prints the results.
func (t *target) forEach(ctx context.Context, con *console, form form, all queueNames, do func(*worqr.Queue, context.Context) error, tell func(name string) error) error {
	f, err := t.fleet()
	if err != nil {
		return err
	}
	defer f.close()
	var errs []error
	absent, changed := false, 0
	for _, name := range all {
		q, err := f.known(ctx, name)
		if _, none := errors.AsType[nothing](err); none {
			absent = true
			con.say("%v", err)
			continue
		}
		if err == nil {
			err = do(q, ctx)
		}
		if err == nil {
			changed++
			err = tell(string(name))
		}
		if err != nil {
			errs = append(errs, err)
			if form.JSON {
				row := map[string]any{"queue": name, "error": cause(err), "uncertain": errors.Is(err, worqr.ErrUnknownOutcome)}
				errs = append(errs, printJSON(con.out, row))
			}
		}
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch {
	case ctx.Err() != nil && len(errs) > 0:
		return &partly{fmt.Sprintf("%d of %s changed", changed, words.Counted(len(all), "queue")), errors.Join(errs...)}
	case len(errs) > 1:
		return fmt.Errorf("%d of %d queues failed: %w", len(errs), len(all), errors.Join(errs...))
	case len(errs) == 0 && absent:
		return errTold
	}
	return errors.Join(errs...)
}
