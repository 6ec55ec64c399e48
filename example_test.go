package worqr_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/google/uuid"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// examplePeer returns a peer of a fleet; peers with the same options belong to the same fleet.
func examplePeer(opts *worqr.Options) *worqr.Peer {
	opts.TLSConfig = redistest.TLS(redistest.URL())
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

// A task whose handler returns an error runs again, after Backoff.
func ExampleHandleOptions() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	peer := examplePeer(exampleFleet())
	defer peer.Close()

	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("retries %d, token %d\n", t.Retries, t.Token)
		switch t.Retries {
		case 0:
			return errors.New("the server is busy")
		case 1: // the error sets the delay
			return worqr.RetryAfter(errors.New("the server is busy"), 10*time.Millisecond)
		}
		cancel()
		return nil
	}, &worqr.HandleOptions{
		Timeout:    time.Minute, // of each attempt
		MaxRetries: 5,
		Backoff:    func(t *worqr.Task, _ error) time.Duration { return time.Duration(t.Retries+1) * 50 * time.Millisecond },
	})

	noError(emails.Enqueue(ctx, []byte("hello")))
	noError(peer.Run(ctx))
	// Output:
	// retries 0, token 1
	// retries 1, token 2
	// retries 2, token 3
}

// OnFailed handles the tasks that failed for good.
func ExampleHandleOptions_onFailed() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	peer := examplePeer(exampleFleet())
	defer peer.Close()

	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		return worqr.Permanent(errors.New("no such mailbox"))
	}, &worqr.HandleOptions{
		OnFailed: func(ctx context.Context, t *worqr.Task) error {
			fmt.Printf("%s: %s, %s\n", t.Failure.Kind, t.Payload, t.Failure.Error)
			cancel()
			return nil // then it's removed
		},
	})

	noError(emails.Enqueue(ctx, []byte("to bob")))
	noError(peer.Run(ctx))
	fmt.Println("left:", value(emails.Stats(context.Background())).Failed)
	// Output:
	// failed: to bob, no such mailbox
	// left: 0
}

// Failed tasks stay until someone requeues or deletes them.
func ExampleQueue_RequeueFailed() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	emails := peer.Queue("emails")
	noError(emails.Enqueue(ctx, []byte("to bob")))
	noError(peer.StartWorker(ctx))
	noError(emails.StartWork(ctx))
	noError(value(emails.StartTask(ctx)).Fail(ctx, errors.New("no such mailbox")))

	for t, err := range emails.Failed(ctx) {
		noError(err)
		fmt.Printf("%s: %s, %s\n", t.Kind, t.Payload, t.Error)
		fmt.Println("requeued:", value(emails.RequeueFailed(ctx, t.ID)))
	}
	fmt.Println("waiting:", value(emails.Stats(ctx)).Waiting)
	// Output:
	// failed: to bob, no such mailbox
	// requeued: 1
	// waiting: 1
}

// At most one task waits under a key. The task decides what it changes about the one that waits.
func ExampleQueue_Add_key() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	indexes := peer.Queue("indexes")

	value(indexes.Add(ctx, worqr.TaskSpec{Key: "manual", Payload: []byte("page 1")})) // now
	later := worqr.TaskSpec{Key: "manual", Payload: []byte("page 2"), At: time.Now().Add(time.Hour), Reschedule: worqr.RescheduleIfEarlier}
	value(indexes.Add(ctx, later)) // another payload, the same time
	for t, err := range indexes.Named(ctx) {
		noError(err)
		fmt.Printf("%s: %s, %s\n", t.Key, t.Payload, t.State)
	}
	fmt.Println("waiting:", value(indexes.Stats(ctx)).Waiting)
	// Output:
	// manual: page 2, ready
	// waiting: 1
}

// A handler may add a task under its own key, to repeat the task.
func ExampleQueue_Add_repeat() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	peer := examplePeer(exampleFleet())
	defer peer.Close()

	jobs := peer.Queue("jobs")
	jobs.Handle(func(ctx context.Context, t *worqr.Task) error {
		fmt.Printf("%s, start %d\n", t.Payload, t.Token)
		if t.Token == 3 {
			cancel()
			return nil
		}
		_, err := jobs.Add(ctx, worqr.TaskSpec{Key: t.Key, Payload: t.Payload, At: time.Now().Add(50 * time.Millisecond)})
		return err
	}, nil)

	// Every replica does this when it starts. A task that is already scheduled doesn't change.
	value(jobs.Add(ctx, worqr.TaskSpec{Key: "cleanup", Payload: []byte("clean up"), Reschedule: worqr.RescheduleNever, KeepPayload: true}))
	noError(peer.Run(ctx))
	// Output:
	// clean up, start 1
	// clean up, start 2
	// clean up, start 3
}

func ExampleQueue_Add() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	emails := peer.Queue("emails")

	key := value(emails.Add(ctx, worqr.TaskSpec{Payload: []byte("remember"), At: time.Now().Add(time.Hour)}))[0]
	noError(emails.Enqueue(ctx, []byte("hello")))
	for payload, err := range emails.Tasks(ctx) {
		noError(err)
		fmt.Printf("%s\n", payload)
	}
	for task, err := range emails.Named(ctx) {
		noError(err)
		fmt.Printf("%s: %s\n", task.State, task.Payload)
	}
	fmt.Println("removed:", value(emails.RemoveKey(ctx, key)))
	// Output:
	// hello
	// scheduled: remember
	// removed: true
}

func ExampleJSON() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	peer := examplePeer(exampleFleet())
	defer peer.Close()

	type mail struct{ To, Subject string }
	emails := peer.Queue("emails")
	emails.Handle(worqr.JSON(func(ctx context.Context, m mail, t *worqr.Task) error {
		fmt.Printf("to %s: %s\n", m.To, m.Subject)
		cancel()
		return nil
	}), nil)

	noError(emails.Enqueue(ctx, value(json.Marshal(mail{"bob", "hello"}))))
	noError(peer.Run(ctx))
	// Output:
	// to bob: hello
}

// The program reads the payload from standard input; its output is the result.
func ExampleCommand() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	shouts := peer.Queue("shouts")
	shouts.Handle(worqr.Command("tr", "a-z", "A-Z"), &worqr.HandleOptions{Timeout: time.Minute})

	for event, err := range peer.Events(ctx, "shouts") {
		noError(err)
		switch event.Kind {
		case inspect.EventSync:
			noError(shouts.Enqueue(ctx, []byte("hello")))
			go func() { noError(peer.Run(ctx)) }()
		case inspect.EventDone:
			fmt.Printf("%s\n", event.Result)
			noError(peer.Shutdown(ctx))
			return
		}
	}
	// Output:
	// HELLO
}

// Waiting copies are removed at once. A running copy is told to stop, on whichever peer it runs.
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
	fmt.Println("removed:", report.Removed)
	noError(worker.Shutdown(ctx))
	// Output:
	// worqr: the task was canceled
	// removed: 1
}

// Without Run, take tasks one by one.
func ExampleQueue_StartTask() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	photos := peer.Queue("photos")
	noError(photos.Enqueue(ctx, []byte("cat")))

	noError(peer.StartWorker(ctx)) // starts heartbeats
	noError(photos.StartWork(ctx)) // joins the queue's workers

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
	fmt.Println("waiting:", value(emails.Stats(ctx)).Waiting)
	// Output:
	// true
	// false
	// waiting: 1
}

func ExampleQueue_Add_unique() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	caches := peer.Queue("caches")
	rebuild := worqr.TaskSpec{Payload: []byte("rebuild"), Unique: true}
	value(caches.Add(ctx, rebuild))
	_, err := caches.Add(ctx, rebuild)
	fmt.Println(errors.Is(err, worqr.ErrDuplicate))
	// Output:
	// true
}

// After EventSync, the loop receives every event of the queue.
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
		case inspect.EventSync:
			noError(orders.Enqueue(ctx, []byte("a hat")))
			go func() { noError(peer.Run(ctx)) }()
		case inspect.EventWork:
			fmt.Println("tasks enqueued:", event.Count)
		case inspect.EventDone:
			fmt.Printf("%s: %s\n", event.Payload, event.Result)
			noError(peer.Shutdown(ctx))
			return
		}
	}
	// Output:
	// tasks enqueued: 1
	// a hat: shipped
}

// When a worker dies, no task is lost: FailWorker, or the heartbeat of any peer, returns its tasks
// to the front, in order.
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

	fmt.Println("returned:", value(peer.FailWorker(ctx, gone.WorkerID())))
	for payload, err := range peer.Queue("photos").Tasks(ctx) {
		noError(err)
		fmt.Printf("%s\n", payload)
	}
	fmt.Println(errors.Is(held[0].Finish(ctx), worqr.ErrNotOwner))
	// Output:
	// returned: 2
	// cat
	// dog
	// owl
	// true
}

// Check finds broken invariants, and Repair repairs them without losing a task. If Redis loses
// writes, an attempt may be left that no worker holds.
func ExamplePeer_Repair() {
	ctx := context.Background()
	fleet := exampleFleet()
	fleet.Lease = 200 * time.Millisecond // suspicions are confirmed after a lease
	peer := examplePeer(fleet)
	defer peer.Close()
	conn := value(redistest.DialURL(redistest.URL()))
	defer conn.Close()
	value(conn.Do("LPUSH", fleet.Prefix+":process:{photos}:018f", "cat"))

	fmt.Println("worst:", value(peer.Check(ctx, nil)).Findings[0].Severity)
	for _, f := range value(peer.Repair(ctx, nil)).Findings {
		if f.Queue == "photos" && f.Repaired {
			fmt.Println(f.Kind, "-", f.Text)
		}
	}
	fmt.Println("waiting:", value(peer.Queue("photos").Stats(ctx)).Waiting)
	// Output:
	// worst: stuck
	// orphan - 1 task was started and is held by no member of the queue, so no worker returns it. Returned to the front of the queue.
	// waiting: 1
}

func ExampleOptions_sources() {
	url := redistest.URL()
	pending := func(context.Context) (int, error) { return 2, nil }

	outbox := inspect.Source{
		Name: "outbox", Metrics: []inspect.Metric{{Name: "pending_rows", Help: "Rows that aren't in Redis yet."}},
		Report: func(ctx context.Context) (inspect.SourceReport, error) {
			n, err := pending(ctx)
			return inspect.SourceReport{
				Samples: []inspect.Sample{{Metric: "pending_rows", Number: float64(n)}},
				Rows:    []inspect.Row{{Label: "Pending", Text: fmt.Sprint(n)}},
			}, err
		},
	}
	peer, err := worqr.Open(url, &worqr.Options{Sources: []inspect.Source{outbox}})
	noError(err)
	defer peer.Close()
	for _, source := range peer.Sources() {
		fmt.Println(source.Name, value(source.Report(context.Background())).Rows)
	}
	// Output: outbox [{Pending 2}]
}

func ExampleQueue_Explain() {
	ctx := context.Background()
	peer := examplePeer(exampleFleet())
	defer peer.Close()
	photos := peer.Queue("photos")
	noError(photos.Enqueue(ctx, []byte("dog")))
	fmt.Println(value(photos.Explain(ctx, worqr.Query{Payload: []byte("cat")})))
	noError(photos.Enqueue(ctx, []byte("cat")))
	noError(photos.Pause(ctx))
	fmt.Println(value(photos.Explain(ctx, worqr.Query{Payload: []byte("cat")})))
	// Output:
	// No copy of the task is on "photos": it was never enqueued, or it's done, canceled or deleted. Tasks with a key are found by that, or by a header.
	// Waiting on "photos". The queue is paused; resume it. 1 task starts before it.
}

// TLS with a private certificate authority and a client certificate.
func ExampleOpen_tls() {
	pem, err := os.ReadFile("authority.pem")
	noError(err)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	certificate, err := tls.LoadX509KeyPair("client.pem", "client.key")
	noError(err)
	peer, err := worqr.Open("rediss://redis.example:6380", &worqr.Options{TLSConfig: &tls.Config{
		RootCAs:      authorities,                    // nil: those of the system
		Certificates: []tls.Certificate{certificate}, // none unless the server wants one
	}})
	noError(err)
	defer peer.Close()
}

// A peer that uses the program's own pool.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pool := &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, redistest.SingleURL())
		},
	}
	defer pool.Close()
	peer := worqr.New(pool, exampleFleet())
	defer peer.Close()
	noError(peer.Queue("emails").Enqueue(ctx, []byte("hello")))
	fmt.Println("waiting:", value(peer.Queue("emails").Stats(ctx)).Waiting)
	// Output:
	// waiting: 1
}
