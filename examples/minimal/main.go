package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/worqr/worqr"
)

type Mail struct{ To, Subject string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	peer, err := worqr.Open(os.Getenv("REDIS_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	mails := peer.Queue("mails")
	mails.Handle(worqr.JSON(func(ctx context.Context, m Mail, t *worqr.Task) error {
		log.Printf("sending %q to %s", m.Subject, m.To)
		return nil // or an error: then it's retried
	}), &worqr.HandleOptions{Concurrency: 16})
	if err := worqr.EnqueueJSON(ctx, mails, Mail{"ann@example.com", "hello"}); err != nil {
		log.Print(err)
	}
	if err := peer.Run(ctx); err != nil { // until a signal; then it drains
		log.Fatal(err)
	}
}
