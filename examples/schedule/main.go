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

func main() {
	ctx, stop := context.WithCancel(context.Background())
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")}))
	jobs, runs := peer.Queue("jobs"), 0

	check(jobs.Every("cleanup", worqr.Interval(time.Second), []byte("clean up"), nil))
	jobs.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("%s\n", t.Payload)
		if t.Key != "cleanup" {
			return nil
		}
		switch runs++; runs {
		case 1:
			must(jobs.Add(ctx, worqr.TaskSpec{Payload: []byte("remind"), At: time.Now().Add(time.Second / 2)}))
		case 3:
			stop() // Run drains and leaves
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
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
