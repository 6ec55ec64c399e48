package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/words"
	"github.com/worqr/worqr/worqrtrace"
)

type workCommand struct {
	onQueue
	Command     []string      `arg:"" passthrough:"" help:"Program to run for each task, with its arguments. No shell is involved; for a pipe, write: -- sh -c '...'."`
	Concurrency int           `short:"c" default:"1" help:"How many programs run at once; the default is 1."`
	Timeout     time.Duration `help:"Kill a program that runs for longer; the task is retried. By default, there is no limit."`
	MaxRetries  *uint         `placeholder:"N" help:"How many times a task is retried before it fails for good; the default is 10, and 0 is none."`
	Backoff     time.Duration `placeholder:"DURATION" help:"Retry after this time; the default is 2s, doubling to 5m."`
	KeepFailed  int           `placeholder:"N" help:"How many failed tasks the queue keeps; the default is 1000."`
	Exclusive   bool          `help:"Kill the program before another peer can start its task, for example while Redis is down."`
	Drain       time.Duration `default:"25s" help:"How long programs may keep running after SIGTERM or Ctrl-C; the default is 25s. Then they are killed, and their tasks are returned."`
	Env         []string      `sep:"none" placeholder:"NAME[=VALUE]" help:"Environment variable for the program, or the name of one of this process to pass on. May be repeated."`
	Name        string        `placeholder:"NAME" help:"Name of this worker; the default is host:pid."`
	Verbose     bool          `short:"v" help:"Log the end of each task, too."`
	LogKeys     bool          `help:"Log the key of a task, too."`
	LogHeader   []string      `sep:"none" placeholder:"NAME" help:"Log this header of a task, too. May be repeated."`
}

func (c *workCommand) Validate() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case len(c.Command) == 0:
		return usage("expected a program after the queue: worqr work QUEUE -- PROGRAM")
	case c.Concurrency < 1:
		return usage("--concurrency must be at least 1")
	case c.Timeout < 0 || c.Backoff < 0 || c.KeepFailed < 0 || c.Drain < 0:
		return usage("--timeout, --backoff, --keep-failed and --drain can't be negative")
	}
	return nil
}

func (c *workCommand) options() *worqr.HandleOptions {
	o := &worqr.HandleOptions{
		Concurrency: c.Concurrency, Timeout: c.Timeout, MaxRetries: most(c.MaxRetries), Exclusive: c.Exclusive, KeepFailed: c.KeepFailed,
	}
	if c.Backoff > 0 {
		o.Backoff = func(*worqr.Task, error) time.Duration { return c.Backoff }
	}
	return o
}

func (c *workCommand) Run(ctx context.Context, con *console) error {
	if err := runnable(c.Command[0]); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(con.errs, nil))
	if c.JSON {
		log = slog.New(slog.NewJSONHandler(con.errs, nil))
	}
	o := &worqr.Options{Prefix: string(c.Prefix), Lease: time.Duration(c.Lease), Name: c.Name, Drain: c.Drain, Logger: log, LogKeys: c.LogKeys, LogHeaders: c.LogHeader}
	if c.Drain == 0 {
		o.Drain = -1 // to the library, 0 means the default
	}
	if c.Verbose {
		labels := logs.Labels{Keys: c.LogKeys, Headers: c.LogHeader}
		o.Trace = &worqrtrace.Trace{Ended: func(t worqrtrace.Task) {
			about := labels.Add([]any{"queue", t.Queue, "attempt_id", t.AttemptID, "digest", t.Digest}, t.Key, t.Headers)
			about = append(about, "attempt", t.Retries+1, "outcome", t.Outcome, "ran", t.Ran.Round(time.Millisecond))
			if t.Error != "" {
				about = append(about, "err", t.Error)
			}
			log.Info("worqr: task ended", about...) // with the attributes of the library's lines
		}}
	}
	p, err := worqr.Open(c.Redis, o)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // Run has closed it
	p.Queue(string(c.Queue)).Handle(worqr.CommandWith(worqr.CommandOptions{Env: c.Env}, c.Command[0], c.Command[1:]...), c.options())
	if !c.JSON {
		con.say("working on %q; Ctrl-C ends it", c.Queue)
	}
	if err := p.Run(ctx); err != nil {
		return err
	}
	done := p.Stats()
	if c.JSON {
		return printJSON(con.out, map[string]int64{"finished": done.Finished, "retried": done.Retried, "failed": done.Failed})
	}
	con.say("%s finished, %d retried, %d failed", words.Counted(int(done.Finished), "task"), done.Retried, done.Failed)
	return nil
}

// runnable fails if no program can be started under a name: each task would fail for that reason. The error
// doesn't have the name, which may be something else by mistake.
func runnable(program string) error {
	_, err := exec.LookPath(program)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("the program after the queue can't be started: %w; check its name, its path and its permissions", err)
}
