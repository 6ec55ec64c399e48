// Command singleton puts a key many times while its task runs: runs of a key never overlap, and the
// last payload runs.
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
	indexes, running, changed := peer.Queue("indexes"), make(chan bool), make(chan bool)
	indexes.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("begin with %s\n", t.Payload)
		if string(t.Payload) == "page 1" {
			running <- true
			<-changed
		} else {
			stop() // Run drains and leaves
		}
		fmt.Printf("end with %s\n", t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	go func() {
		must(indexes.Add(ctx, worqr.TaskSpec{Key: "manual", Payload: []byte("page 1")}))
		<-running
		for page := 2; page <= 9; page++ { // one run, at the earliest time, with the last payload
			at := time.Now().Add(time.Duration(page) * time.Second / 4)
			must(indexes.Add(ctx, worqr.TaskSpec{Key: "manual", Payload: fmt.Appendf(nil, "page %d", page), At: at, Reschedule: worqr.RescheduleIfEarlier}))
		}
		close(changed)
	}()
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
