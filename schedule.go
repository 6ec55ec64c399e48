package worqr

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/jsontext"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// Reschedule says whether a Put changes the time of the task waiting under its key.
type Reschedule int

const (
	RescheduleAlways    Reschedule = iota // to At
	RescheduleNever                       // not at all
	RescheduleIfLater                     // only to a later time
	RescheduleIfEarlier                   // only to an earlier time
)

var rules = map[Reschedule]store.When{RescheduleAlways: store.Always, RescheduleNever: store.Never, RescheduleIfLater: store.Later, RescheduleIfEarlier: store.Earlier}

// PutOptions configure a Put. KeepPayload, Reschedule and KeepCounts apply to the task waiting under
// the key.
type PutOptions struct {
	At          time.Time  // when to start; zero is now
	KeepPayload bool       // keeps its payload, properties and counts
	Reschedule  Reschedule // whether its time changes
	// KeepCounts keeps its retries and crashes. Otherwise a new payload resets them.
	KeepCounts bool
	Properties
}

// MaxKeySize is the maximum size of a key or nonce, in bytes.
const MaxKeySize = 1024

// year10000 is later than every allowed time.
var year10000 = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// Put schedules payload under key, 1 to MaxKeySize bytes. At most one task with a given key waits,
// and at most one runs. A waiting one is replaced; opts can keep its payload, time or counts. If
// one runs, the new task waits until it ends, and replaces its retry.
func (q *Queue) Put(ctx context.Context, key string, payload []byte, opts *PutOptions) error {
	var o PutOptions
	if opts != nil {
		o = *opts
	}
	began := time.Now()
	fresh, err := q.put(ctx, key, payload, o)
	if err = q.wrap("put", err); fresh || err != nil {
		err = q.enqueued(began, worqrtrace.Queue{Key: key, DueAt: o.At, Headers: o.Headers}, err, payload)
	}
	return err
}

// put puts a task. It isn't fresh if a call with the same Once has already put it.
func (q *Queue) put(ctx context.Context, key string, payload []byte, o PutOptions) (fresh bool, err error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	when, ok := rules[o.Reschedule]
	if !ok {
		return false, fmt.Errorf("%w: unknown Reschedule %d", ErrInvalid, o.Reschedule)
	}
	card, once, at, err := q.prepared(payload, &o.Properties, o.At)
	if err != nil {
		return false, err
	}
	first, fresh, err := q.peer.producer.Put(ctx, q.target(), store.EntryOf(key),
		store.Change{Payload: payload, At: at, When: when, KeepPayload: o.KeepPayload, KeepCounts: o.KeepCounts, Card: card}, once)
	if err == nil && first != key {
		err = &OnceError{first}
	}
	return fresh, err
}

// An OnceError says that Put did nothing, because an earlier call with this Once added the task
// under Key.
type OnceError struct{ Key string }

func (e *OnceError) Error() string {
	return "worqr: an earlier call with this Once added the task under another key; see OnceError.Key"
}

func (e *OnceError) GoString() string { return e.Error() } // without the key, for logs

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(key) > MaxKeySize:
		return tooLarge("the key has %d bytes; the limit is %d", len(key), MaxKeySize)
	}
	return nil
}

// millis converts a time for Redis; 0 is now. It compares seconds, since time.Unix can produce
// times for which neither milliseconds nor Before work.
func millis(t time.Time) (int64, error) {
	switch {
	case t.IsZero():
		return 0, nil
	case t.Unix() < 0:
		return 1, nil
	case t.Unix() >= year10000.Unix():
		return 0, fmt.Errorf("%w: the time %v is after the year 9999", ErrInvalid, t)
	}
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) > 0 {
		ms++ // never too early
	}
	return min(max(ms, 1), year10000.UnixMilli()-1), nil // JSON has no times after the year 9999
}

// EnqueueAt is Put under a new key, which it returns. Repeating it schedules the task twice.
func (q *Queue) EnqueueAt(ctx context.Context, at time.Time, payload []byte) (key string, err error) {
	key = store.NewID()
	began := time.Now()
	_, err = q.put(ctx, key, payload, PutOptions{At: at})
	if err = q.enqueued(began, worqrtrace.Queue{Key: key, DueAt: at}, q.wrap("enqueue at a time", err), payload); err != nil {
		return "", err
	}
	return key, nil
}

// RemoveKey drops the task that waits under key, not one that runs, and reports whether there
// was one.
func (q *Queue) RemoveKey(ctx context.Context, key string) (bool, error) {
	if err := q.checkKey(key); err != nil {
		return false, q.wrap("remove", err)
	}
	done, n := q.changes("RemoveKey", key), 0
	removed, err := store.Remove(ctx, q.peer.calls, q.keys, store.EntryOf(key))
	if removed {
		n = 1
	}
	return removed, done(n, q.wrap("remove", err))
}

// Scheduled yields the schedule, earliest first, except tasks whose key is running.
func (q *Queue) Scheduled(ctx context.Context) iter.Seq2[inspect.ScheduledTask, error] {
	return listed(store.Scheduled(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list scheduled tasks"), func(t store.ScheduledTask) inspect.ScheduledTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return inspect.ScheduledTask{Key: t.Key, Payload: t.Payload, Headers: c.Headers, DueAt: store.Moment(t.Due), EnqueuedAt: store.Moment(c.Since),
			Expires: store.Moment(c.Expires), Retries: t.Retries, Crashes: t.Crashes, LastError: t.Error}
	})
}

// Properties are optional data and limits of a task. Zero fields are unset.
type Properties struct {
	// Headers stay with the task, even when it's retried or fails: up to MaxHeaders, MaxHeaderBytes
	// in total. They may contain any bytes, and aren't logged.
	Headers map[string]string
	// Expires is the time, by Redis's clock, after which neither the task nor a retry starts: it
	// fails as inspect.FailureExpired. Requeued then, it no longer expires.
	Expires    time.Time
	Timeout    time.Duration // overrides HandleOptions.Timeout
	MaxRetries int           // overrides HandleOptions.MaxRetries; negative is none
	// Once, up to MaxKeySize bytes, makes the call safe to repeat: for OnceFor, later calls with it
	// change nothing and return the first key; Put under another key returns it in an *OnceError.
	// OnceFor is at most MaxOnceFor; 0 is 24 h.
	Once    string
	OnceFor time.Duration
	// KeepResult is how long the outcome stays available to Queue.Result and Queue.Wait:
	// MinKeepResult to MaxKeepResult.
	KeepResult time.Duration
}

const (
	MaxHeaders     = store.MaxHeaders     // of a task
	MaxHeaderBytes = store.MaxHeaderBytes // of their names and values together
	MaxOnceFor     = 30 * 24 * time.Hour

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
		return nil, tooLarge("the task has %d headers; the limit is %d", len(p.Headers), MaxHeaders)
	case size > MaxHeaderBytes:
		return nil, tooLarge("the headers have %d bytes; the limit is %d; put the data into the payload", size, MaxHeaderBytes)
	case p.Timeout < 0 || p.Timeout > maxSpecial:
		return nil, fmt.Errorf("%w: a Timeout of %v isn't between 0 and a year", ErrInvalid, p.Timeout)
	case p.MaxRetries > mostTries:
		return nil, fmt.Errorf("%w: MaxRetries %d is above the maximum of %d", ErrInvalid, p.MaxRetries, mostTries)
	case p.KeepResult != 0 && (p.KeepResult < MinKeepResult || p.KeepResult > MaxKeepResult):
		return nil, fmt.Errorf("%w: a KeepResult of %v isn't between 1 s and 30 days", ErrInvalid, p.KeepResult)
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

// once returns what makes the call safe to repeat.
func (p *Properties) once() (store.Once, error) {
	switch {
	case p == nil || p.Once == "" && p.OnceFor == 0:
		return store.Once{}, nil
	case p.Once == "":
		return store.Once{}, fmt.Errorf("%w: OnceFor is set without Once", ErrInvalid)
	case len(p.Once) > MaxKeySize:
		return store.Once{}, tooLarge("Once has %d bytes; the limit is %d", len(p.Once), MaxKeySize)
	case p.OnceFor == 0:
		return store.Once{ID: p.Once, Window: onceFor}, nil
	case p.OnceFor < time.Millisecond || p.OnceFor > MaxOnceFor:
		return store.Once{}, fmt.Errorf("%w: a OnceFor of %v isn't between 1 ms and 30 days", ErrInvalid, p.OnceFor)
	}
	return store.Once{ID: p.Once, Window: p.OnceFor}, nil
}

// Add adds one task under a new key and returns it. Use CancelKey and ExplainKey for it, not Cancel
// and Explain. Added tasks start in order, and take turns with those of Enqueue. Props may be nil.
// Repeated after ErrUnknownOutcome, it may add the task twice, unless it has Once.
func (q *Queue) Add(ctx context.Context, payload []byte, props *Properties) (key string, err error) {
	return q.addTraced(ctx, "add", time.Time{}, payload, props)
}

// AddAt is Add with a start time.
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

// addTraced adds a task, and reports it to the Trace if it was added now.
func (q *Queue) addTraced(ctx context.Context, verb string, at time.Time, payload []byte, props *Properties) (string, error) {
	began := time.Now()
	key, fresh, err := q.add(ctx, at, payload, props)
	if err = q.wrap(verb, err); fresh || err != nil {
		t := worqrtrace.Queue{Key: key, DueAt: at}
		if props != nil {
			t.Headers = props.Headers
		}
		err = q.enqueued(began, t, err, payload)
	}
	return key, err
}

// add adds a task, to the schedule if it has a time. It isn't fresh if a call with the same Once
// has already added it.
func (q *Queue) add(ctx context.Context, at time.Time, payload []byte, props *Properties) (key string, fresh bool, err error) {
	card, once, due, err := q.prepared(payload, props, at)
	if err != nil {
		return "", false, err
	}
	if due > 0 {
		return q.peer.producer.Put(ctx, q.target(), store.EntryOf(store.NewKey()),
			store.Change{Payload: payload, At: due, When: store.Always, Card: card, ByKey: true}, once)
	}
	all, fresh, err := q.peer.producer.Add(ctx, q.target(), store.NewSalt(), []store.Added{{Card: card, Payload: payload}}, once)
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

// AddMany adds the tasks in order, all or none, and returns their keys. More than 2,000
// tasks, or 1 MiB in total, fail with ErrTooLarge; a single task may be larger. None may have Once.
func (q *Queue) AddMany(ctx context.Context, tasks []TaskSpec) (all []string, err error) {
	began := time.Now()
	all, err = q.addMany(ctx, tasks)
	if err = q.wrap("add many", err); !q.peer.trace.Enqueues {
		return all, err
	}
	payloads := make([][]byte, len(tasks))
	for i := range tasks {
		payloads[i] = tasks[i].Payload
	}
	return all, q.enqueued(began, worqrtrace.Queue{}, err, payloads...)
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
		return nil, tooLarge("%d tasks were given; the limit is %d, and 1 MiB in total; split them across several calls", len(tasks), store.AddedLength)
	}
	all, _, err := q.peer.producer.Add(ctx, q.target(), store.NewSalt(), added, store.Once{})
	return all, err
}

// EnqueueJSON encodes the values with json.Marshal and enqueues all, or none if it fails. It returns
// Enqueue's errors, and ErrInvalid if one can't be encoded.
func EnqueueJSON[T any](ctx context.Context, q *Queue, vs ...T) error {
	payloads := make([][]byte, len(vs))
	for i, v := range vs {
		p, err := json.Marshal(v)
		if err != nil {
			return q.wrap("enqueue", fmt.Errorf("%w: value %d of %d, a %T, can't be encoded as JSON: %s", ErrInvalid, i+1, len(vs), v, jsontext.Unencodable(err)))
		}
		payloads[i] = p
	}
	return q.Enqueue(ctx, payloads...)
}

// AddJSON is Add for a value, encoded as EnqueueJSON does.
func AddJSON[T any](ctx context.Context, q *Queue, v T, props *Properties) (key string, err error) {
	payload, err := encode(v)
	if err != nil {
		return "", q.wrap("add", err)
	}
	return q.Add(ctx, payload, props)
}

// PutJSON is Put for a value, encoded as EnqueueJSON does.
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
		return nil, fmt.Errorf("%w: a %T can't be encoded as JSON: %s", ErrInvalid, v, jsontext.Unencodable(err))
	}
	return payload, nil
}

// Added yields the added tasks that wait, front first.
func (q *Queue) Added(ctx context.Context) iter.Seq2[inspect.AddedTask, error] {
	return listed(store.AddedTasks(ctx, q.peer.reads, q.keys), q.bad, q.wrapper("list added tasks"), func(t store.AddedTask) inspect.AddedTask {
		c := store.CardOf(store.EntryOf(t.Key), t.Card)
		return inspect.AddedTask{Key: t.Key, Payload: t.Payload, Headers: c.Headers, EnqueuedAt: store.Moment(c.Since), Expires: store.Moment(c.Expires)}
	})
}

func (p Properties) Format(s fmt.State, _ rune) { logs.Show(s, "properties", p) }

func (p Properties) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("headers", len(p.Headers)), slog.Duration("timeout", p.Timeout), slog.Int("max_retries", p.MaxRetries))
}

func (t TaskSpec) Format(s fmt.State, _ rune) { logs.Show(s, "task spec", t) }

func (t TaskSpec) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("bytes", len(t.Payload)), slog.Any("properties", t.Properties))
}
