package worqr

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Properties are optional data and limits of a task. Zero fields are unset.
type Properties struct {
	// Headers go with the task as Task.Headers, through retries and the failed queue: up to
	// MaxHeaders, of MaxHeaderBytes together, any bytes. They aren't logged.
	Headers map[string]string
	// Expires is the time, by Redis's clock, after which neither the task nor a retry starts: it
	// fails as FailureExpired.
	Expires time.Time
	// Timeout replaces HandleOptions.Timeout for this task.
	Timeout time.Duration
	// MaxRetries replaces HandleOptions.MaxRetries for this task; negative is none.
	MaxRetries int
	// Once, up to MaxKeySize bytes, makes the call safe to repeat: for OnceFor, later calls with it
	// change nothing and return the first key; Put under another key returns it in an *OnceError.
	// OnceFor is at most MaxOnceFor; 0 is 24 h. Redis keeps about 220 bytes for it.
	Once    string
	OnceFor time.Duration
	// KeepResult is how long Queue.Result and Queue.Wait know how the task ended: MinKeepResult to
	// MaxKeepResult.
	KeepResult time.Duration
}

const (
	// MaxHeaders is the most headers that a task may have.
	MaxHeaders = store.MaxHeaders
	// MaxHeaderBytes is the maximum size of all names and values of a task's headers, in bytes.
	MaxHeaderBytes = store.MaxHeaderBytes
	// MaxOnceFor is the longest OnceFor.
	MaxOnceFor = 30 * 24 * time.Hour

	onceFor    = 24 * time.Hour
	mostTries  = 1_000_000
	maxSpecial = 365 * 24 * time.Hour // Timeout of one task
)

// card returns what Redis stores of the properties; nil if there are none.
func (p *Properties) card() ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	size := 0
	for name, value := range p.Headers {
		if name == "" {
			return nil, fmt.Errorf("%w: the name of a header is empty", ErrInvalid)
		}
		size += len(name) + len(value)
	}
	switch {
	case len(p.Headers) > MaxHeaders:
		return nil, tooLarge("%d headers; at most %d", len(p.Headers), MaxHeaders)
	case size > MaxHeaderBytes:
		return nil, tooLarge("headers of %d bytes; at most %d, so put the data into the payload", size, MaxHeaderBytes)
	case p.Timeout < 0 || p.Timeout > maxSpecial:
		return nil, fmt.Errorf("%w: a Timeout of %v isn't between 0 and a year", ErrInvalid, p.Timeout)
	case p.MaxRetries > mostTries:
		return nil, fmt.Errorf("%w: MaxRetries %d is above the maximum of %d", ErrInvalid, p.MaxRetries, mostTries)
	case p.KeepResult != 0 && (p.KeepResult < MinKeepResult || p.KeepResult > MaxKeepResult):
		return nil, fmt.Errorf("%w: a KeepResult of %v isn't between %v and %v", ErrInvalid, p.KeepResult, MinKeepResult, MaxKeepResult)
	}
	expires, err := millis(p.Expires)
	if err != nil || expires == 0 && p.Timeout == 0 && p.MaxRetries == 0 && p.KeepResult == 0 && len(p.Headers) == 0 {
		return nil, err
	}
	c := store.Card{Expires: expires, MaxRetries: p.MaxRetries, Headers: p.Headers, Keep: p.KeepResult.Milliseconds()}
	if p.Timeout > 0 {
		c.Timeout = max(p.Timeout, time.Millisecond)
	}
	return c.Append(nil), nil
}

// once returns what keeps the call from being repeated.
func (p *Properties) once() (store.Once, error) {
	switch {
	case p == nil || p.Once == "" && p.OnceFor == 0:
		return store.Once{}, nil
	case p.Once == "":
		return store.Once{}, fmt.Errorf("%w: OnceFor is set without Once", ErrInvalid)
	case len(p.Once) > MaxKeySize:
		return store.Once{}, tooLarge("a Once of %d bytes; at most %d", len(p.Once), MaxKeySize)
	case p.OnceFor == 0:
		return store.Once{ID: p.Once, Window: onceFor}, nil
	case p.OnceFor < time.Millisecond || p.OnceFor > MaxOnceFor:
		return store.Once{}, fmt.Errorf("%w: an OnceFor of %v isn't between 1 ms and %v", ErrInvalid, p.OnceFor, MaxOnceFor)
	}
	return store.Once{ID: p.Once, Window: p.OnceFor}, nil
}

// Add adds one task under a new key and returns it. CancelKey and ExplainKey find the task by its
// key; Cancel and Explain don't find it by its payload. Added tasks start in order, and take turns
// with those of Enqueue. Props may be nil. It fails like Put. Repeating it after ErrUnknownOutcome
// may add the task twice, unless it has Once.
func (q *Queue) Add(ctx context.Context, payload []byte, props *Properties) (key string, err error) {
	return q.addTraced(ctx, "add", time.Time{}, payload, props)
}

// AddAt is Add for a task that starts at a time.
func (q *Queue) AddAt(ctx context.Context, at time.Time, payload []byte, props *Properties) (key string, err error) {
	return q.addTraced(ctx, "add at a time", at, payload, props)
}

// prepared checks a task, and returns what Redis stores of its properties and its time; 0 is now.
func (q *Queue) prepared(payload []byte, props *Properties, at time.Time) (card []byte, once store.Once, due int64, err error) {
	if err = q.checkPayloads([][]byte{payload}); err == nil {
		card, err = props.card()
	}
	if err == nil {
		once, err = props.once()
	}
	if err == nil {
		due, err = millis(at)
	}
	return card, once, due, err
}

// addTraced adds a task, and tells of it if it was added now.
func (q *Queue) addTraced(ctx context.Context, verb string, at time.Time, payload []byte, props *Properties) (string, error) {
	began := q.peer.trace.enqueues()
	key, fresh, err := q.add(ctx, at, payload, props)
	if err = q.wrap(verb, err); fresh || err != nil {
		t := TraceQueue{Key: key, DueAt: at}
		if props != nil {
			t.Headers = props.Headers
		}
		err = q.enqueued(began, t, err, payload)
	}
	return key, err
}

// add adds a task; one with a time to the schedule. If a call with the same Once has added it, it's
// not fresh.
func (q *Queue) add(ctx context.Context, at time.Time, payload []byte, props *Properties) (key string, fresh bool, err error) {
	card, once, due, err := q.prepared(payload, props, at)
	if err != nil {
		return "", false, err
	}
	part, i, n, err := q.fresh(ctx, once.ID)
	if err != nil {
		return "", false, err
	}
	if due > 0 {
		mine := store.NewKey(i, n)
		return q.peer.producer.Put(ctx, part.target(), store.EntryOf(mine),
			store.Change{Payload: payload, At: due, When: store.Always, Card: card, ByKey: true}, once)
	}
	all, fresh, err := q.peer.producer.Add(ctx, part.target(), store.NewSalt(i, n), []store.Added{{Card: card, Payload: payload}}, once)
	if err != nil {
		return "", false, err
	}
	return all[0], fresh, nil
}

// A TaskSpec is a task for AddMany.
type TaskSpec struct {
	Payload []byte
	Properties
}

// AddMany adds the tasks in order, all or none, and returns their keys. Redis adds them in one step, so
// that must be short: more than 2,500, or 1 MiB together, fail with ErrTooLarge. None may have Once.
func (q *Queue) AddMany(ctx context.Context, tasks []TaskSpec) (all []string, err error) {
	began := q.peer.trace.enqueues()
	all, err = q.addMany(ctx, tasks)
	if err = q.wrap("add many", err); began.IsZero() {
		return all, err
	}
	payloads := make([][]byte, len(tasks))
	for i := range tasks {
		payloads[i] = tasks[i].Payload
	}
	return all, q.enqueued(began, TraceQueue{}, err, payloads...)
}

func (q *Queue) addMany(ctx context.Context, tasks []TaskSpec) ([]string, error) {
	payloads, added := make([][]byte, len(tasks)), make([]store.Added, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		card, err := t.card()
		if err == nil && (t.Once != "" || t.OnceFor != 0) {
			err = fmt.Errorf("%w: Once is for a single task", ErrInvalid)
		}
		if err != nil {
			return nil, fmt.Errorf("task %d of %d: %w", i+1, len(tasks), err)
		}
		payloads[i], added[i] = t.Payload, store.Added{Card: card, Payload: t.Payload}
	}
	if err := q.checkPayloads(payloads); err != nil {
		return nil, err
	}
	if store.SpansAdded(added) {
		return nil, tooLarge("%d tasks in one call; at most %d, of 1 MiB together, so call AddMany for each part of them", len(tasks), store.PageLength)
	}
	part, i, n, err := q.fresh(ctx, "")
	if err != nil {
		return nil, err
	}
	all, _, err := q.peer.producer.Add(ctx, part.target(), store.NewSalt(i, n), added, store.Once{})
	return all, err
}

// AddJSON encodes v with json.Marshal and adds it. It fails like Add, and with ErrInvalid if v can't
// be encoded.
func AddJSON[T any](ctx context.Context, q *Queue, v T, props *Properties) (key string, err error) {
	payload, err := encode(v)
	if err != nil {
		return "", q.wrap("add", err)
	}
	return q.Add(ctx, payload, props)
}

// PutJSON encodes v with json.Marshal and puts it. It fails like Put, and with ErrInvalid if v can't
// be encoded.
func PutJSON[T any](ctx context.Context, q *Queue, key string, v T, opts *PutOptions) error {
	payload, err := encode(v)
	if err != nil {
		return q.wrap("put", err)
	}
	return q.Put(ctx, key, payload, opts)
}

func encode[T any](v T) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: a %T can't be encoded as JSON: %s", ErrInvalid, v, unencodable(err))
	}
	return payload, nil
}

// An AddedTask waits for its first start. Once retried, returned or changed, it's a ScheduledTask.
type AddedTask struct {
	Key        string
	Payload    []byte
	Headers    map[string]string
	EnqueuedAt time.Time // by Redis's clock
	Expires    time.Time // zero: never
}

// Added yields the added tasks that wait, front first.
func (q *Queue) Added(ctx context.Context) iter.Seq2[AddedTask, error] {
	rows := rowsOf(ctx, q, store.AddedTasks, inTurn)
	return listed(rows, q.bad, q.wrapper("list added tasks"), func(t store.AddedTask) AddedTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return AddedTask{Key: t.Key, Payload: t.Payload, Headers: c.Headers, EnqueuedAt: moment(c.Since), Expires: moment(c.Expires)}
	})
}

// moment returns the time of a number of milliseconds; zero for 0.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func (t AddedTask) Format(s fmt.State, _ rune) { show(s, "added task", t) }

func (t AddedTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("since", t.EnqueuedAt.Format(time.RFC3339Nano)), slog.Int("bytes", len(t.Payload)), slog.Int("headers", len(t.Headers)))
}

func (p Properties) Format(s fmt.State, _ rune) { show(s, "properties", p) }

func (p Properties) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("headers", len(p.Headers)), slog.Duration("timeout", p.Timeout), slog.Int("max_retries", p.MaxRetries))
}

func (t TaskSpec) Format(s fmt.State, _ rune) { show(s, "task spec", t) }

func (t TaskSpec) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("bytes", len(t.Payload)), slog.Any("properties", t.Properties))
}
