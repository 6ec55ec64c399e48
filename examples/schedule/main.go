// Command schedule runs one task later, and another every second.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/worqr/worqr"
)

const period = time.Second

func main() {
	ctx, stop := context.WithCancel(context.Background())
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), nil))
	jobs, runs := peer.Queue("jobs"), 0

	// What is planned already stays as it is. So does the retry of a run that has failed.
	plan := func(ctx context.Context) error {
		next := time.Now().Add(period)
		return jobs.Put(ctx, "cleanup", []byte("clean up"), &worqr.PutOptions{At: next, Reschedule: worqr.RescheduleNever, KeepPayload: true})
	}
	jobs.Handle(func(ctx context.Context, t *worqr.Task) error {
		if t.Key != "cleanup" {
			fmt.Printf("%s\n", t.Payload)
			return nil
		}
		if err := plan(ctx); err != nil { // the next run first, then this one
			return err
		}
		fmt.Printf("%s\n", t.Payload)
		if runs++; runs == 3 {
			stop() // Run drains and leaves
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	// Every replica may do this. The job is back within a minute if Redis has lost it.
	go func() {
		for ; ; time.Sleep(time.Minute) {
			if err := plan(ctx); err != nil {
				log.Print(err)
			}
		}
	}()

	must(jobs.EnqueueAt(ctx, time.Now().Add(time.Second/2), []byte("remind")))
	check(peer.Run(ctx))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
