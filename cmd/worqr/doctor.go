package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
)

// A target is the fleet that a command looks at.
type target struct {
	Redis  string        `env:"REDIS_URL" default:"redis://localhost:6379" placeholder:"URL" help:"Redis to look at; the default is redis://localhost:6379. If the URL has a password, pass it in $REDIS_URL: other users of the machine can see command-line arguments."`
	Prefix string        `default:"worqr" help:"Prefix of the fleet's keys."`
	Lease  time.Duration `help:"Lease of the fleet's peers; the default is 3s."`
}

// open returns a peer that is not started, and so no member of the fleet.
func (t *target) open() (*worqr.Peer, error) {
	return worqr.Open(t.Redis, &worqr.Options{Prefix: t.Prefix, Lease: t.Lease})
}

type checkCommand struct {
	target
	Repair      bool          `help:"Repair what can be repaired without losing a task. Needs --lease: a worker that is silent for longer is evicted."`
	MaxRun      time.Duration `help:"Report tasks that have run for longer; the default is 1h."`
	MaxAge      time.Duration `help:"Report due tasks that have waited for longer, and queues with waiting tasks that have started none for longer; the default is 10m."`
	MaxWaiting  *int          `placeholder:"N" help:"Report queues with more due tasks; by default, there is no limit."`
	MaxRetrying *int          `placeholder:"N" help:"Report queues with more tasks that wait for a retry; the default is 10."`
	MaxFailed   *int          `placeholder:"N" help:"Report queues with more failed tasks; the default is 0."`
	Ignore      []string      `placeholder:"KIND" help:"Leave out findings of this kind, such as persistence. May be repeated."`
}

// options are what the flags say.
func (c *checkCommand) options() *worqr.CheckOptions {
	o := &worqr.CheckOptions{MaxRunTime: c.MaxRun, MaxWaitTime: c.MaxAge, MaxBacklog: most(c.MaxWaiting), MaxRetrying: most(c.MaxRetrying), MaxFailed: most(c.MaxFailed)}
	for _, kind := range c.Ignore {
		o.Ignore = append(o.Ignore, worqr.FindingKind(kind))
	}
	return o
}

// most is a limit as the library has it, to which 0 says that none is set.
func most(limit *int) int {
	switch {
	case limit == nil:
		return 0
	case *limit <= 0:
		return -1
	}
	return *limit
}

// Help is called by kong.
func (checkCommand) Help() string {
	return "A finding is an error, a warning or a notice. What exceeds a limit that a --max flag sets is a warning; without the flag, what exceeds a default is a notice. " +
		"The exit status is 0 if no error and no warning is left, 1 if one is, and 2 if the check itself failed. " +
		"So it can serve as an alert. Each line shows the kind of finding in parentheses; pass the kinds you accept to --ignore."
}

// check refuses names that no fleet has, and does not repeat them: in their place may
// stand something else, such as a URL.
func (t *target) check() error {
	if keys.CheckPrefix(t.Prefix) != nil {
		return usage("the value of --prefix is not valid: a prefix has at most 255 bytes, no braces, spaces or control bytes, doesn't end in :failed, and doesn't have the part :worker")
	}
	return nil
}

// Validate is called by kong.
func (c *checkCommand) Validate() error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Repair && c.Lease == 0 {
		return usage("--repair needs --lease, the lease of the fleet's peers: a worker that is silent for longer is evicted")
	}
	if c.MaxRun < 0 || c.MaxAge < 0 {
		return usage("neither --max-run nor --max-age may be negative")
	}
	for _, kind := range c.Ignore {
		if !slices.Contains(worqr.FindingKinds(), worqr.FindingKind(kind)) {
			return usage("the value of --ignore is not valid; the kinds are " + strings.Trim(fmt.Sprint(worqr.FindingKinds()), "[]"))
		}
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
	report, err := examine(ctx, c.options())
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, report); err != nil {
		return err
	}
	endangered := func(f worqr.Finding) bool { return f.Severity == worqr.SeverityWarning && !f.Repaired }
	if !report.OK() || report.Omitted > 0 || slices.ContainsFunc(report.Findings, endangered) {
		return errTold
	}
	return nil
}

type explainCommand struct {
	target
	Queue   string  `arg:"" help:"Name of the queue."`
	Payload *string `arg:"" optional:"" help:"Payload of the task. Without it or --key, the payload is read from standard input, byte for byte: use printf, since echo adds a newline. For an empty payload, pass \"\"."`
	Key     *string `placeholder:"KEY" help:"Explain the tasks under this key, whatever their payload."`
}

// Help is called by kong.
func (explainCommand) Help() string {
	return "The payload is not printed. The exit status is 0 when the task is there, 1 when there is no copy of it, and 2 if the command failed."
}

// Validate is called by kong.
func (c *explainCommand) Validate() error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.Queue == "":
		return usage("expected \"<queue>\", the name of a queue")
	case strings.Contains(c.Queue, "://"):
		return usage("expected the name of a queue, not a URL; set REDIS_URL or --redis")
	case keys.CheckName(c.Queue) != nil:
		return usage("not a valid queue name: use 1 to 255 bytes without braces, spaces or control bytes")
	case c.Payload != nil && c.Key != nil:
		return usage("expected a payload or --key, not both")
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
	case len(e.Copies) == 0 && e.NotSearched > 0:
		return fmt.Errorf("not found in the first 100,000 tasks; %d more weren't searched", e.NotSearched)
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
		fmt.Fprintln(errs, "worqr: reading the payload from standard input, byte for byte; press Ctrl-D to end it") // who does not see it types anyway
	}
	payload, err := io.ReadAll(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(payload) == 0: // by mistake, more often than not: in a script, of cron, by a program that has failed
		return nil, errors.New("standard input is empty, and there is no payload; for the empty payload, pass \"\"")
	}
	return q.Explain(ctx, payload)
}
