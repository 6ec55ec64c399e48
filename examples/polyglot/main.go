// Command polyglot handles messages that other languages enqueue: leave it running, and call produce.sh
// or produce.py.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/worqr/worqr"
)

type message struct{ To, Text string }

func send(_ context.Context, m message, _ *worqr.Task) error {
	fmt.Printf("to %s: %s\n", m.To, m.Text)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	peer, err := worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), nil)
	check(err)
	peer.Queue("messages").Handle(worqr.JSON(send), nil)
	check(peer.Run(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
