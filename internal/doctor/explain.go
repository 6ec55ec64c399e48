package doctor

import (
	"bytes"
	"context"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
)

const (
	mostCopies  = 10      // of each kind that are returned
	listDepth   = 100_000 // tasks searched from the front of the list
	failedDepth = 1000    // tasks searched in the failed queue, newest first
)

// A Question is a task to look for, and where.
type Question struct {
	Runner  store.Runner
	Space   store.Space
	Queue   string
	Prefix  string // as shown in the explanation
	Entry   string // to look for; "" to look for the payload
	Payload []byte
	Beat    time.Duration // between two heartbeats of a peer
}

// An explanation is an inspect.Explanation under construction.
type explanation struct{ inspect.Explanation }

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
	p, err := store.Explain(ctx, q.Runner, q.keys(), q.Entry, q.Payload, mostCopies, listDepth)
	if err != nil {
		return nil, err
	}
	e := explained(p, q.Entry != "")
	e.Queue, e.Prefix = q.Queue, q.Prefix
	if q.Entry == "" {
		err = q.running(ctx, e)
	}
	if err != nil {
		return nil, err
	}
	for _, g := range p.Failed {
		e.Copies = append(e.Copies, hasFailed(&g))
	}
	if q.Entry != "" {
		if err := q.searchFailed(ctx, e); err != nil {
			return nil, err
		}
		r, err := store.RecurringUnder(ctx, q.Runner, q.keys(), q.Entry, p.Now)
		if err != nil {
			return nil, err
		}
		if r != nil {
			e.Recurs = new(Recurring(*r))
		}
	}
	for i := range e.Copies {
		c := &e.Copies[i]
		if q.Entry != "" {
			c.Key = store.KeyOf(q.Entry)
		}
		if c.State == inspect.CopyRunning {
			h, err := store.ReadHolder(ctx, q.Runner, q.Space, q.keys(), c.WorkerID)
			if err != nil {
				return nil, err
			}
			e.held(c, h, q.Beat)
		}
	}
	return e, nil
}

// explained describes the waiting tasks and, with a key, the running ones.
func explained(p *store.Place, byKey bool) *explanation {
	e := &explanation{inspect.Explanation{At: time.UnixMilli(p.Now), Paused: p.Paused, Workers: p.Workers, IdleWorkers: p.Idle}}
	if !byKey {
		e.NotSearched = max(p.Length-listDepth, 0)
	}
	for _, before := range p.Before { // added tasks take turns with the list
		e.Copies = append(e.Copies, e.waits(inspect.TaskCopy{State: inspect.CopyWaiting, Before: p.Ready + before + min(before, p.Added)}))
	}
	if l := p.Line; l != nil {
		before := l.Before
		if before < 0 {
			before = p.Added - 1 // at most
		}
		e.Copies = append(e.Copies, e.waits(inspect.TaskCopy{State: inspect.CopyWaiting, EnqueuedAt: store.Moment(l.Since), Before: p.Ready + before + min(before, p.Length)}))
	}
	for _, x := range p.Entries {
		if x.Due >= 0 {
			e.Copies = append(e.Copies, e.entry(p.Now, x))
		}
		if byKey && x.Process != "" {
			e.Copies = append(e.Copies, runningCopy(x.Process, x.Worker, x.Token, x.Name))
		}
	}
	return e
}

func runningCopy(attempt, worker string, token int64, entry string) inspect.TaskCopy {
	return inspect.TaskCopy{State: inspect.CopyRunning, Key: store.KeyOf(entry), EnqueuedAt: store.Moment(store.CardOf(entry, "").Since), AttemptID: attempt, WorkerID: worker, Token: token, StartedAt: store.StartedAt(attempt)}
}

// running adds the running tasks with the payload.
func (q Question) running(ctx context.Context, e *explanation) error {
	for t, err := range store.Running(ctx, q.Runner, q.keys()) {
		if err != nil {
			return err
		}
		if bytes.Equal(t.Payload, q.Payload) {
			e.Copies = append(e.Copies, runningCopy(t.Attempt, t.Worker, t.Token, store.EntryOf(t.Key)))
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
	}
	return c
}

// entry describes the waiting task of an entry.
func (e *explanation) entry(now int64, x store.Entry) inspect.TaskCopy {
	c := inspect.TaskCopy{State: inspect.CopyScheduled, Key: store.KeyOf(x.Name), EnqueuedAt: store.Moment(store.CardOf(x.Name, "").Since), DueAt: store.Moment(store.Due(x.Due, now)), Retries: x.Retries, Crashes: x.Crashes, Before: max(x.Before, 0)}
	early := x.Due > now
	if x.Held && x.Process == "" {
		c.DueAt, c.Reasons = store.Moment(x.Turn), []inspect.Reason{inspect.ReasonWithheld}
		return e.halted(c)
	}
	if x.Process != "" {
		c.State, c.Reasons = inspect.CopyBlocked, []inspect.Reason{inspect.ReasonBlocked}
	}
	switch {
	case early:
		c.Reasons = append(c.Reasons, inspect.ReasonNotDue)
		c = e.halted(c) // it wouldn't start then either
	case c.State == inspect.CopyScheduled:
		c = e.waits(c)
		if c.Crashes > 0 && !e.Paused && e.Workers > 0 {
			c.Reasons = append(c.Reasons, inspect.ReasonSuspect) // only its peer knows MaxCrashes, and its other tasks
		}
	}
	return c
}

func hasFailed(g *store.FailedTask) inspect.TaskCopy {
	return inspect.TaskCopy{State: inspect.CopyFailed, Key: store.KeyOf(g.From), EnqueuedAt: store.Moment(store.CardOf(g.From, g.Card).Since), Reasons: []inspect.Reason{inspect.ReasonFailed}, WorkerID: g.Worker, Retries: g.Retries, Crashes: g.Crashes,
		Kind: g.Kind, Error: g.Reason, FailedAt: store.Moment(g.At)}
}

// searchFailed looks for a key in the failed queue.
func (q Question) searchFailed(ctx context.Context, e *explanation) error {
	read := 0
	for g, err := range store.FailedTasks(ctx, q.Runner, q.keys()) {
		if err != nil {
			return err
		}
		if g.From == q.Entry {
			e.Copies = append(e.Copies, hasFailed(&g))
		}
		if read++; read == failedDepth || len(e.Copies) > mostCopies {
			break
		}
	}
	return nil
}

// held describes the worker that holds a copy.
func (e *explanation) held(c *inspect.TaskCopy, h store.Holder, beat time.Duration) {
	c.WorkerName, c.Host, c.PID = h.Name, h.Host, h.PID
	switch {
	case h.Suspect && h.Judged <= 0:
		c.Reasons = append(c.Reasons, inspect.ReasonReturning)
		if e.Workers == 0 {
			c.Reasons = append(c.Reasons, inspect.ReasonNoWorker)
		}
	case h.Member && h.Until < e.At.UnixMilli():
		c.Reasons = append(c.Reasons, inspect.ReasonLeaseExpired)
		switch {
		case e.Workers == 0:
			c.Reasons = append(c.Reasons, inspect.ReasonNoWorker)
		case h.Suspect:
			c.EvictAt = time.UnixMilli(h.Judged).Add(beat)
		default: // a worker looks with its next beat, and again a beat later
			c.EvictAt = e.At.Add(2 * beat)
		}
	}
}

// Recurring converts a recurring task.
func Recurring(t store.RecurringTask) inspect.RecurringTask {
	return inspect.RecurringTask{Key: t.Key, Next: store.Moment(t.Next), Current: store.Moment(t.Running), Asserted: t.Until >= t.Now,
		LastOutcome: t.Outcome, LastDue: store.Moment(t.Of), LastAt: store.Moment(t.At)}
}
