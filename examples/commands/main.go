// Command commands runs a program for each task, and kills one that takes too
// long.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")}))
	naps := peer.Queue("naps")
	naps.Handle(worqr.Command("sh", "-c", "read seconds; sleep $seconds; echo slept $seconds s"), &worqr.HandleOptions{
		Timeout:    3 * time.Second,
		MaxRetries: -1,
		OnFailed: func(ctx context.Context, t *worqr.Task) error {
			fmt.Println(t.Failure.Error)
			stop() // Run drains and leaves
			return nil
		},
	})
	go func() {
		for event, err := range peer.Events(ctx, "naps") {
			check(err)
			switch event.Kind {
			case inspect.EventSync:
				check(naps.Enqueue(ctx, []byte("0")))
			case inspect.EventDone:
				fmt.Printf("%s", event.Result)
				check(naps.Enqueue(ctx, []byte("60")))
			}
		}
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
