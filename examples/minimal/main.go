package main

import (
	"context"
	"log"
	"os"

	"github.com/worqr/worqr"
)

func main() {
	peer, err := worqr.Open(os.Getenv("REDIS_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	peer.Queue("mails").Handle(func(ctx context.Context, t *worqr.Task) error {
		return log.Output(1, "sending to "+string(t.Payload)) // if this is an error, it's retried
	}, nil)
	if err := peer.Queue("mails").Enqueue(context.Background(), []byte("ann@example.com")); err != nil {
		log.Fatal(err)
	}
	log.Fatal(peer.Run(context.Background())) // when its context ends, Run drains
}
