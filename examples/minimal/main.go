package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/worqr/worqr"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                         // so that a second signal does not wait
	peer, err := worqr.Open(os.Getenv("REDIS_URL"), nil) // redis://localhost:6379
	if err != nil {
		log.Fatal(err)
	}
	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		log.Printf("sending %s", t.Payload)
		return nil
	}, nil)
	log.Println("enqueue hello, error:", emails.Enqueue(ctx, []byte("hello")))
	if err := peer.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
