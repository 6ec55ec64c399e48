package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/worqr/worqr"
)

// A showResult has the flags and arguments of a command that shows how a task ended.
type showResult struct {
	onQueue
	Key string `arg:"" help:"Key of the task, as \"worqr enqueue --keep-result\" prints it."`
	Raw bool   `help:"Print the result byte for byte, and nothing else."`
}

func (s *showResult) show(con *console, r *worqr.Result, err error) error {
	switch {
	case errors.Is(err, worqr.ErrNoResult):
		return nothing(err.Error())
	case err != nil:
		return err
	}
	text := printable(r.Outcome)
	if !r.EndedAt.IsZero() {
		text += " " + sinceMoment(r.EndedAt) + " ago"
	}
	switch {
	case r.Error != "":
		text += ": " + printable(r.Error)
	case len(r.Value) > 0:
		text += ": " + brief(string(r.Value), 1000)
	}
	if s.Raw {
		if r.Outcome != worqr.OutcomeFinished {
			con.say("%s", text)
		}
		_, err = con.out.Write(r.Value)
	} else {
		err = s.tell(con.out, *r, "%s", text)
	}
	return toldIf(r.Outcome != worqr.OutcomeFinished, err)
}

func (s *showResult) Validate() error {
	if s.Raw && s.JSON {
		return usage("expected --raw or --json, not both")
	}
	return nil
}

type resultCommand struct{ showResult }

func (c *resultCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	r, err := q.Result(ctx, c.Key)
	if errors.Is(err, worqr.ErrNotEnded) {
		return nothing("the task hasn't ended; wait for it: " + c.command("wait QUEUE KEY", string(c.Queue)))
	}
	return c.show(con, r, err)
}

type waitCommand struct {
	showResult
	Timeout period `placeholder:"DURATION" help:"How long to wait; by default until Ctrl-C."`
}

func (c *waitCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	ctx, stop := c.Timeout.bound(ctx)
	defer stop()
	r, err := q.Wait(ctx, c.Key)
	if err != nil && c.Timeout > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nothing(fmt.Sprintf("the task hasn't ended after %s", age(time.Duration(c.Timeout))))
	}
	return c.show(con, r, err)
}
