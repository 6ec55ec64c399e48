// Command demo shows three peers at work, each a process of its own: one is killed, tasks fail, one is canceled, and
// nothing is lost. It needs only Go, since it has a Redis in memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is all of main, so that the test binary can be a peer, too.
func run(args []string, out io.Writer) error {
	if len(args) == 4 && args[0] == "peer" {
		lease, err := time.ParseDuration(args[3])
		return errors.Join(err, serve(args[1], args[2], lease, out))
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	seconds := flags.Float64("seconds", 14, "maximum duration in seconds, from 3 to 3600")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *seconds < 3 || *seconds > 3600 {
		return errors.New("-seconds must be from 3 to 3600")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return show(ctx, time.Duration(*seconds*float64(time.Second)), out)
}

// patience is how long an end may take.
const patience = 8 * time.Second

// until waits until t. If ctx has ended it fails, even if t has passed: an interrupted demo starts nothing new.
func until(ctx context.Context, t time.Time) error {
	select {
	case <-time.After(time.Until(t)):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// every calls look, with pauses, until it reports that it has seen enough.
func every(ctx context.Context, pause time.Duration, look func() (enough bool, err error)) error {
	looks := time.NewTicker(pause)
	defer looks.Stop()
	for {
		if enough, err := look(); enough || err != nil {
			return err
		}
		select {
		case <-looks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
