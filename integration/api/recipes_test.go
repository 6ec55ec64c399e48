package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/worqrtrace"
)

// The functions below contain lines shown in README.md and in docs/, which TestReadmeCode looks
// for. TestDocsRecipes runs them.

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

func recipeTrace(url string, waited, ended *atomic.Int64) (*worqr.Peer, error) {
	trace := &worqrtrace.Trace{
		Started: func(t worqrtrace.Task) { waited.Add(int64(t.Waited)) },
		Ended: func(t worqrtrace.Task) {
			ended.Add(1)
			if t.Outcome == worqrtrace.Failed {
				log.Printf("%s: attempt %s failed for good: %s", t.Queue, t.AttemptID, t.Error)
			}
		},
	}
	peer, err := worqr.Open(url, &worqr.Options{Trace: trace})
	return peer, err
}

func recipeProbes(peer *worqr.Peer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", peer.Livez())
	mux.Handle("GET /readyz", peer.Readyz())
	return mux
}

func recipeLater(imports *worqr.Queue, isUploaded func(ctx context.Context, file []byte) (bool, error)) {
	imports.Handle(func(ctx context.Context, t *worqr.Task) error {
		ready, err := isUploaded(ctx, t.Payload)
		if err == nil && !ready {
			return worqr.Snooze(time.Minute) // look again, as often as it takes
		}
		return err
	}, nil)
}

func recipeBatch(rows *worqr.Queue, insert func(context.Context, []*worqr.Task) error) {
	rows.HandleBatch(func(ctx context.Context, tasks []*worqr.Task) []error {
		errs := make([]error, len(tasks))
		if err := insert(ctx, tasks); err != nil { // one statement: all or none
			for i := range errs {
				errs[i] = err
			}
		}
		return errs
	}, &worqr.BatchOptions{Size: 500, Wait: 50 * time.Millisecond})
}

func recipeEvery(jobs *worqr.Queue) error {
	err := jobs.Every("cleanup", worqr.Interval(time.Second), []byte("clean up"), nil)
	return err
}

func recipeUse(p *worqr.Peer) {
	p.Use(func(next worqr.Handler) worqr.Handler {
		return func(ctx context.Context, t *worqr.Task) error {
			began := time.Now()
			err := next(ctx, t)
			if err != nil && !worqr.IsSnooze(err) {
				log.Printf("%s: error after %v: %v", t.Queue, time.Since(began), err)
			}
			return err
		}
	})
}

func recipeUnhandle(ctx context.Context, tenant *worqr.Queue, handle worqr.Handler) error {
	tenant.Handle(handle, nil)

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := tenant.Unhandle(ctx)
	return err
}

func recipeDraining(parts iter.Seq[string], save func(string) error, work func(context.Context, string)) worqr.Handler {
	return func(ctx context.Context, t *worqr.Task) error {
		for part := range parts {
			select {
			case <-t.Draining():
				if err := save(part); err != nil {
					return err
				}
				return worqr.Snooze(0) // another peer continues from there
			default:
				work(ctx, part)
			}
		}
		return nil
	}
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
			return alert(ctx, t.Payload, t.Failure.Error) // nil: the task is deleted
		},
	})
}

func recipeProperties(ctx context.Context, charges *worqr.Queue, order []byte, traceparent, requestID string) ([]string, error) {
	keys, err := charges.Add(ctx, worqr.TaskSpec{
		Payload:    order,
		Headers:    map[string]string{"traceparent": traceparent},
		Expires:    time.Now().Add(time.Hour), // afterwards it fails, as inspect.FailureExpired
		MaxRetries: 3,
		Once:       requestID, // repeating the call returns the first call's key
	})
	return keys, err
}

func recipeMux(ctx context.Context, charges *worqr.Queue, charge, refund func(context.Context, money, *worqr.Task) error) ([]string, error) {
	charges.Handle(worqr.Mux(map[string]worqr.Handler{
		"charge": worqr.JSON(charge),
		"refund": worqr.JSON(refund),
	}), nil)
	payload, err := json.Marshal(money{"bob", 7})
	if err != nil {
		return nil, err
	}
	keys, err := charges.Add(ctx, worqr.TaskSpec{Payload: payload, Headers: map[string]string{"type": "refund"}})
	return keys, err
}

func recipeDelay(ctx context.Context, mails *worqr.Queue, reminder []byte) ([]string, error) {
	keys, err := mails.Add(ctx, worqr.TaskSpec{Payload: reminder, At: time.Now().Add(24 * time.Hour)})
	return keys, err
}

func recipeKey(ctx context.Context, indexes *worqr.Queue, page []byte) error {
	_, err := indexes.Add(ctx, worqr.TaskSpec{Key: "customer-7", Payload: page})
	return err
}

func recipeDebounce(ctx context.Context, indexes *worqr.Queue, page []byte) error {
	_, err := indexes.Add(ctx, worqr.TaskSpec{Key: "customer-7", Payload: page, At: time.Now().Add(5 * time.Second), Reschedule: worqr.RescheduleNever})
	return err
}

func recipeUnique(ctx context.Context, caches *worqr.Queue) error {
	_, err := caches.Add(ctx, worqr.TaskSpec{Payload: []byte("rebuild"), Unique: true})
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
	return report.Wait(ctx) // until all its attempts have ended
}

func recipeResult(ctx context.Context, reports *worqr.Queue) ([]byte, error) {
	keys, err := reports.Add(ctx, worqr.TaskSpec{Payload: []byte("november"), KeepResult: time.Hour})
	if err != nil {
		return nil, err
	}
	result, err := reports.Wait(ctx, keys[0]) // or Result, which doesn't wait
	if err != nil {
		return nil, err
	}
	if result.Outcome != worqr.OutcomeFinished { // failed, canceled, expired, removed, replaced or deleted
		return nil, fmt.Errorf("the report %s: %s", result.Outcome, result.Error)
	}
	return result.Value, nil // the handler's t.Result
}

func recipeEvents(ctx context.Context, peer *worqr.Peer) {
	for event, err := range peer.Events(ctx, "orders") {
		if err != nil {
			log.Print(err) // Redis can't be reached; the loop goes on
			continue
		}
		if event.Kind == inspect.EventDone {
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

type money struct {
	To    string
	Cents int
}

// The recipes do what the documentation says.
func TestDocsRecipes(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})

	recipeUse(p)
	is.NoErr(recipeEvery(p.Queue("jobs")))
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
	imports := p.Queue("imports")
	inserted := make(chan int, 1)
	rows := p.Queue("rows")
	recipeBatch(rows, func(_ context.Context, tasks []*worqr.Task) error {
		inserted <- len(tasks)
		return worqr.Permanent(errDeclined)
	})
	enqueue(t, rows, "row")
	recipeLater(imports, func(context.Context, []byte) (bool, error) { return false, nil })
	enqueue(t, imports, "file")
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
		return p.Stats().Finished == 1 && s.Scheduled == 1 && s.Failed == 1 && p.Stats().Snoozed == 1
	})
	is.Equal(receive(t, inserted, 1), []int{1})
	is.NoErr(reports.Enqueue(ctx, []byte("november"), []byte("november")))
	receiveClosed(t, started)
	is.NoErr(recipeCancel(ctx, reports))
	tenant, worked := p.Queue("tenant"), make(chan string, 3)
	is.NoErr(recipeUnhandle(ctx, tenant, recipeDraining(slices.Values([]string{"1", "2"}), nil, func(_ context.Context, part string) { worked <- part })))
	cancel()
	is.NoErr(<-ran)

	is.NoErr(recipeFailed(ctx, charges))
	is.Equal(sure(charges.Stats(ctx))(t).Failed, 0)
	added := sure(recipeProperties(ctx, charges, []byte("7"), "00-1", "request 7"))(t)
	is.Equal(sure(recipeProperties(ctx, charges, []byte("7"), "00-1", "request 7"))(t), added)

	mails := p.Queue("mails")
	is.True(sure(mails.RemoveKey(ctx, sure(recipeDelay(ctx, mails, []byte("reminder")))(t)[0]))(t))

	indexes := p.Queue("indexes")
	only := func() inspect.NamedTask {
		all := peertest.Named(t, indexes)
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
		is.Equal(len(waiting(t, q))+len(peertest.Named(t, q)), 1)
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
		func() (*worqr.Peer, error) { return recipeTrace("redis://localhost", &atomic.Int64{}, &atomic.Int64{}) },
		func() (*worqr.Peer, error) { return recipeCapacity("redis://localhost", nothing, nothing) },
	} {
		is.NoErr(sure(opens())(t).Close())
	}

	p = open(t, worqr.Options{})
	refunded := make(chan money, 1)
	sure(recipeMux(ctx, p.Queue("typed"), func(context.Context, money, *worqr.Task) error { return nil }, func(_ context.Context, m money, _ *worqr.Task) error {
		refunded <- m
		return nil
	}))(t)
	recipeProgram(p.Queue("reports"))
	of := p.Queue("results")
	of.Handle(func(_ context.Context, t *worqr.Task) error {
		t.Result = append([]byte("report of "), t.Payload...)
		return nil
	}, nil)
	alerted := make(chan string, 1)
	refuse := func(context.Context, *worqr.Task) error { return worqr.Permanent(errDeclined) }
	recipeOnFailed(p.Queue("charges"), refuse, func(_ context.Context, order []byte, reason string) error {
		alerted <- fmt.Sprintf("%s: %s", order, reason)
		return nil
	})
	run(t, p)
	is.NoErr(p.Queue("charges").Enqueue(ctx, []byte("order 7")))
	is.Equal(receive(t, alerted, 1), []string{"order 7: declined"})
	is.Equal(string(sure(recipeResult(ctx, of))(t)), "report of november")
	is.Equal(receive(t, refunded, 1), []money{{"bob", 7}})
	probes := recipeProbes(p)
	for _, path := range []string{"/livez", "/readyz"} {
		eventually(t, path+" succeeds", func() bool {
			w := httptest.NewRecorder()
			probes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w.Code == http.StatusOK
		})
	}
	over, leave := context.WithCancel(ctx)
	leave()
	recipeEvents(over, p)
}
