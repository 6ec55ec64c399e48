package worqrtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

var (
	services = flag.Int("services", 10, "how many random services TestServices makes")
	seed     = flag.Uint64("seed", 0, "the seed of TestServices; 0 is a new one")
)

// Any service becomes ready, and runs its tasks, in virtual and in real time.
func TestServices(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed=%d", *seed)
	var virtual, real []time.Duration
	for round := range *services {
		r := rand.New(rand.NewPCG(*seed, uint64(round)))
		if r.IntN(2) == 0 {
			Virtual(t, func(t *testing.T, redis *Redis) { virtual = append(virtual, serveRandom(t, redis, 60, 3, r)) })
		} else {
			t.Run("real", func(t *testing.T) { real = append(real, serveRandom(t, Start(t), 30, 2, r)) })
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	for what, took := range map[string][]time.Duration{"virtual": virtual, "real": real} {
		if slices.Sort(took); len(took) > 0 {
			if what == "virtual" && took[len(took)-1] > time.Second {
				t.Errorf("a service needed %v of virtual time to become ready", took[len(took)-1])
			}
			t.Logf("%s: %d services, ready after p50 %v, p99 %v, max %v", what, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		}
	}
}

// serveRandom runs a random service of a few peers, and returns how long the slowest took to become ready.
func serveRandom(t *testing.T, redis *Redis, queueLimit, peerLimit int, r *rand.Rand) time.Duration {
	ctx, ready := t.Context(), time.Duration(0)
	opts := worqr.Options{Name: strings.Repeat("n", r.IntN(200)), FailureLog: worqr.LogPanics}
	opts.Lease = patience // on a busy machine, the default may be over before a peer gets its turn
	if r.IntN(3) == 0 {
		opts.Prefix = strings.Repeat("p", 1+r.IntN(255))
	}
	names := make([]string, 1+r.IntN(queueLimit))
	for i := range names {
		names[i] = fmt.Sprint(i, strings.Repeat("q", r.IntN(150)))
	}
	done := make(chan string, 1000)
	for range 1 + r.IntN(peerLimit) {
		peer := redis.Peer(&opts)
		for _, name := range names {
			randomQueue(t, peer.Queue(name), done, r)
		}
		began := time.Now()
		peer.Serve()
		for peer.Ready() != nil {
			if time.Since(began) > time.Minute { // in real time, the machine may be busy
				t.Fatalf("not ready with %d queues: %v", len(names), peer.Ready())
			}
			time.Sleep(time.Millisecond)
		}
		ready = max(ready, time.Since(began))
	}
	var queues []*worqr.Queue
	peer := redis.Peer(&opts)
	for _, name := range names {
		queues = append(queues, peer.Queue(name))
		_, err := queues[len(queues)-1].Add(ctx, worqr.TaskSpec{Payload: []byte(name), Headers: map[string]string{"type": "a"}})
		must(t, err)
	}
	WaitIdle(t, queues...)
	ran := map[string]bool{}
	for range names {
		ran[<-done] = true
	}
	if len(ran) != len(names) {
		t.Errorf("%d of %d queues ran their tasks", len(ran), len(names))
	}
	return ready
}

// randomQueue handles a queue with random options.
func randomQueue(t *testing.T, q *worqr.Queue, done chan<- string, r *rand.Rand) {
	var once sync.Map
	tell := func(payload []byte) {
		if _, told := once.LoadOrStore(string(payload), true); !told {
			done <- string(payload)
		}
	}
	opts := worqr.HandleOptions{Concurrency: r.IntN(20), Exclusive: r.IntN(4) == 0, Prefetch: r.IntN(3) - 1}
	if r.IntN(2) == 0 {
		opts.OnFailed = func(_ context.Context, task *worqr.Task) error {
			tell(task.Payload)
			return nil
		}
	}
	handler := func(_ context.Context, task *worqr.Task) error {
		if string(task.Payload) == "recurring" {
			return nil
		}
		if opts.OnFailed != nil {
			return worqr.Permanent(errors.New("fails"))
		}
		tell(task.Payload)
		return nil
	}
	switch r.IntN(3) {
	case 0:
		q.Handle(handler, &opts)
	case 1:
		q.Handle(worqr.Mux(map[string]worqr.Handler{"a": handler, "": handler}), &opts)
	case 2:
		opts.Concurrency = 1 + r.IntN(3)
		q.HandleBatch(func(ctx context.Context, tasks []*worqr.Task) (errs []error) {
			for _, task := range tasks {
				errs = append(errs, handler(ctx, task))
			}
			return errs
		}, &worqr.BatchOptions{HandleOptions: opts, Size: 1 + r.IntN(50), Wait: time.Duration(r.IntN(50)) * time.Millisecond})
	}
	for i := range r.IntN(3) * r.IntN(8) {
		key := fmt.Sprint(i, strings.Repeat("k", r.IntN(900)))
		must(t, q.Every(key, worqr.Interval(time.Duration(1+r.IntN(100))*time.Hour), []byte("recurring"), nil))
	}
}

// A service with many queues becomes ready: what it sends before it reads is more than any buffer of
// the driver.
func TestManyQueues(t *testing.T) {
	serve := func(t *testing.T, redis *Redis) {
		peer := redis.Peer(nil)
		for i := range 50 {
			peer.Queue(fmt.Sprint(i, strings.Repeat("q", 200))).Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		}
		peer.Serve()
		for began := time.Now(); peer.Ready() != nil; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal(peer.Ready())
			}
		}
	}
	t.Run("virtual", func(t *testing.T) { Virtual(t, serve) })
	t.Run("real", func(t *testing.T) { serve(t, Start(t)) })
}
