// Command service is an order service. Every replica answers HTTP requests and runs the tasks that they add. Orders are in a
// database, and the task that charges one is added in the transaction that stores it.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/inspect"
)

type order struct {
	ID, Customer string
	Cents        int
}

type service struct {
	peer   *worqr.Peer
	outbox *outbox.Outbox
	orders *worqr.Queue // charges and reminders, by type
	sums   *worqr.Queue // the nightly job
	charge func(ctx context.Context, o order, token int64) error
}

func newService(peer *worqr.Peer, ob *outbox.Outbox, charge func(context.Context, order, int64) error) (*service, error) {
	s := &service{peer: peer, outbox: ob, orders: peer.Queue("orders"), sums: peer.Queue("sums"), charge: charge}
	peer.Use(traced)
	s.orders.Handle(worqr.Mux(map[string]worqr.Handler{
		"charge": worqr.JSON(s.charged),
		"remind": worqr.JSON(s.reminded),
	}), &worqr.HandleOptions{Concurrency: 50, Timeout: 30 * time.Second, MaxRetries: 20})
	s.sums.Handle(s.summed, nil)
	err := s.sums.Every("nightly", worqr.Interval(24*time.Hour), nil, nil) // at midnight, UTC
	return s, errors.Join(err, ob.Handle(peer))
}

// open opens the database and creates what it lacks.
func open(ctx context.Context, file string) (*outbox.Outbox, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	ob := outbox.New(db, outbox.SQLite, nil)
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text, cents integer)")
	return ob, errors.Join(err, ob.Migrate(ctx))
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
	mux.Handle("GET /readyz", s.peer.Readyz()) // for rollouts; as a readiness probe it would stop the API while Redis is away
	return mux
}

// postOrder stores an order and adds its charge, or neither. A client that got no answer repeats its request, and gets the
// same key back.
func (s *service) postOrder(r *http.Request) (any, error) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return nil, worqr.Malformed(err)
	}
	task := worqr.TaskSpec{Key: "charge-" + o.ID, Expires: time.Now().Add(24 * time.Hour)}
	err := s.outbox.InTx(r.Context(), func(tx *sql.Tx) error {
		stored, err := tx.ExecContext(r.Context(), "INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", o.ID, o.Customer, o.Cents)
		if err != nil {
			return err
		}
		if n, err := stored.RowsAffected(); n == 0 || err != nil {
			return err // an earlier request has stored it
		}
		if err := describe(&task, r, "charge", o); err != nil {
			return err
		}
		_, err = s.outbox.Add(r.Context(), tx, s.orders.Name(), task)
		return err
	})
	return map[string]string{"task": task.Key}, err
}

// putReminder replaces the waiting reminder, if there is one.
func (s *service) putReminder(r *http.Request) (any, error) {
	o := order{ID: r.PathValue("id"), Customer: r.FormValue("customer")}
	in, err := time.ParseDuration(r.FormValue("in"))
	if err != nil {
		return nil, worqr.Malformed(err)
	}
	task := worqr.TaskSpec{Key: "remind-" + o.ID, At: time.Now().Add(in)}
	if err := describe(&task, r, "remind", o); err != nil {
		return nil, err
	}
	_, err = s.orders.Add(r.Context(), task)
	return map[string]string{"task": task.Key}, err
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

// describe sets what the handlers need to know.
func describe(task *worqr.TaskSpec, r *http.Request, typ string, o order) (err error) {
	task.Headers = map[string]string{"type": typ, "traceparent": r.Header.Get("traceparent")}
	task.Payload, err = json.Marshal(o)
	return err
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
	ob, err := open(ctx, cmp.Or(os.Getenv("DATABASE"), "orders.db"))
	if err != nil {
		return err
	}
	peer, err := worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{
		Prefix: os.Getenv("WORQR_PREFIX"), Drain: 20 * time.Second, Sources: []inspect.Source{ob.Source()},
	})
	if err != nil {
		return err
	}
	s, err := newService(peer, ob, func(_ context.Context, o order, token int64) error {
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
