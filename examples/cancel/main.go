// Command cancel stops a task that runs in one peer from another, and waits
// until it has stopped.
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
	url := cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379")
	fleet := &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")}
	worker, elsewhere := must(worqr.Open(url, fleet)), must(worqr.Open(url, fleet))

	running := make(chan bool)
	worker.Queue("reports").Handle(func(ctx context.Context, t *worqr.Task) error {
		running <- true
		<-ctx.Done()
		fmt.Println("the handler's context has ended:", context.Cause(ctx))
		return ctx.Err()
	}, nil)
	go func() { check(worker.Run(ctx)) }()

	reports := elsewhere.Queue("reports")
	check(reports.Enqueue(ctx, []byte("november")))
	<-running
	report := must(reports.Cancel(ctx, []byte("november")))
	check(report.Wait(ctx))
	fmt.Println("removed:", report.Removed)
	check(worker.Shutdown(ctx))
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
