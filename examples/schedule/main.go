// Command schedule has one task done at a time, and another again and again.
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

func main() {
	ctx, stop := context.WithCancel(context.Background())
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), nil))
	jobs, runs := peer.Queue("jobs"), 0
	jobs.Handle(func(ctx context.Context, t *worqr.Task) error {
		if t.Key != "cleanup" {
			fmt.Printf("%s\n", t.Payload)
			return nil
		}
		// Plan the next run first, then work. Should this run have to be repeated, since
		// it fails or its process dies, these options leave its retry as it is.
		next := time.Now().Add(time.Second)
		if err := jobs.Put(ctx, t.Key, t.Payload, &worqr.PutOptions{At: next, When: worqr.Never, KeepPayload: true}); err != nil {
			return err
		}
		fmt.Printf("%s\n", t.Payload)
		if runs++; runs == 3 {
			stop() // Run drains and leaves
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})

	must(jobs.EnqueueAt(ctx, time.Now().Add(time.Second/2), []byte("remind")))
	// At once, unless it is planned: every replica may do this when it starts.
	check(jobs.Put(ctx, "cleanup", []byte("clean up"), &worqr.PutOptions{When: worqr.Never, KeepPayload: true}))
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
