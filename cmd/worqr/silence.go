package main

import (
	"context"
	"fmt"
	"time"

	"github.com/worqr/worqr/inspect"
)

type silenceCommand struct {
	target
	form
	Kind   string        `arg:"" optional:"" help:"Kind of the findings; without it, the silences are listed."`
	Queue  queueName     `placeholder:"QUEUE" help:"Silence only findings about this queue; by default those about all."`
	For    time.Duration `placeholder:"DURATION" help:"For how long, such as 2h; 720h at most."`
	Reason string        `placeholder:"TEXT" help:"Why; it's shown to others."`
	End    bool          `help:"End the silence of these findings."`
}

func (c *silenceCommand) Validate() error {
	switch {
	case c.Kind == "" && (c.Queue != "" || c.For != 0 || c.Reason != "" || c.End):
		return usage("expected the kind of the findings")
	case c.End && (c.For != 0 || c.Reason != ""):
		return usage("--end takes neither --for nor --reason")
	case c.Kind != "" && !c.End && (c.For <= 0 || c.Reason == ""):
		return usage("expected --for and --reason: a silence has an end and a reason")
	}
	return nil
}

func (c *silenceCommand) Run(ctx context.Context, con *console, f *fleet) error {
	kind, on := inspect.FindingKind(c.Kind), "all queues"
	if c.Queue != "" {
		on = printable(string(c.Queue))
	}
	switch {
	case c.Kind == "":
		return c.list(ctx, con, f)
	case c.End:
		found, err := f.Unsilence(ctx, kind, string(c.Queue))
		if err == nil && !found {
			return nothing(fmt.Sprintf("%s isn't silenced on %s", printable(c.Kind), on))
		}
		if err != nil {
			return err
		}
		return c.tell(con.out, map[string]any{"kind": kind, "queue": c.Queue, "silenced": false}, "%s on %s is no longer silenced", printable(c.Kind), on)
	}
	s := inspect.Silence{Kind: kind, Queue: string(c.Queue), Reason: c.Reason, Until: time.Now().Add(c.For)}
	if err := f.Silence(ctx, s); err != nil {
		return err
	}
	return c.tell(con.out, s, "%s on %s is silenced for %s", printable(c.Kind), on, age(c.For))
}

func (c *silenceCommand) list(ctx context.Context, con *console, f *fleet) error {
	_, all, err := f.Notes(ctx)
	if err != nil {
		return err
	}
	rows := func(yield func(inspect.Silence, error) bool) {
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
	n, err := printRows(con.out, c.form, "KIND QUEUE ENDS BY REASON", rows, func(s inspect.Silence) []string {
		queue := "(all)"
		if s.Queue != "" {
			queue = brief(s.Queue, 40)
		}
		return []string{brief(string(s.Kind), 40), queue, nextMoment(s.Until), brief(s.By, 30), brief(s.Reason, 200)}
	})
	if err == nil && n == 0 {
		con.say("nothing is silenced")
	}
	return err
}
