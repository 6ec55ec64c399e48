// Command events watches a queue while a task goes through it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

func main() {
	ctx := context.Background()
	peer, err := worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")})
	check(err)
	orders := peer.Queue("orders")
	orders.Handle(func(ctx context.Context, t *worqr.Task) error {
		t.Result = []byte("shipped")
		return nil
	}, nil)

	for event, err := range peer.Events(ctx, "orders") {
		check(err)
		switch event.Kind {
		case inspect.EventSync: // no event is missed from here on
			check(orders.Enqueue(ctx, []byte("a hat")))
			go func() { check(peer.Run(ctx)) }()
		case inspect.EventWork:
			fmt.Println("tasks enqueued:", event.Count)
		case inspect.EventDone:
			fmt.Printf("%s: %s\n", event.Payload, event.Result)
			check(peer.Shutdown(ctx))
			return
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
