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
		fmt.Printf("%s\n", t.Payload)
		if t.Key != "cleanup" {
			return nil
		}
		if runs++; runs == 3 {
			stop() // Run drains and leaves
			return nil
		}
		return jobs.Put(ctx, t.Key, t.Payload, &worqr.PutOptions{At: time.Now().Add(time.Second)})
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
