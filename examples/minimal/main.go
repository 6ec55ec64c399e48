package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/worqr/worqr"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	peer, err := worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), nil)
	if err != nil {
		log.Fatal(err)
	}
	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("sending %s\n", t.Payload)
		return nil
	}, nil)
	if err := emails.Enqueue(ctx, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	if err := peer.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
