package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/worqr/worqr"
)

type mail struct{ To, Subject string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	peer, err := worqr.Open(os.Getenv("REDIS_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	mails := peer.Queue("mails")
	mails.Handle(worqr.JSON(func(ctx context.Context, m mail, t *worqr.Task) error {
		return log.Output(1, "sending to "+m.To) // returning an error retries the task
	}), nil)
	welcome, _ := json.Marshal(mail{"ann@example.com", "Welcome"}) // can't fail: there are only strings
	if err := mails.Enqueue(ctx, welcome); err != nil {
		log.Fatal(err)
	}
	if err := peer.Run(ctx); err != nil { // when ctx ends, running tasks get time to finish
		log.Fatal(err)
	}
}
