package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/google/uuid"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// example returns a peer of a fleet; peers with the same options are one.
func examplePeer(opts *worqr.Options) *worqr.Peer {
	return value(worqr.Open(redistest.URL(), opts))
}

func exampleFleet() *worqr.Options {
	return &worqr.Options{Prefix: "example-" + uuid.NewString(), Logger: slog.New(slog.DiscardHandler)}
}

func value[T any](v T, err error) T {
	noError(err)
	return v
}

func noError(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleQueue_Handle() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	peer := examplePeer(exampleFleet())
	defer peer.Close()

	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("sending %s\n", t.Payload)
		if string(t.Payload) == "goodbye" {
			cancel() // Run drains and leaves
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})

	noError(emails.Enqueue(ctx, []byte("hello"), []byte("how are you"), []byte("goodbye")))
	noError(peer.Run(ctx))
	fmt.Println("finished:", peer.Stats().Finished)
	// Output:
	// sending hello
	// sending how are you
	// sending goodbye
	// finished: 3
}

// A handler that returns an error gets the task again.
func ExampleQueue_Handle_error() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	peer := examplePeer(exampleFleet())
	defer peer.Close()

	attempt := 0
	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		attempt++
		fmt.Printf("attempt %d, token %d\n", attempt, t.Token)
		if attempt == 1 {
			return errors.New("the server is busy")
		}
		cancel()
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})

	noError(emails.Enqueue(ctx, []byte("hello")))
	noError(peer.Run(ctx))
	// Output:
	// attempt 1, token 1
	// attempt 2, token 2
}

// What waits is removed at once; what runs is told to stop, in whatever peer.
func ExampleQueue_Cancel() {
	ctx := context.Background()
	fleet := exampleFleet()
	worker, elsewhere := examplePeer(fleet), examplePeer(fleet)
	defer elsewhere.Close()
	defer worker.Close()

	running := make(chan bool)
	worker.Queue("reports").Handle(func(ctx context.Context, t *worqr.Task) error {
		running <- true
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	}, &worqr.HandleOptions{Concurrency: 1})
	go func() { noError(worker.Run(ctx)) }()

	reports := elsewhere.Queue("reports")
	noError(reports.Enqueue(ctx, []byte("november"), []byte("november")))
	<-running
	report := value(reports.Cancel(ctx, []byte("november")))
	noError(report.Wait(ctx))
	fmt.Printf("removed %d, stopped %d, finished %d\n", report.Removed, report.Stopped, report.Finished)
	noError(worker.Shutdown(ctx))
	// Output:
	// worqr: the task was canceled
	// removed 1, stopped 1, finished 0
}

// Without Run: take tasks one by one.
func ExampleQueue_StartTask() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	photos := peer.Queue("photos")
	noError(photos.Enqueue(ctx, []byte("cat")))

	noError(peer.StartWorker(ctx)) // from here on the peer beats
	noError(photos.StartWork(ctx)) // and serves the queue

	task := value(photos.StartTask(ctx))
	fmt.Printf("started %s\n", task.Payload)
	noError(task.Stop(ctx)) // back to the front

	task = value(photos.StartTask(ctx))
	fmt.Printf("started %s again, token %d\n", task.Payload, task.Token)
	noError(task.Finish(ctx))

	_, err := photos.StartTask(ctx)
	fmt.Println(errors.Is(err, worqr.ErrNoTask), err)
	// Output:
	// started cat
	// started cat again, token 2
	// true worqr: start task on "photos": no task
}

// The nonce makes an enqueue safe to repeat when its outcome is unknown.
func ExampleQueue_EnqueueOnce() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	emails := peer.Queue("emails")
	for range 2 {
		fmt.Println(value(emails.EnqueueOnce(ctx, "request 7", []byte("hello"))))
	}
	fmt.Println("waiting:", value(emails.Len(ctx)))
	// Output:
	// true
	// false
	// waiting: 1
}

func ExampleQueue_EnqueueUnique() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	caches := peer.Queue("caches")
	fmt.Println(caches.EnqueueUnique(ctx, []byte("rebuild")))
	fmt.Println(errors.Is(caches.EnqueueUnique(ctx, []byte("rebuild")), worqr.ErrDuplicate))
	// Output:
	// <nil>
	// true
}

// The loop is told of everything that happens on the queue after EventSync.
func ExamplePeer_Events() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	orders := peer.Queue("orders")
	orders.Handle(func(ctx context.Context, t *worqr.Task) error {
		t.Result = []byte("shipped")
		return nil
	}, nil)

	for event, err := range peer.Events(ctx, "orders") {
		noError(err)
		switch event.Kind {
		case worqr.EventSync:
			noError(orders.Enqueue(ctx, []byte("a hat")))
			go func() { noError(peer.Run(ctx)) }()
		case worqr.EventWork:
			fmt.Println("tasks enqueued:", event.Count)
		case worqr.EventDone:
			fmt.Printf("%s: %s\n", event.Payload, event.Result)
			noError(peer.Shutdown(ctx))
			return
		}
	}
	// Output:
	// tasks enqueued: 1
	// a hat: shipped
}

// A worker that went away leaves nothing lost: FailWorker, or the beats of any
// peer, put what it held back to the front, in its order.
func ExamplePeer_FailWorker() {
	ctx := context.Background()
	fleet := exampleFleet()
	gone, peer := examplePeer(fleet), examplePeer(fleet)
	defer peer.Close()
	defer gone.Close()
	noError(peer.Queue("photos").Enqueue(ctx, []byte("cat"), []byte("dog"), []byte("owl")))

	noError(gone.StartWorker(ctx))
	noError(gone.Queue("photos").StartWork(ctx))
	held := value(gone.Queue("photos").StartTasks(ctx, 2))

	fmt.Println("returned:", value(peer.FailWorker(ctx, gone.ID())))
	for payload, err := range peer.Queue("photos").Tasks(ctx) {
		noError(err)
		fmt.Printf("%s\n", payload)
	}
	fmt.Println(errors.Is(held[0].Finish(ctx), worqr.ErrLost))
	// Output:
	// returned: 2
	// cat
	// dog
	// owl
	// true
}

// A peer on a pool of the program's own.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pool := &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, redistest.URL())
		},
	}
	defer pool.Close()
	peer := worqr.New(pool, exampleFleet())
	defer peer.Close()
	noError(peer.Queue("emails").Enqueue(ctx, []byte("hello")))
	fmt.Println("waiting:", value(peer.Queue("emails").Len(ctx)))
	// Output:
	// waiting: 1
}
