package worqr

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// A CopyState says where a copy of a task is.
type CopyState string

// The states.
const (
	CopyWaiting   CopyState = "waiting"   // on the list, or in an accepted batch on the way there
	CopyScheduled CopyState = "scheduled" // in the schedule: under a key, or waiting for a retry
	CopyBlocked   CopyState = "blocked"   // behind what runs under its key
	CopyRunning   CopyState = "running"   // held by a worker
	CopyFailed    CopyState = "failed"    // in the failed queue
)

// A Reason says why a copy of a task does not run, or no longer.
type Reason string

// The reasons.
const (
	ReasonPaused       Reason = "paused"        // the queue is
	ReasonNoWorker     Reason = "no-worker"     // nobody serves the queue
	ReasonBusy         Reason = "busy"          // no worker is idle
	ReasonNotDue       Reason = "not-due"       // its time has not come
	ReasonBehind       Reason = "behind"        // others start before it
	ReasonBlocked      Reason = "blocked"       // its key runs
	ReasonSuspect      Reason = "suspect"       // workers died holding it: if one more crash would fail it, it waits until its peer runs no other such task
	ReasonLeaseExpired Reason = "lease-expired" // its worker's heartbeats have stopped: it's evicted soon unless they resume
	ReasonReturning    Reason = "returning"     // its worker is gone, and it is being returned
	ReasonFailed       Reason = "failed"        // it is in the failed queue
)

// A TaskCopy is one place where a task is.
type TaskCopy struct {
	State   CopyState
	Reasons []Reason  // it does not run; none: it runs, or is about to
	Before  int       // tasks that start before it, of those that wait
	DueAt   time.Time // of what is scheduled or blocked; zero for the list

	// Of what waits in the schedule, and of what has failed.
	Retries int
	Crashes int

	// Of what runs.
	AttemptID  string // the id of this run of the task
	Token      int64
	StartedAt  time.Time // by the clock of the peer that took it
	WorkerID   string    // that holds it; of what has failed, that had it last
	WorkerName string    // of the worker; what follows, too. "" where it is not registered
	Host       string
	PID        int       // of the operating system's process
	EvictAt    time.Time // when the worker is evicted, if its lease has expired and somebody is there to judge

	// Of what has failed.
	Kind     FailureKind
	Error    string
	FailedAt time.Time
}

// An Explanation tells where a task is and why it does not run.
type Explanation struct {
	Queue       string
	At          time.Time // by the clock of Redis
	NoSuchQueue bool      // nothing is there of a queue of that name, so the name may be wrong
	Paused      bool
	Workers     int // that serve the queue, with an unexpired lease
	IdleWorkers int // of these, with free slots and nothing to do
	NotSearched int // tasks of the list that were not looked at, since too many are before them
	Copies      []TaskCopy

	prefix string // under which nothing was found
}

const (
	mostCopies  = 10      // of each kind that are explained
	listDepth   = 100_000 // from the front of the list that are looked at
	gravesDepth = 1000    // of the failed queue, newest first
)

// Explain tells where the copies of a payload are: which wait, run or have failed,
// who holds them and since when, and why they do not run. There may be several, or
// none: then the task was never enqueued, or is done, canceled or deleted.
//
// It tells of ten copies of each kind at most. It looks at the first 100,000 tasks
// of the list, in one command of a millisecond or two, and reads all running tasks of the
// queue, page by page; a copy that moves meanwhile may come twice. It fails
// where Enqueue would, and with Redis's error.
func (q *Queue) Explain(ctx context.Context, payload []byte) (*Explanation, error) {
	e, err := q.explain(ctx, "", slices.Clone(payload))
	return e, q.wrap("explain", err)
}

// ExplainKey does the same for what is under a key: what waits and what runs, and
// of the newest 1,000 failed tasks those that were under it. Its cost does not depend on
// what else waits or runs. It fails with ErrInvalid when the key makes no sense.
func (q *Queue) ExplainKey(ctx context.Context, key string) (*Explanation, error) {
	if err := checkKey(key); err != nil {
		return nil, q.wrap("explain", err)
	}
	e, err := q.explain(ctx, store.EntryOf(key), nil)
	return e, q.wrap("explain", err)
}

func (q *Queue) explain(ctx context.Context, entry string, payload []byte) (*Explanation, error) {
	if q.bad != nil {
		return nil, q.bad
	}
	// What moves between two reads may be seen in neither: look again.
	for tries := 2; ; tries-- {
		e, err := q.explainOnce(ctx, entry, payload)
		if err != nil || len(e.Copies) > 0 {
			return e, err
		}
		if tries == 1 {
			e.prefix = q.peer.opts.Prefix
			e.NoSuchQueue, err = store.Unknown(ctx, q.peer.calls, q.peer.space, q.keys, q.name)
			return e, err
		}
	}
}

func (q *Queue) explainOnce(ctx context.Context, entry string, payload []byte) (*Explanation, error) {
	p, err := store.Explain(ctx, q.peer.calls, q.keys, entry, payload, mostCopies, listDepth)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Queue: q.name, At: time.UnixMilli(p.Now), Paused: p.Paused, Workers: p.Workers, IdleWorkers: p.Idle}
	if entry == "" {
		e.NotSearched = max(p.Length-listDepth, 0)
	}
	for _, before := range p.Before {
		e.Copies = append(e.Copies, e.waits(TaskCopy{State: CopyWaiting, Before: p.Ready + before}))
	}
	for _, x := range p.Entries {
		if x.Due >= 0 {
			e.Copies = append(e.Copies, e.entry(p, x))
		}
		if entry != "" && x.Process != "" {
			e.Copies = append(e.Copies, TaskCopy{State: CopyRunning, AttemptID: x.Process, WorkerID: x.Worker, Token: x.Token, StartedAt: begun(x.Process)})
		}
	}
	if entry == "" {
		for t, err := range q.Running(ctx) {
			if err != nil {
				return nil, err
			}
			if bytes.Equal(t.Payload, payload) {
				e.Copies = append(e.Copies, TaskCopy{State: CopyRunning, AttemptID: t.AttemptID, WorkerID: t.WorkerID, Token: t.Token, StartedAt: t.StartedAt})
			}
			if len(e.Copies) >= 3*mostCopies {
				break
			}
		}
	}
	for _, g := range p.Graves {
		e.Copies = append(e.Copies, buriedAs(failure(&g)))
	}
	if entry != "" {
		if err := e.dig(ctx, q, store.KeyOf(entry)); err != nil {
			return nil, err
		}
	}
	for i := range e.Copies {
		if c := &e.Copies[i]; c.State == CopyRunning {
			if err := e.holder(ctx, q, c); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

// waits adds why something does not start that might.
func (e *Explanation) waits(c TaskCopy) TaskCopy {
	if c = e.halted(c); len(c.Reasons) == 0 && e.IdleWorkers == 0 {
		c.Reasons = append(c.Reasons, ReasonBusy)
	}
	if c.Before > 0 {
		c.Reasons = append(c.Reasons, ReasonBehind)
	}
	return c
}

// halted adds why nothing of the queue starts at all.
func (e *Explanation) halted(c TaskCopy) TaskCopy {
	switch {
	case e.Paused:
		c.Reasons = append(c.Reasons, ReasonPaused)
	case e.Workers == 0:
		c.Reasons = append(c.Reasons, ReasonNoWorker)
	}
	return c
}

// entry is what waits of an entry.
func (e *Explanation) entry(p *store.Place, x store.Entry) TaskCopy {
	c := TaskCopy{State: CopyScheduled, DueAt: time.UnixMilli(store.Due(x.Due, p.Now)), Retries: x.Retries, Crashes: x.Crashes, Before: max(x.Before, 0)}
	early := x.Due > p.Now
	if x.Process != "" {
		c.State, c.Reasons = CopyBlocked, []Reason{ReasonBlocked}
	}
	switch {
	case early:
		c.Reasons = append(c.Reasons, ReasonNotDue)
		c = e.halted(c) // it would not start then either
	case c.State == CopyScheduled:
		c = e.waits(c)
		if c.Crashes > 0 && !e.Paused && e.Workers > 0 {
			c.Reasons = append(c.Reasons, ReasonSuspect) // only its peer knows MaxCrashes, and what else runs there
		}
	}
	return c
}

func buriedAs(f *FailedTask) TaskCopy {
	return TaskCopy{State: CopyFailed, Reasons: []Reason{ReasonFailed}, WorkerID: f.WorkerID, Retries: f.Retries, Crashes: f.Crashes, Kind: f.Kind, Error: f.Error, FailedAt: f.FailedAt}
}

// dig looks for a key in the failed queue.
func (e *Explanation) dig(ctx context.Context, q *Queue, key string) error {
	read := 0
	for f, err := range q.Failed(ctx) {
		if err != nil {
			return err
		}
		if f.Key == key {
			e.Copies = append(e.Copies, buriedAs(&f))
		}
		if read++; read == gravesDepth || len(e.Copies) > mostCopies {
			break
		}
	}
	return nil
}

// holder tells of the worker that holds a copy.
func (e *Explanation) holder(ctx context.Context, q *Queue, c *TaskCopy) error {
	replies := q.peer.calls.Do(ctx,
		redisconn.Command("HMGET", q.peer.space.Worker(c.WorkerID), "name", "host", "pid"),
		redisconn.Command("ZSCORE", q.keys.Workers(), c.WorkerID),
		redisconn.Command("ZSCORE", q.keys.Suspects(), c.WorkerID))
	var about []string
	scores := make([]float64, 2)
	there := make([]bool, 2)
	for i, r := range replies {
		var err error
		switch {
		case store.IsWrongType(r.Err):
		case r.Err != nil:
			return r.Err
		case i == 0:
			about, err = redis.Strings(r.Value, nil)
		case r.Value != nil:
			scores[i-1], err = redis.Float64(r.Value, nil)
			there[i-1] = true
		}
		if err != nil {
			return err
		}
	}
	if len(about) == 3 {
		c.WorkerName, c.Host = about[0], about[1]
		c.PID, _ = strconv.Atoi(about[2]) // what people wrote there is 0
	}
	now := float64(e.At.UnixMilli())
	switch {
	case there[1] && scores[1] <= 0:
		c.Reasons = append(c.Reasons, ReasonReturning)
		if e.Workers == 0 {
			c.Reasons = append(c.Reasons, ReasonNoWorker)
		}
	case there[0] && scores[0] < now:
		c.Reasons = append(c.Reasons, ReasonLeaseExpired)
		switch {
		case e.Workers == 0:
			c.Reasons = append(c.Reasons, ReasonNoWorker)
		case there[1]:
			c.EvictAt = time.UnixMilli(int64(scores[1])).Add(q.peer.opts.beat())
		default: // one looks with its next beat, and again a beat later
			c.EvictAt = e.At.Add(2 * q.peer.opts.beat())
		}
	}
	return nil
}

// String is a few sentences for people, without the payload and the key.
func (e *Explanation) String() string {
	switch {
	case len(e.Copies) == 0 && e.NotSearched > 0:
		return fmt.Sprintf("No copy of the task was found on %q. It may be among the last %d that are waiting there, which weren't read.", e.Queue, e.NotSearched)
	case e.NoSuchQueue:
		return fmt.Sprintf("No queue %q exists under the prefix %q. Check the name, the prefix and the URL of Redis.", e.Queue, cmp.Or(e.prefix, keys.DefaultPrefix))
	case len(e.Copies) == 0:
		return fmt.Sprintf("No copy of the task is on %q: it was never enqueued, or it's done, canceled or deleted.", e.Queue)
	}
	all := make([]string, len(e.Copies))
	for i := range e.Copies {
		all[i] = e.sentence(&e.Copies[i])
	}
	return strings.Join(all, "\n")
}

func (e *Explanation) sentence(c *TaskCopy) string {
	var s strings.Builder
	counts := fmt.Sprintf("retries: %d, crashes: %d", c.Retries, c.Crashes)
	switch c.State {
	case CopyWaiting:
		fmt.Fprintf(&s, "Waiting on %q.", e.Queue)
	case CopyScheduled:
		fmt.Fprintf(&s, "Scheduled on %q for %s (%s).", e.Queue, clock(c.DueAt), counts)
	case CopyBlocked:
		fmt.Fprintf(&s, "Waiting on %q until the task that runs under its key has ended.", e.Queue)
	case CopyRunning:
		fmt.Fprintf(&s, "Running on worker %s", shown(c.WorkerID))
		if c.WorkerName != "" {
			fmt.Fprintf(&s, " (%s, pid %d on %s)", shown(c.WorkerName), c.PID, shown(c.Host))
		}
		if !c.StartedAt.IsZero() {
			fmt.Fprintf(&s, " since %s", clock(c.StartedAt))
		}
		fmt.Fprintf(&s, ", as run %s with token %d.", shown(c.AttemptID), c.Token)
	case CopyFailed:
		fmt.Fprintf(&s, "Failed on %q at %s (%s, %s): %q. RequeueFailed runs it again.", e.Queue, clock(c.FailedAt), shown(string(c.Kind)), counts, c.Error)
	}
	for _, why := range c.Reasons {
		switch why {
		case ReasonPaused:
			s.WriteString(" The queue is paused; Resume it.")
		case ReasonNoWorker:
			s.WriteString(" No worker serves this queue; start a peer that handles it.")
		case ReasonBusy:
			fmt.Fprintf(&s, " All workers are busy (%d).", e.Workers)
		case ReasonNotDue:
			fmt.Fprintf(&s, " Due in %v.", c.DueAt.Sub(e.At).Round(time.Millisecond))
		case ReasonBehind:
			fmt.Fprintf(&s, " %s before it.", tasks(c.Before, "starts", "start"))
		case ReasonSuspect:
			fmt.Fprintf(&s, " %s died holding it. If one more crash would fail it, it waits until its peer runs no other such task.", several(c.Crashes, "worker"))
		case ReasonLeaseExpired:
			s.WriteString(" The worker's heartbeats have stopped.")
			if !c.EvictAt.IsZero() {
				fmt.Fprintf(&s, " Unless they resume, it's evicted at about %s, and the task returns to the front.", clock(c.EvictAt))
			}
		case ReasonReturning:
			s.WriteString(" The worker is gone, and the task is being returned to the front.")
		}
	}
	if len(c.Reasons) == 0 && (c.State == CopyWaiting || c.State == CopyScheduled) {
		s.WriteString(" It's about to start.")
	}
	return s.String()
}

// clock is a time as people read it.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }
