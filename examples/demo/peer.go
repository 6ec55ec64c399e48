package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/worqrtrace"
)

const (
	demoQueue = "media"
	slots     = 4 // tasks that a peer runs at once
)

// A report is what a peer sends the demo, one JSON object per line.
type report struct {
	Event   string
	Key     string
	Retries int
	Error   string
	Pause   time.Duration // before the next attempt
	Tasks   int
}

const (
	reportStarted  = "started"  // Key, after Retries
	reportRetried  = "retried"  // Key failed with Error, and is retried after Pause
	reportReturned = "returned" // Tasks of a dead peer were put back
)

// serve is one peer of the demo, in a process of its own. It ends when its input does, and so when the demo is killed.
func serve(url, name string, lease time.Duration, out io.Writer) error {
	signal.Ignore(os.Interrupt)                                  // Ctrl-C goes to all processes at the terminal; the demo decides
	say := func(r report) { _ = json.NewEncoder(out).Encode(r) } // if the demo is gone, the input has ended
	p, err := worqr.Open(url, &worqr.Options{
		Name: name, Lease: lease, Drain: time.Second, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Trace: &worqrtrace.Trace{
			Started: func(t worqrtrace.Task) { say(report{Event: reportStarted, Key: t.Key, Retries: t.Retries}) },
			Ended: func(t worqrtrace.Task) {
				if t.Outcome == worqrtrace.Retried {
					say(report{Event: reportRetried, Key: t.Key, Error: t.Error, Pause: t.Next.Sub(t.At)})
				}
			},
			TasksReturned: func(q worqrtrace.Queue) { say(report{Event: reportReturned, Tasks: q.Tasks}) },
		},
	})
	if err != nil {
		return err
	}
	p.Queue(demoQueue).Handle(worqr.JSON(runJob), &worqr.HandleOptions{
		Concurrency: slots, Grace: time.Second,
		Backoff: func(t *worqr.Task, _ error) time.Duration { return 500 * time.Millisecond << t.Retries },
	})
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end or error is the end
		end()
	}()
	return errors.Join(p.Run(ctx), p.Close())
}

// runJob takes as long as the job does.
func runJob(ctx context.Context, j job, t *worqr.Task) error {
	select {
	case <-time.After(j.Takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if t.Retries < j.Fails {
		return errors.New("the mail server is busy")
	}
	return nil
}
