package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/worqr/worqr"
)

// A target is the fleet that a command looks at.
type target struct {
	Redis  string        `env:"REDIS_URL" default:"redis://localhost:6379" placeholder:"URL" help:"Redis to look at. Where the URL has a password, put it into the environment: others see arguments."`
	Prefix string        `default:"worqr" help:"Prefix of the fleet's keys."`
	Lease  time.Duration `help:"Lease of the fleet's peers, 3s if it is not said. To repair it has to be: who is silent for longer is given up."`
}

// open returns a peer that is not started, and so no member of the fleet.
func (t *target) open() (*worqr.Peer, error) {
	return worqr.Open(t.Redis, &worqr.Options{Prefix: t.Prefix, Lease: t.Lease})
}

type checkCommand struct {
	target
	Repair bool `help:"Put right what can be without losing a task."`
}

// Help is called by kong.
func (checkCommand) Help() string {
	return "The exit status is 0 when nothing is broken or in danger (any more), 1 when something is, and 2 when that could not be found out."
}

// Validate is called by kong.
func (c *checkCommand) Validate() error {
	if c.Repair && c.Lease == 0 {
		return errors.New("--repair needs --lease, that of the fleet's peers: who is silent for longer is given up for dead")
	}
	return nil
}

// Run prints what is wrong.
func (c *checkCommand) Run(ctx context.Context, out io.Writer) error {
	p, err := c.open()
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it is not started, so there is nothing to leave
	examine := p.Check
	if c.Repair {
		examine = p.Repair
	}
	report, err := examine(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, report); err != nil {
		return err
	}
	endangered := func(f worqr.Finding) bool { return f.Severity == worqr.SeverityDanger && !f.Repaired }
	if !report.OK() || report.Omitted > 0 || slices.ContainsFunc(report.Findings, endangered) {
		return errTold
	}
	return nil
}

type explainCommand struct {
	target
	Queue   string  `arg:"" help:"Name of the queue."`
	Payload *string `arg:"" optional:"" help:"Payload of the task. Without it and a key, standard input is the payload, to the byte: printf adds no newline, echo does. The empty payload is written ''."`
	Key     *string `placeholder:"KEY" help:"Explain what is under this key, whatever its payload."`
}

// Help is called by kong.
func (explainCommand) Help() string {
	return "The payload is not printed. The exit status is 0 when the task is there, 1 when there is no copy of it, and 2 when that could not be found out."
}

// Validate is called by kong.
func (c *explainCommand) Validate() error {
	if c.Payload != nil && c.Key != nil {
		return errors.New("either a payload or --key")
	}
	return nil
}

// Run prints where a task is, and why it does not run.
func (c *explainCommand) Run(ctx context.Context, k *kong.Context, in io.Reader, out io.Writer) error {
	p, err := c.open()
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it is not started, so there is nothing to leave
	e, err := c.explain(ctx, p.Queue(c.Queue), in, k.Stderr)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, e); err != nil {
		return err
	}
	switch {
	case len(e.Copies) == 0 && e.Unread > 0:
		return fmt.Errorf("there is more than was looked at: %d waiting tasks", e.Unread)
	case len(e.Copies) == 0:
		return errTold
	}
	return nil
}

func (c *explainCommand) explain(ctx context.Context, q *worqr.Queue, in io.Reader, errs io.Writer) (*worqr.Explanation, error) {
	if c.Key != nil {
		return q.ExplainKey(ctx, *c.Key)
	}
	if c.Payload != nil {
		return q.Explain(ctx, []byte(*c.Payload))
	}
	if f, ok := in.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(errs, "worqr: waiting for the payload, to the byte; Ctrl-D ends it") // who does not see it types all the same
	}
	payload, err := io.ReadAll(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(payload) == 0: // by mistake, more often than not: in a script, of cron, by a program that has failed
		return nil, errors.New("standard input is empty, and there is no payload; for the empty payload, pass ''")
	}
	return q.Explain(ctx, payload)
}
