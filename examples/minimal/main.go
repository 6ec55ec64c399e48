package main

import (
	"context"
	"log"
	"os"

	"github.com/worqr/worqr"
)

func main() {
	peer, err := worqr.Open(os.Getenv("REDIS_URL"), nil) // redis://localhost:6379
	if err != nil {
		log.Fatal(err)
	}
	emails, ctx := peer.Queue("emails"), context.Background()
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		log.Printf("sending %s", t.Payload)
		return nil
	}, nil)
	log.Println("enqueue hello, error:", emails.Enqueue(ctx, []byte("hello")))
	log.Fatal(peer.Run(ctx))
}
