package api

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// The functions below hold lines that README.md and docs/recipes.md show, and
// TestDocsRecipes runs them. TestReadmeCode looks for the lines.

var (
	errBusy     = errors.New("busy")
	errDeclined = errors.New("declined")
)

func recipeVerdicts(charges *worqr.Queue, charge func(ctx context.Context, order []byte) error) {
	charges.Handle(func(ctx context.Context, t *worqr.Task) error {
		err := charge(ctx, t.Payload)
		switch {
		case errors.Is(err, errBusy):
			return worqr.RetryAfter(err, time.Minute)
		case errors.Is(err, errDeclined):
			return worqr.Permanent(err) // to the failed queue at once
		}
		return err // nil: finished
	}, &worqr.HandleOptions{Timeout: time.Minute, MaxRetries: 5})
}

func recipeFailed(ctx context.Context, charges *worqr.Queue) error {
	for t, err := range charges.Failed(ctx) { // newest first
		if err != nil {
			return err
		}
		fmt.Println(t.ID, t.Kind, t.Retries, t.Error)
	}
	n, err := charges.RequeueAllFailed(ctx) // or RequeueFailed(ctx, id), DeleteFailed(ctx, id)
	if err != nil {
		return err
	}
	fmt.Println(n, "will run again")
	return nil
}

func recipeOnFailed(charges *worqr.Queue, handle worqr.Handler, alert func(ctx context.Context, order []byte, reason string) error) {
	charges.Handle(handle, &worqr.HandleOptions{
		OnFailed: func(ctx context.Context, t *worqr.Task) error {
			return alert(ctx, t.Payload, t.Failure.Error) // nil: the task is gone
		},
	})
}

func recipeDelay(ctx context.Context, mails *worqr.Queue, reminder []byte) (string, error) {
	key, err := mails.EnqueueAt(ctx, time.Now().Add(24*time.Hour), reminder)
	return key, err
}

func recipeKey(ctx context.Context, indexes *worqr.Queue, page []byte) error {
	err := indexes.Put(ctx, "customer-7", page, nil)
	return err
}

func recipeDebounce(ctx context.Context, indexes *worqr.Queue, page []byte) error {
	err := indexes.Put(ctx, "customer-7", page, &worqr.PutOptions{At: time.Now().Add(5 * time.Second), Reschedule: worqr.RescheduleNever})
	return err
}

func recipeUnique(ctx context.Context, caches *worqr.Queue) error {
	err := caches.EnqueueUnique(ctx, []byte("rebuild"))
	if errors.Is(err, worqr.ErrDuplicate) {
		err = nil // an equal task is waiting or running
	}
	return err
}

func recipeOnce(ctx context.Context, orders *worqr.Queue, requestID string, order []byte) error {
	_, err := orders.EnqueueOnce(ctx, requestID, order)
	if errors.Is(err, worqr.ErrUnknownOutcome) { // the reply was lost
		_, err = orders.EnqueueOnce(ctx, requestID, order)
	}
	return err
}

func recipeCancel(ctx context.Context, reports *worqr.Queue) error {
	report, err := reports.Cancel(ctx, []byte("november"))
	if err != nil {
		return err
	}
	return report.Wait(ctx) // until no copy is running
}

func recipeEvents(ctx context.Context, peer *worqr.Peer) {
	for event, err := range peer.Events(ctx, "orders") {
		if err != nil {
			log.Print(err) // Redis can't be reached; the loop goes on
			continue
		}
		if event.Kind == worqr.EventDone {
			fmt.Printf("%s: %s\n", event.Payload, event.Result)
		}
	}
}

func recipeProgram(reports *worqr.Queue) {
	reports.Handle(worqr.Command("/usr/local/bin/report", "--pdf"), &worqr.HandleOptions{Timeout: time.Hour})
}

func recipeShutdown(ctx context.Context, pages []string, export func(page string) error) error {
	for _, page := range pages {
		if ctx.Err() != nil {
			return context.Cause(ctx) // ErrShutdown: back to the front of the queue
		}
		if err := export(page); err != nil {
			return err
		}
	}
	return nil
}

func recipeDrain(url string) (*worqr.Peer, error) {
	peer, err := worqr.Open(url, &worqr.Options{Drain: 10 * time.Second})
	return peer, err
}

func recipeCapacity(url string, resize, transcode worqr.Handler) (*worqr.Peer, error) {
	peer, err := worqr.Open(url, &worqr.Options{Capacity: 8})
	if err != nil {
		return nil, err
	}
	peer.Queue("thumbnails").Handle(resize, &worqr.HandleOptions{Concurrency: 8, Priority: 1})
	peer.Queue("videos").Handle(transcode, &worqr.HandleOptions{Concurrency: 2, Weight: 4})
	return peer, nil
}

// The recipes do what the documents say.
func TestDocsRecipes(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})

	charges := p.Queue("charges")
	recipeVerdicts(charges, func(_ context.Context, order []byte) error {
		switch string(order) {
		case "busy":
			return errBusy
		case "declined":
			return errDeclined
		}
		return nil
	})
	started, ran := make(chan struct{}), make(chan error, 1)
	start := sync.OnceFunc(func() { close(started) }) // both copies may run
	running, cancel := context.WithCancel(ctx)
	reports := p.Queue("reports")
	reports.Handle(func(ctx context.Context, _ *worqr.Task) error {
		start()
		<-ctx.Done()
		return context.Cause(ctx)
	}, nil)
	go func() { ran <- p.Run(running) }()
	is.NoErr(charges.Enqueue(ctx, []byte("busy"), []byte("declined"), []byte("well")))
	eventually(t, "one is finished, one waits for a minute, and one has failed", func() bool {
		s := sure(charges.Stats(ctx))(t)
		return p.Stats().Finished == 1 && s.Scheduled == 1 && s.Failed == 1
	})
	is.NoErr(reports.Enqueue(ctx, []byte("november"), []byte("november")))
	receiveClosed(t, started)
	is.NoErr(recipeCancel(ctx, reports))
	cancel()
	is.NoErr(<-ran)

	is.NoErr(recipeFailed(ctx, charges))
	is.Equal(sure(charges.Stats(ctx))(t).Failed, 0)

	mails := p.Queue("mails")
	is.True(sure(mails.RemoveKey(ctx, sure(recipeDelay(ctx, mails, []byte("reminder")))(t)))(t))

	indexes := p.Queue("indexes")
	only := func() worqr.ScheduledTask {
		var all []worqr.ScheduledTask
		for task := range each(t, indexes.Scheduled(ctx)) {
			all = append(all, task)
		}
		is.Equal(len(all), 1)
		return all[0]
	}
	is.NoErr(recipeDebounce(ctx, indexes, []byte("page 1")))
	first := only()
	is.NoErr(recipeDebounce(ctx, indexes, []byte("page 2")))
	is.Equal(only().DueAt, first.DueAt) // the first time, the last payload
	is.Equal(string(only().Payload), "page 2")
	is.NoErr(recipeKey(ctx, indexes, []byte("page 3")))
	is.True(only().DueAt.Before(first.DueAt))

	caches := p.Queue("caches")
	orders := p.Queue("orders")
	for range 2 {
		is.NoErr(recipeUnique(ctx, caches))
		is.NoErr(recipeOnce(ctx, orders, "request 7", []byte("a hat")))
	}
	for _, q := range []*worqr.Queue{caches, orders} {
		is.Equal(sure(q.Len(ctx))(t), 1)
	}

	stopped, end := context.WithCancelCause(ctx)
	var exported []string
	err := recipeShutdown(stopped, []string{"a", "b"}, func(page string) error {
		exported = append(exported, page)
		end(worqr.ErrShutdown)
		return nil
	})
	is.Equal(err, worqr.ErrShutdown)
	is.Equal(exported, []string{"a"})
	nothing := func(context.Context, *worqr.Task) error { return nil }
	for _, opens := range []func() (*worqr.Peer, error){
		func() (*worqr.Peer, error) { return recipeDrain("redis://localhost") },
		func() (*worqr.Peer, error) { return recipeCapacity("redis://localhost", nothing, nothing) },
	} {
		is.NoErr(sure(opens())(t).Close())
	}

	p = open(t, worqr.Options{})
	recipeProgram(p.Queue("reports"))
	alerted := make(chan string, 1)
	refuse := func(context.Context, *worqr.Task) error { return worqr.Permanent(errDeclined) }
	recipeOnFailed(p.Queue("charges"), refuse, func(_ context.Context, order []byte, reason string) error {
		alerted <- fmt.Sprintf("%s: %s", order, reason)
		return nil
	})
	run(t, p)
	is.NoErr(p.Queue("charges").Enqueue(ctx, []byte("order 7")))
	is.Equal(receive(t, alerted, 1), []string{"order 7: declined"})
	over, leave := context.WithCancel(ctx)
	leave()
	recipeEvents(over, p)
}
