// Command retry shows retries, a permanent failure, and requeueing a failed
// task.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr"
)

func main() {
	ctx := context.Background()
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")}))
	mails, sent := peer.Queue("mails"), make(chan bool)
	var repaired atomic.Bool
	mails.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("attempt %d\n", t.Retries+1)
		switch {
		case repaired.Load():
			close(sent)
			return nil
		case t.Retries == 0:
			return errors.New("connection refused") // again after Backoff
		case t.Retries == 1:
			return worqr.RetryAfter(errors.New("busy"), time.Second/2) // again after half a second
		}
		return worqr.Permanent(errors.New("no such mailbox")) // retrying won't help
	}, &worqr.HandleOptions{Backoff: func(t *worqr.Task, _ error) time.Duration { return time.Duration(t.Retries+1) * time.Second / 4 }})
	go func() { check(peer.Run(ctx)) }()

	check(mails.Enqueue(ctx, []byte("to bob")))
	for must(mails.Stats(ctx)).Failed == 0 {
		time.Sleep(time.Second / 10)
	}
	for t, err := range mails.Failed(ctx) {
		check(err)
		fmt.Printf("failed after %d retries: %s, %s\n", t.Retries, t.Payload, t.Error)
	}
	repaired.Store(true)
	fmt.Println("the mailbox is there now")
	must(mails.RequeueAllFailed(ctx))
	<-sent
	check(peer.Shutdown(ctx))
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
