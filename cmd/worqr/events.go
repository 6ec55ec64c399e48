package main

import (
	"context"
	"errors"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// An eventRow is an event.
type eventRow struct {
	At time.Time
	inspect.Event
}

type watchCommand struct {
	target
	JSON   bool       `help:"Print JSON lines. This is always on."`
	Events uint       `short:"n" placeholder:"N" help:"Stop after N events; by default, run until Ctrl-C."`
	Queues queueNames `arg:"" optional:"" name:"queue" help:"Queues to watch; by default all, including new ones."`
}

func (c *watchCommand) Run(ctx context.Context, con *console, f *fleet) error {
	n, synced := uint(0), false
	for e, err := range f.Events(ctx, texts(c.Queues)...) {
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, worqr.ErrInvalid), (errors.Is(err, worqr.ErrDenied) || errors.Is(err, worqr.ErrLogin)) && !synced:
			return err
		case err != nil:
			con.say("%v", err)
			continue
		}
		synced = true
		if err := printJSON(con.out, eventRow{time.Now(), e}); err != nil {
			return err
		}
		if n++; n == c.Events {
			return nil
		}
	}
	return nil
}
