package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// A queueRow has the counts of one queue.
type queueRow struct {
	Queue string
	inspect.QueueStats
}

func (r queueRow) pause() string {
	text := "paused"
	if r.PausedBy != "" {
		text += " by " + brief(r.PausedBy, 40)
	}
	if !r.PausedSince.IsZero() {
		text += " " + sinceMoment(r.PausedSince) + " ago"
	}
	return text
}

func (r queueRow) state() string {
	switch {
	case r.Silent && r.Paused:
		return r.pause() + ", worker silent"
	case r.Paused:
		return r.pause()
	case r.Silent:
		return "worker silent"
	case r.Workers == 0 && r.Waiting+r.Scheduled > 0:
		return "no worker"
	}
	return "-"
}

// counts yields the counts of queues, in order.
func (f *fleet) counts(ctx context.Context, all queueNames) iter.Seq2[queueRow, error] {
	return eachOf(ctx, all, func(ctx context.Context, name queueName) (queueRow, error) {
		s, err := f.Queue(string(name)).Stats(ctx)
		return queueRow{string(name), s}, err
	})
}

type queuesCommand struct{ onQueues }

func (c *queuesCommand) Run(ctx context.Context, con *console, f *fleet, names queueNames) error {
	n, err := printRows(con.out, c.form, "QUEUE WAITING SCHEDULED RUNNING FAILED WORKERS IDLE OLDEST STATE", f.counts(ctx, names), func(r queueRow) []string {
		oldest := "-"
		if r.Oldest > 0 {
			oldest = age(r.Oldest)
		}
		return []string{printable(r.Queue), strconv.Itoa(r.Waiting), strconv.Itoa(r.Scheduled), strconv.Itoa(r.Running), strconv.Itoa(r.Failed), strconv.Itoa(r.Workers), strconv.Itoa(r.IdleWorkers), oldest, r.state()}
	})
	if err == nil && n == 0 {
		con.say("no queues under the prefix %q; check --prefix and --redis", c.Prefix)
	}
	return err
}

// A changedRow is the result of pausing or resuming a queue.
type changedRow struct {
	Queue  string
	Paused bool
}

type pauseCommand struct{ onNamed }

func (c *pauseCommand) Run(ctx context.Context, con *console, f *fleet) error {
	return c.forEach(ctx, con, f, (*worqr.Queue).Pause, func(name string) error {
		return c.tell(con.out, changedRow{name, true}, "%s is paused", printable(name))
	})
}

type resumeCommand struct{ onNamed }

func (c *resumeCommand) Run(ctx context.Context, con *console, f *fleet) error {
	return c.forEach(ctx, con, f, (*worqr.Queue).Resume, func(name string) error {
		return c.tell(con.out, changedRow{name, false}, "%s is running", printable(name))
	})
}

// forEach calls do for each queue, even if it fails for some, and prints the results.
func (c *onNamed) forEach(ctx context.Context, con *console, f *fleet, do func(*worqr.Queue, context.Context) error, tell func(name string) error) error {
	var errs []error
	absent, changed := false, 0
	for _, name := range c.Queues {
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
			if c.JSON {
				row := map[string]any{"queue": name, "error": cause(err), "uncertain": errors.Is(err, worqr.ErrUnknownOutcome)}
				errs = append(errs, printJSON(con.out, row))
			}
		}
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch {
	case ctx.Err() != nil && len(errs) > 0:
		return &partly{fmt.Sprintf("%d of %s changed", changed, words.Counted(len(c.Queues), "queue")), errors.Join(errs...)}
	case len(errs) > 1:
		return fmt.Errorf("%d of %d queues failed: %w", len(errs), len(c.Queues), errors.Join(errs...))
	case len(errs) == 0 && absent:
		return errTold
	}
	return errors.Join(errs...)
}
