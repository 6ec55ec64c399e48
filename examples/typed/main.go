// Command typed uses JSON payloads, and shows what happens to an invalid one.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/worqr/worqr"
)

type mail struct{ To, Subject string }

func main() {
	ctx, stop := context.WithCancel(context.Background())
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")}))
	letters := peer.Queue("letters")
	letters.Handle(worqr.JSON(func(ctx context.Context, m mail, t *worqr.Task) error {
		fmt.Printf("to %s: %s\n", m.To, m.Subject)
		return nil
	}), &worqr.HandleOptions{
		Concurrency: 1,
		OnFailed: func(ctx context.Context, t *worqr.Task) error {
			fmt.Printf("%s, %s: %s\n", t.Failure.Kind, t.Payload, t.Failure.Error)
			stop() // Run drains and leaves
			return nil
		},
	})

	hello, goodbye := must(json.Marshal(mail{"bob", "hello"})), must(json.Marshal(mail{"eve", "goodbye"}))
	check(letters.Enqueue(ctx, hello, goodbye, []byte("to bob")))
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
