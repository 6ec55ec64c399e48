package doctor

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A State says where a copy of a task is.
type State string

// The states.
const (
	Waiting   State = "waiting"
	Scheduled State = "scheduled"
	Blocked   State = "blocked"
	Running   State = "running"
	Failed    State = "failed"
)

// A Reason says why a copy of a task does not run, or no longer.
type Reason string

// The reasons.
const (
	Paused       Reason = "paused"
	NoWorker     Reason = "no-worker"
	Busy         Reason = "busy"
	NotDue       Reason = "not-due"
	Withheld     Reason = "withheld"
	Behind       Reason = "behind"
	KeyRuns      Reason = "blocked"
	Suspect      Reason = "suspect"
	LeaseExpired Reason = "lease-expired"
	Returning    Reason = "returning"
	HasFailed    Reason = "failed"
)

// A Copy is one place where a task is.
type Copy struct {
	State   State
	Key     string // "" if it has none, or that isn't known
	Since   int64  // ms of Redis time when it was enqueued; 0 if that isn't known
	Reasons []Reason
	Before  int
	DueAt   time.Time
	Retries int
	Crashes int

	// Of what runs.
	Attempt    string
	Token      int64
	StartedAt  time.Time
	Worker     string // of what has failed, too
	WorkerName string
	Host       string
	PID        int
	EvictAt    time.Time

	// Of what has failed.
	Kind     string
	Error    string
	FailedAt time.Time
}

// An Explanation tells where a task is and why it does not run.
type Explanation struct {
	Now         int64 // ms, by the clock of Redis
	NoSuchQueue bool
	Paused      bool
	Workers     int
	IdleWorkers int
	NotSearched int
	Copies      []Copy
	Recurs      *store.RecurringTask // under the key; nil if nothing does
}

const (
	mostCopies  = 10      // of each kind that are explained
	listDepth   = 100_000 // from the front of the list that are looked at
	failedDepth = 1000    // of the failed queue, newest first
)

// A Question is where to look for what.
type Question struct {
	Runner  store.Runner
	Space   store.Space
	Queue   string
	Entry   string // to look for; "" to look for the payload
	Payload []byte
	Beat    time.Duration // between two of a peer
}

// Explain looks for the copies of a task.
func (q Question) Explain(ctx context.Context) (*Explanation, error) {
	// What moves between two reads may be seen in neither: look again.
	for tries := 2; ; tries-- {
		e, err := q.once(ctx)
		if err != nil || len(e.Copies) > 0 || e.Recurs != nil {
			return e, err
		}
		if tries == 1 {
			e.NoSuchQueue, err = store.Unknown(ctx, q.Runner, q.Space, q.keys(), q.Queue)
			return e, err
		}
	}
}

func (q Question) keys() store.Keys { return q.Space.Queue(q.Queue) }

func (q Question) once(ctx context.Context) (*Explanation, error) {
	p, err := store.Explain(ctx, q.Runner, q.keys(), q.Entry, q.Payload, mostCopies, listDepth)
	if err != nil {
		return nil, err
	}
	e := explained(p, q.Entry != "")
	if q.Entry == "" {
		err = q.running(ctx, e)
	}
	if err != nil {
		return nil, err
	}
	for _, g := range p.Graves {
		e.Copies = append(e.Copies, hasFailed(&g))
	}
	if q.Entry != "" {
		if err := q.searchFailed(ctx, e); err != nil {
			return nil, err
		}
		if e.Recurs, err = store.RecurringUnder(ctx, q.Runner, q.keys(), q.Entry, p.Now); err != nil {
			return nil, err
		}
	}
	for i := range e.Copies {
		if c := &e.Copies[i]; q.Entry != "" {
			c.Key = store.KeyOf(q.Entry)
		}
		if c := &e.Copies[i]; c.State == Running {
			h, err := store.ReadHolder(ctx, q.Runner, q.Space, q.keys(), c.Worker)
			if err != nil {
				return nil, err
			}
			e.held(c, h, q.Beat)
		}
	}
	return e, nil
}

// explained tells of what waits, and of what runs of a key.
func explained(p *store.Place, byKey bool) *Explanation {
	e := &Explanation{Now: p.Now, Paused: p.Paused, Workers: p.Workers, IdleWorkers: p.Idle}
	if !byKey {
		e.NotSearched = max(p.Length-listDepth, 0)
	}
	for _, before := range p.Before { // added tasks take turns with the list
		e.Copies = append(e.Copies, e.waits(Copy{State: Waiting, Before: p.Ready + before + min(before, p.Added)}))
	}
	if l := p.Line; l != nil {
		before := l.Before
		if before < 0 {
			before = p.Added - 1 // at most
		}
		e.Copies = append(e.Copies, e.waits(Copy{State: Waiting, Since: l.Since, Before: p.Ready + before + min(before, p.Length)}))
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

func runningCopy(attempt, worker string, token int64, entry string) Copy {
	return Copy{State: Running, Key: store.KeyOf(entry), Since: store.CardOf(entry, "").Since, Attempt: attempt, Worker: worker, Token: token, StartedAt: store.StartedAt(attempt)}
}

// running looks for the payload among what runs.
func (q Question) running(ctx context.Context, e *Explanation) error {
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

// waits adds why something does not start that might.
func (e *Explanation) waits(c Copy) Copy {
	if c = e.halted(c); len(c.Reasons) == 0 && e.IdleWorkers == 0 {
		c.Reasons = append(c.Reasons, Busy)
	}
	if c.Before > 0 {
		c.Reasons = append(c.Reasons, Behind)
	}
	return c
}

// halted adds why nothing of the queue starts at all.
func (e *Explanation) halted(c Copy) Copy {
	switch {
	case e.Paused:
		c.Reasons = append(c.Reasons, Paused)
	case e.Workers == 0:
		c.Reasons = append(c.Reasons, NoWorker)
	}
	return c
}

// entry is what waits of an entry.
func (e *Explanation) entry(now int64, x store.Entry) Copy {
	c := Copy{State: Scheduled, Key: store.KeyOf(x.Name), Since: store.CardOf(x.Name, "").Since, DueAt: time.UnixMilli(store.Due(x.Due, now)), Retries: x.Retries, Crashes: x.Crashes, Before: max(x.Before, 0)}
	early := x.Due > now
	if x.Held && x.Process == "" {
		c.DueAt, c.Reasons = time.UnixMilli(x.Turn), []Reason{Withheld}
		return e.halted(c)
	}
	if x.Process != "" {
		c.State, c.Reasons = Blocked, []Reason{KeyRuns}
	}
	switch {
	case early:
		c.Reasons = append(c.Reasons, NotDue)
		c = e.halted(c) // it would not start then either
	case c.State == Scheduled:
		c = e.waits(c)
		if c.Crashes > 0 && !e.Paused && e.Workers > 0 {
			c.Reasons = append(c.Reasons, Suspect) // only its peer knows MaxCrashes, and what else runs there
		}
	}
	return c
}

func hasFailed(g *store.Grave) Copy {
	return Copy{State: Failed, Key: store.KeyOf(g.From), Since: store.CardOf(g.From, g.Card).Since, Reasons: []Reason{HasFailed}, Worker: g.Worker, Retries: g.Retries, Crashes: g.Crashes,
		Kind: string(g.Kind), Error: g.Reason, FailedAt: time.UnixMilli(g.At)}
}

// searchFailed looks for a key in the failed queue.
func (q Question) searchFailed(ctx context.Context, e *Explanation) error {
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

// held tells of the worker that holds a copy.
func (e *Explanation) held(c *Copy, h store.Holder, beat time.Duration) {
	c.WorkerName, c.Host, c.PID = h.Name, h.Host, h.PID
	switch {
	case h.Suspect && h.Judged <= 0:
		c.Reasons = append(c.Reasons, Returning)
		if e.Workers == 0 {
			c.Reasons = append(c.Reasons, NoWorker)
		}
	case h.Member && h.Until < e.Now:
		c.Reasons = append(c.Reasons, LeaseExpired)
		switch {
		case e.Workers == 0:
			c.Reasons = append(c.Reasons, NoWorker)
		case h.Suspect:
			c.EvictAt = time.UnixMilli(h.Judged).Add(beat)
		default: // one looks with its next beat, and again a beat later
			c.EvictAt = time.UnixMilli(e.Now).Add(2 * beat)
		}
	}
}

// Recur says what recurs under the key, if anything does.
func (e *Explanation) Recur(queue string) []string {
	r := e.Recurs
	if r == nil {
		return nil
	}
	at := func(ms int64) string { return Clock(time.UnixMilli(ms)) }
	says := fmt.Sprintf("It recurs on %q", queue)
	switch {
	case r.Running != 0:
		says += fmt.Sprintf("; the occurrence of %s hasn't ended", at(r.Running))
	case r.Outcome != "":
		says += fmt.Sprintf("; the occurrence of %s was %s", at(r.Of), Shown(r.Outcome))
	}
	if says += ". "; r.Next == 0 {
		says += "Redis knows no next time."
	} else {
		says += fmt.Sprintf("The next time is %s.", at(r.Next))
	}
	if r.Until < r.Now {
		says += " No live peer has its schedule, so it's withheld; start a peer that calls Every for it."
	}
	return []string{says}
}
