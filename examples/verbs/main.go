// Command verbs takes tasks one by one, without Run and without handlers.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/worqr/worqr"
)

func main() {
	ctx := context.Background()
	peer := must(worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")}))
	photos := peer.Queue("photos")
	check(photos.Enqueue(ctx, []byte("cat"), []byte("dog")))

	check(peer.StartWorker(ctx)) // registers the peer and starts heartbeats
	check(photos.StartWork(ctx)) // serves the queue

	task := must(photos.StartTask(ctx))
	fmt.Printf("stop %s\n", task.Payload)
	check(task.Stop(ctx)) // back to the front
	for range 2 {
		task = must(photos.StartTask(ctx))
		fmt.Printf("finish %s\n", task.Payload)
		check(task.Finish(ctx))
	}
	fmt.Println("wait:", must(photos.Stats(ctx)).Waiting)
	check(peer.StopWorker(ctx)) // returns unfinished tasks and leaves the fleet
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
