package doctor

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/store"
)

const (
	mostCopies = 10      // of each kind that are returned
	listDepth  = 100_000 // tasks searched from the front of the list
)

// A Question is a task to look for, and where.
type Question struct {
	Runner  store.Runner
	Space   store.Space
	Queue   string
	Prefix  string // as shown in the explanation
	Name    string // to look for; "" to look for the payload
	Payload []byte
	Beat    time.Duration // between two heartbeats of a peer
}

// An explanation is an inspect.Explanation under construction.
type explanation struct {
	inspect.Explanation
	returning bool // tasks are being returned
	crashes   int  // of a raw payload
}

// Merge adds the explanation of another task of the queue.
func Merge(e, other *inspect.Explanation) {
	e.At, e.NoSuchQueue, e.Paused = other.At, e.NoSuchQueue && other.NoSuchQueue, other.Paused
	e.Workers, e.IdleWorkers = other.Workers, other.IdleWorkers
	e.NotSearched += other.NotSearched
	e.Copies = append(e.Copies, other.Copies...)
}

// Explain looks for the copies of a task.
func (q Question) Explain(ctx context.Context) (*inspect.Explanation, error) {
	// A task that moves between two reads may be missed by both: look again.
	for tries := 2; ; tries-- {
		e, err := q.once(ctx)
		if err != nil {
			return nil, err
		}
		if len(e.Copies) > 0 || e.Recurs != nil {
			return &e.Explanation, nil
		}
		if tries == 1 {
			e.NoSuchQueue, err = store.Unknown(ctx, q.Runner, q.Space, q.keys(), q.Queue)
			return &e.Explanation, err
		}
	}
}

func (q Question) keys() store.Keys { return q.Space.Queue(q.Queue) }

func (q Question) once(ctx context.Context) (*explanation, error) {
	p, err := store.Explain(ctx, q.Runner, q.keys(), q.Name, q.Payload, mostCopies, listDepth)
	if err != nil {
		return nil, err
	}
	e := explained(p, q.Name != "")
	e.Queue, e.Prefix, e.ByPayload = q.Queue, q.Prefix, q.Name == "" && q.Payload != nil
	if q.Name == "" {
		err = q.running(ctx, e)
	} else {
		err = q.recurs(ctx, e, p.Queue.Now)
	}
	for i := range e.Copies {
		c := &e.Copies[i]
		if err == nil && c.WorkerID != "" {
			err = q.names(ctx, c)
		}
		if err == nil && c.State == inspect.CopyRunning {
			err = q.held(ctx, e, c)
		}
	}
	return e, err
}

func (q Question) recurs(ctx context.Context, e *explanation, now int64) error {
	var err error
	e.Recurs, err = store.RecurringUnder(ctx, q.Runner, q.keys(), q.Name, now)
	return err
}

// explained describes the copies, except those of the list that run.
func explained(p *store.Whereabouts, byName bool) *explanation {
	q := &p.Queue
	e := &explanation{Explanation: inspect.Explanation{At: time.UnixMilli(q.Now), Paused: q.Paused != "", Workers: q.Alive, IdleWorkers: q.Idle}, returning: q.Leaving > 0, crashes: p.Crashes}
	if !byName {
		e.NotSearched = max(q.Listed-listDepth, 0)
	}
	named := q.Ready - q.Returned + q.Due // they take turns with the list, after those that were returned
	for _, before := range p.Before {
		e.Copies = append(e.Copies, e.waits(inspect.TaskCopy{State: inspect.CopyWaiting, Crashes: p.Crashes, Before: q.Returned + before + min(before, named)}))
	}
	for i := range p.Names {
		e.named(q, &p.Names[i])
	}
	for _, f := range p.Failed {
		e.Copies = append(e.Copies, hasFailed(&f))
	}
	return e
}

// named describes the tasks of a name: the one that runs or waits, and the one behind it.
func (e *explanation) named(q *store.Queue, a *store.About) {
	c := inspect.TaskCopy{Key: store.KeyOf(a.Name), EnqueuedAt: store.Moment(a.Record.Enqueued), Retries: a.Retries, Crashes: a.Crashes,
		Error: a.Error.Last(), Attempts: a.Error.Attempts(), Before: a.Before}
	switch {
	case a.Attempt != "":
		running := runningCopy(a.Attempt, store.WorkerOf(a.Attempt), max(a.Token, -a.Token), a.Token < 0)
		running.Key, running.EnqueuedAt = c.Key, c.EnqueuedAt
		running.Retries, running.Crashes, running.Error, running.Attempts = c.Retries, c.Crashes, c.Error, c.Attempts
		e.Copies = append(e.Copies, running)
		if a.Behind == nil {
			return
		}
		c = inspect.TaskCopy{State: inspect.CopyBlocked, Key: c.Key, EnqueuedAt: store.Moment(a.Behind.Record.Enqueued),
			DueAt: store.Moment(a.Behind.At), Reasons: []inspect.Reason{inspect.ReasonBlocked}}
		if a.Behind.At > q.Now {
			c.Reasons = append(c.Reasons, inspect.ReasonNotDue)
		}
		c = e.halted(c)
	case a.Record.Occurrence && a.Asserted > 0 && a.Asserted < q.Now && a.At > 0:
		c.State, c.DueAt, c.Reasons = inspect.CopyScheduled, store.Moment(a.Record.Due), []inspect.Reason{inspect.ReasonWithheld}
		c = e.halted(c)
	case a.At > q.Now:
		c.State, c.DueAt, c.Reasons = inspect.CopyScheduled, store.Moment(a.At), []inspect.Reason{inspect.ReasonNotDue}
		c = e.halted(c) // it wouldn't start then either
	case a.IsRisky():
		c.State, c.DueAt = inspect.CopyWaiting, store.Moment(a.Record.Due)
		c = e.waits(c)
		c.Reasons = append(c.Reasons, inspect.ReasonSuspect)
	default:
		c.State, c.DueAt = inspect.CopyWaiting, store.Moment(a.Record.Due)
		if a.At > 0 {
			c.Before += q.Ready // it goes to their end
		}
		if !a.Returned {
			c.Before += min(c.Before-q.Returned, q.Listed)
		}
		c = e.waits(c)
	}
	e.Copies = append(e.Copies, c)
}

func runningCopy(attempt, worker string, token int64, stops bool) inspect.TaskCopy {
	c := inspect.TaskCopy{State: inspect.CopyRunning, AttemptID: attempt, WorkerID: worker, Token: token, StartedAt: store.StartedAt(attempt)}
	if stops {
		c.Reasons = []inspect.Reason{inspect.ReasonStopping}
	}
	return c
}

// running adds the running tasks of the list with the payload.
func (q Question) running(ctx context.Context, e *explanation) error {
	for t, err := range store.Running(ctx, q.Runner, q.keys()) {
		if err != nil {
			return err
		}
		if t.Name == "" && bytes.Equal(t.Record.Payload, q.Payload) {
			c := runningCopy(t.Attempt, t.Worker, t.Token, t.Stops)
			c.Crashes = e.crashes
			e.Copies = append(e.Copies, c)
		}
		if len(e.Copies) >= 3*mostCopies {
			break
		}
	}
	return nil
}

// waits adds why a task that could start doesn't.
func (e *explanation) waits(c inspect.TaskCopy) inspect.TaskCopy {
	if c = e.halted(c); len(c.Reasons) == 0 && e.IdleWorkers == 0 {
		c.Reasons = append(c.Reasons, inspect.ReasonBusy)
	}
	if c.Before > 0 {
		c.Reasons = append(c.Reasons, inspect.ReasonBehind)
	}
	return c
}

// halted adds why no task of the queue starts.
func (e *explanation) halted(c inspect.TaskCopy) inspect.TaskCopy {
	switch {
	case e.Paused:
		c.Reasons = append(c.Reasons, inspect.ReasonPaused)
	case e.Workers == 0:
		c.Reasons = append(c.Reasons, inspect.ReasonNoWorker)
	case e.returning:
		c.Reasons = append(c.Reasons, inspect.ReasonHeldUp)
	}
	return c
}

func hasFailed(t *store.About) inspect.TaskCopy {
	c := inspect.TaskCopy{State: inspect.CopyFailed, EnqueuedAt: store.Moment(t.Record.Enqueued), DueAt: store.Moment(t.Record.Due), Reasons: []inspect.Reason{inspect.ReasonFailed}}
	if t.IsAside() {
		c.Reasons = append(c.Reasons, inspect.ReasonAside)
	}
	if f := t.Record.Failure; f != nil {
		c.Key, c.WorkerID, c.Retries, c.Crashes = store.KeyOf(f.Back), f.Worker, f.Retries, f.Crashes
		c.Kind, c.Error, c.FailedAt, c.Attempts = f.Kind, f.Error.Last(), store.Moment(f.At), f.Error.Attempts()
	}
	return c
}

// names adds the name of the worker that holds or held a copy.
func (q Question) names(ctx context.Context, c *inspect.TaskCopy) error {
	registered, err := store.Registrations(ctx, q.Runner, q.Space, []string{c.WorkerID})
	if len(registered) > 0 {
		c.WorkerName, c.Host, c.PID = registered[0].Name, registered[0].Host, registered[0].PID
	}
	return err
}

// held says what has become of the worker that holds a copy.
func (q Question) held(ctx context.Context, e *explanation, c *inspect.TaskCopy) error {
	p, _, err := store.Check(ctx, q.Runner, q.keys(), store.Holders, "", []string{c.WorkerID})
	if err == nil {
		e.judge(c, &p.Workers[0], q.Beat)
	}
	return err
}

// judge says what has become of the worker that holds a copy.
func (e *explanation) judge(c *inspect.TaskCopy, w *invariants.Worker, beat time.Duration) {
	until, _ := strconv.ParseFloat(w.Deadline, 64)
	switch {
	case w.Deadline == "": // it's no member
		c.Reasons = append(c.Reasons, inspect.ReasonReturning)
		if e.Workers == 0 {
			c.Reasons = append(c.Reasons, inspect.ReasonNoWorker)
		}
	case until < float64(e.At.UnixMilli()):
		c.Reasons = append(c.Reasons, inspect.ReasonLeaseExpired)
		switch judged, _ := strconv.ParseFloat(w.Suspect, 64); {
		case e.Workers == 0:
			c.Reasons = append(c.Reasons, inspect.ReasonNoWorker)
		case judged > 0:
			c.EvictAt = time.UnixMilli(int64(judged)).Add(beat)
		default: // a worker looks with its next beat, and again a beat later
			c.EvictAt = e.At.Add(2 * beat)
		}
	}
}
