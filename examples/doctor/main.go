// Command doctor explains where a task is, damages a queue, and repairs it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
)

func main() {
	ctx := context.Background()
	url, prefix := cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), cmp.Or(os.Getenv("WORQR_PREFIX"), "worqr")
	peer := must(worqr.Open(url, &worqr.Options{Prefix: prefix, Lease: time.Second}))
	defer peer.Close()
	scans := peer.Queue("scans")

	check(scans.Enqueue(ctx, []byte("cat")))
	fmt.Println(must(scans.Explain(ctx, worqr.Query{Payload: []byte("cat")})))

	check(peer.StartWorker(ctx))
	check(scans.StartWork(ctx))
	must(scans.StartTask(ctx))
	conn := must(redis.DialURL(url))
	defer conn.Close()
	must(conn.Do("DEL", prefix+":working:{scans}:"+peer.WorkerID())) // as if Redis had lost it

	report := must(peer.Check(ctx, nil)) // changes nothing
	fmt.Println("the worst:", report.Findings[0].Severity, report.Findings[0].Kind)
	report = must(peer.Repair(ctx, nil))
	for _, f := range report.Findings {
		if f.Repaired {
			fmt.Println(f.Kind, "on", f.Queue+":", f.Text)
		}
	}
	fmt.Println("waiting:", must(scans.Stats(ctx)).Waiting)
	check(scans.Delete(ctx)) // so that the example can run again
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
