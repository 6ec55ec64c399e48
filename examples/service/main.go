// Command service is an order service. Every replica answers HTTP requests and runs the tasks that they add.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/worqr/worqr"
)

type order struct {
	ID, Customer string
	Cents        int
}

type service struct {
	peer   *worqr.Peer
	orders *worqr.Queue // charges and reminders, by type
	sums   *worqr.Queue // the nightly job
	charge func(ctx context.Context, o order, token int64) error
}

func newService(peer *worqr.Peer, charge func(context.Context, order, int64) error) (*service, error) {
	s := &service{peer: peer, orders: peer.Queue("orders"), sums: peer.Queue("sums"), charge: charge}
	peer.Use(traced)
	s.orders.Handle(worqr.Mux(map[string]worqr.Handler{
		"charge": worqr.JSON(s.charged),
		"remind": worqr.JSON(s.reminded),
	}), &worqr.HandleOptions{Concurrency: 50, Timeout: 30 * time.Second, MaxRetries: 20})
	s.sums.Handle(s.summed, nil)
	return s, s.sums.Every("nightly", worqr.Interval(24*time.Hour), nil, nil) // at midnight, UTC
}

var errDeclined = errors.New("the card was declined")

// charged passes the token on, so that the bank can refuse a replica that has lost the task.
func (s *service) charged(ctx context.Context, o order, t *worqr.Task) error {
	err := s.charge(ctx, o, t.Token)
	if errors.Is(err, errDeclined) {
		return worqr.Permanent(err) // no retry will help
	}
	return err
}

func (s *service) reminded(ctx context.Context, o order, t *worqr.Task) error {
	slog.Info("reminded", "customer", o.Customer, "order", o.ID)
	return nil
}

func (s *service) summed(ctx context.Context, t *worqr.Task) error {
	stats, err := s.orders.Stats(ctx)
	slog.Info("the day", "waiting", stats.Waiting, "failed", stats.Failed)
	return err
}

// traced logs the outcome of a task, with the trace of the request that added it.
func traced(h worqr.Handler) worqr.Handler {
	return func(ctx context.Context, t *worqr.Task) error {
		err := h(ctx, t)
		slog.Info("handled", "type", t.Headers["type"], "task", t.Key, "attempt", t.Attempt, "trace", t.Headers["traceparent"], "err", err)
		return err
	}
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", answer(s.postOrder))
	mux.Handle("PUT /orders/{id}/reminder", answer(s.putReminder))
	mux.Handle("DELETE /tasks/{key}", answer(s.deleteTask))
	mux.Handle("GET /failed", answer(s.getFailed))
	mux.Handle("POST /failed/{id}", answer(s.postFailed)) // as in a URL, so with %23 for #
	mux.Handle("GET /livez", s.peer.Livez())
	mux.Handle("GET /readyz", s.peer.Readyz())
	return mux
}

// postOrder adds a charge. A client that got no answer repeats its request with the same Idempotency-Key, and
// gets the same key back.
func (s *service) postOrder(r *http.Request) (any, error) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return nil, worqr.Malformed(err)
	}
	return s.add(r, "charge", o, worqr.TaskSpec{Once: r.Header.Get("Idempotency-Key"), Expires: time.Now().Add(24 * time.Hour)})
}

// putReminder replaces the waiting reminder, if there is one.
func (s *service) putReminder(r *http.Request) (any, error) {
	o := order{ID: r.PathValue("id"), Customer: r.FormValue("customer")}
	in, err := time.ParseDuration(r.FormValue("in"))
	if err != nil {
		return nil, worqr.Malformed(err)
	}
	return s.add(r, "remind", o, worqr.TaskSpec{Key: "remind-" + o.ID, At: time.Now().Add(in)})
}

// deleteTask cancels a task wherever it is, and waits until no replica works on it.
func (s *service) deleteTask(r *http.Request) (any, error) {
	canceled, err := s.orders.CancelKey(r.Context(), r.PathValue("key"))
	if err == nil {
		err = canceled.Wait(r.Context())
	}
	return canceled, err
}

func (s *service) getFailed(r *http.Request) (any, error) {
	all := []map[string]any{}
	for t, err := range s.orders.Failed(r.Context()) {
		if err != nil || len(all) == 100 {
			return all, err
		}
		all = append(all, map[string]any{"id": t.ID, "task": t.Key, "kind": t.Kind, "error": t.Error})
	}
	return all, nil
}

func (s *service) postFailed(r *http.Request) (any, error) {
	n, err := s.orders.RequeueFailed(r.Context(), r.PathValue("id"))
	return map[string]int{"requeued": n}, err
}

// add adds a task for an order, and answers with its key.
func (s *service) add(r *http.Request, typ string, o order, task worqr.TaskSpec) (any, error) {
	var err error
	if task.Payload, err = json.Marshal(o); err != nil {
		return nil, err
	}
	task.Headers = map[string]string{"type": typ, "traceparent": r.Header.Get("traceparent")}
	keys, err := s.orders.Add(r.Context(), task)
	if err != nil {
		return nil, err
	}
	return map[string]string{"task": keys[0]}, nil
}

// answer returns a handler that answers in JSON.
func answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		switch {
		case worqr.IsMalformed(err), errors.Is(err, worqr.ErrInvalid), errors.Is(err, worqr.ErrTooLarge):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil: // ErrUnknownOutcome too: the client repeats its request
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			json.NewEncoder(w).Encode(v)
		}
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	peer, err := worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX"), Drain: 20 * time.Second})
	if err != nil {
		return err
	}
	s, err := newService(peer, func(_ context.Context, o order, token int64) error {
		slog.Info("charged", "order", o.ID, "cents", o.Cents, "token", token)
		return nil
	})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), "localhost:8080"), Handler: s.routes()}
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		served <- server.ListenAndServe() // the port may be taken
		stop()
	}()
	err = peer.Run(ctx) // until a signal; then it drains, and readiness fails
	err = errors.Join(err, server.Shutdown(context.Background()), peer.Close())
	if closed := <-served; closed != http.ErrServerClosed {
		err = errors.Join(err, closed)
	}
	return err
}
