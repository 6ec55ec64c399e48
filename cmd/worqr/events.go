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
	At            time.Time `json:"at"`
	Event         string    `json:"event"`
	Queue         string    `json:"queue,omitempty"`
	Worker        blob      `json:"worker,omitempty"`
	Count         int       `json:"count,omitempty"`
	Payload       *blob     `json:"payload,omitempty"`
	PayloadSize   int       `json:"payload_bytes,omitempty"`
	PayloadDigest blob      `json:"payload_sha1,omitempty"`
	Result        *blob     `json:"result,omitempty"`
	ResultSize    int       `json:"result_bytes,omitempty"`
	Evidence      blob      `json:"evidence,omitempty"`
}

func eventRowOf(e inspect.Event) eventRow {
	r := eventRow{
		At: time.Now().UTC(), Event: string(e.Kind), Queue: e.Queue, Worker: blob(e.WorkerID), Count: e.Count, Evidence: blob(e.Evidence),
		PayloadSize: e.PayloadSize, PayloadDigest: blob(e.PayloadDigest), ResultSize: e.ResultSize,
	}
	if e.Payload != nil {
		r.Payload = new(blob(e.Payload))
	}
	if e.Result != nil {
		r.Result = new(blob(e.Result))
	}
	return r
}

type watchCommand struct {
	target
	JSON   bool       `help:"Print JSON lines. This is always on."`
	Events int        `short:"n" placeholder:"N" help:"Stop after N events; by default, run until Ctrl-C."`
	Queues queueNames `arg:"" optional:"" name:"queue" help:"Queues to watch; by default all, including new ones."`
}

// Run prints events until ctx ends.
func (c *watchCommand) Run(ctx context.Context, con *console) error {
	f, err := c.fleet()
	if err != nil {
		return err
	}
	defer f.close()
	names := make([]string, len(c.Queues))
	for i, q := range c.Queues {
		names[i] = string(q)
	}
	n, synced := 0, false
	for e, err := range f.Events(ctx, names...) {
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
		if err := printJSON(con.out, eventRowOf(e)); err != nil {
			return err
		}
		if n++; n == c.Events {
			return nil
		}
	}
	return nil
}
