// Package recurring kills peers that have recurring tasks, and checks what has occurred.
package recurring

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

const (
	prefix = "p"
	queue  = "jobs"
)

// A config configures a peer process, which is this program started again.
type config struct {
	URL       string
	Lease     time.Duration
	Deploy    int // 1 or 2; 2 lacks the schedules that retire, and has new versions of those that change
	Schedules int
}

// A report is a start of a handler.
type report struct {
	Key     string
	Payload string
	Due, At int64 // ms
	Retries int
	Crashes int
}

// Every tenth schedule retires with the second deploy, and every tenth changes.
func retires(i int) bool { return i%10 == 3 }
func changes(i int) bool { return i%10 == 7 }

// period returns the period of a schedule: 1 to 4 s, or longer if there are many.
func period(i, all int) time.Duration {
	return time.Duration(1+i%4+min(all/250, 4)) * time.Second
}

func peerMain(c config) int {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}
	p, err := worqr.Open(c.URL, &worqr.Options{Prefix: prefix, Lease: c.Lease})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	q := p.Queue(queue)
	for i := range c.Schedules {
		payload, each := "1", period(i, c.Schedules)
		if c.Deploy == 2 && retires(i) {
			continue
		}
		if c.Deploy == 2 && changes(i) {
			payload, each = "2", each+time.Second
		}
		if err := q.Every(fmt.Sprint(i), worqr.Interval(each), []byte(payload), nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		say(report{Key: t.Key, Payload: string(t.Payload), Due: t.DueAt.UnixMilli(), At: time.Now().UnixMilli(), Retries: t.Retries, Crashes: t.Crashes})
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		if rand.IntN(20) == 0 {
			return worqr.RetryAfter(fmt.Errorf("once in a while"), time.Duration(rand.IntN(300))*time.Millisecond)
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 16, MaxRetries: 1000, MaxCrashes: 1000})
	if err := p.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
