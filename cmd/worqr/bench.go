package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/cmd/worqr/internal/words"
)

type benchCommand struct {
	Redis string `env:"REDIS_URL" default:"redis://localhost:6379" placeholder:"URL" help:"Redis to measure; the default is redis://localhost:6379. The command has its own prefix, and removes its keys at the end. The Redis user needs access to all keys, and SCAN."`
	form
	Tasks       int `default:"50000" help:"How many tasks; the default is 50000."`
	Size        int `default:"100" help:"Size of a payload in bytes; the default is 100."`
	Batch       int `default:"100" help:"How many tasks one call enqueues; the default is 100."`
	Concurrency int `short:"c" default:"64" help:"How many handlers run at once; the default is 64."`
}

// Validate is called by kong.
func (c *benchCommand) Validate() error {
	switch {
	case c.Tasks < 1 || c.Tasks > 10_000_000:
		return usage("--tasks must be from 1 to 10000000")
	case c.Size < 0 || c.Size > 1<<20:
		return usage("--size must be from 0 to 1048576")
	case c.Batch < 1 || c.Batch > 10_000:
		return usage("--batch must be from 1 to 10000")
	case c.Concurrency < 1 || c.Concurrency > 10_000:
		return usage("--concurrency must be from 1 to 10000")
	}
	return nil
}

// A benchRow is a measurement.
type benchRow struct {
	RoundTrip         time.Duration
	Tasks             int
	EnqueuedPerSecond int
	FinishedPerSecond int
	Latency           time.Duration
}

// Run measures, and cleans up.
func (c *benchCommand) Run(ctx context.Context, con *console) (err error) {
	prefix := fmt.Sprintf("worqr-bench-%08x", rand.Uint32())
	if err := erase(ctx, c.Redis, prefix); err != nil {
		return fmt.Errorf("the keys could not be removed at the end: %w", err)
	}
	p, err := worqr.Open(c.Redis, &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() {
		_ = p.Close()                                                          // Run has closed it
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), patience) // also after Ctrl-C
		defer stop()
		if failed := erase(ctx, c.Redis, prefix); failed != nil && err == nil {
			err = fmt.Errorf("remove the keys %s:*: %w", prefix, failed)
		}
	}()
	row, err := c.measure(ctx, con, p)
	if err != nil {
		return err
	}
	return c.tell(con.out, row, "round trip   %s\nenqueue      %s/s, %d in each call\nprocess      %s/s, %s\nlatency      %s from Enqueue to the handler of an idle queue",
		micro(row.RoundTrip), words.Grouped(row.EnqueuedPerSecond), c.Batch, words.Grouped(row.FinishedPerSecond), words.Counted(c.Concurrency, "handler"), micro(row.Latency))
}

// micro formats a short time.
func micro(d time.Duration) string { return d.Round(time.Microsecond).String() }

// rounds is how many times a short operation is measured.
const rounds = 200

func (c *benchCommand) measure(ctx context.Context, con *console, p *worqr.Peer) (row benchRow, err error) {
	row.Tasks = c.Tasks
	began := time.Now()
	for range rounds {
		if err := p.Ping(ctx); err != nil {
			return row, err
		}
	}
	row.RoundTrip = time.Since(began) / rounds

	q, batch := p.Queue("bench"), make([][]byte, c.Batch)
	for i := range batch {
		batch[i] = make([]byte, c.Size)
	}
	pr := con.progress("enqueue", c.Tasks)
	began = time.Now()
	for left := c.Tasks; left > 0; left -= len(batch) {
		batch = batch[:min(len(batch), left)]
		if err := q.Enqueue(ctx, batch...); err != nil {
			pr.end()
			return row, err
		}
		pr.add(len(batch))
	}
	pr.end()
	row.EnqueuedPerSecond = perSecond(c.Tasks, began)
	row.FinishedPerSecond, row.Latency, err = c.workOff(ctx, p, q)
	return row, err
}

func perSecond(n int, began time.Time) int {
	return int(float64(n) / max(time.Since(began).Seconds(), 1e-6))
}

// workOff runs all tasks of the queue, and then measures single tasks.
func (c *benchCommand) workOff(ctx context.Context, p *worqr.Peer, q *worqr.Queue) (rate int, latency time.Duration, err error) {
	var started atomic.Int64
	all, one := make(chan time.Time, 1), make(chan time.Time, 1)
	q.Handle(func(context.Context, *worqr.Task) error {
		switch n := started.Add(1); {
		case n == int64(c.Tasks):
			all <- time.Now()
		case n > int64(c.Tasks):
			one <- time.Now()
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: c.Concurrency})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- p.Run(running) }()
	defer func() {
		stop()
		if left := <-ended; err == nil {
			err = left
		}
	}()
	wait := func(on <-chan time.Time) (time.Time, error) {
		select {
		case at := <-on:
			return at, nil
		case left := <-ended:
			ended <- nil
			return time.Time{}, fmt.Errorf("the worker ended: %w", left)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	if _, err := wait(all); err != nil {
		return 0, 0, err
	}
	rate = perSecond(c.Tasks, began)
	var sum time.Duration
	for range rounds {
		at := time.Now()
		if err := q.Enqueue(ctx, make([]byte, c.Size)); err != nil {
			return 0, 0, err
		}
		handled, err := wait(one)
		if err != nil {
			return 0, 0, err
		}
		sum += handled.Sub(at)
	}
	return rate, sum / rounds, nil
}
