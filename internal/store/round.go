package store

import (
	"errors"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Cancellation is an entry of the cancel log.
type Cancellation struct {
	Name  string // the digest of a payload, or the entry of a key
	Token int64  // covers every process started before
}

// A Stopping is a process that a cancel covers and that still runs.
type Stopping struct {
	Name    string // of the cancel
	Process string
}

// A Round is one request of a worker to a queue.
type Round struct {
	Worker   string
	Number   int64 // rises by one; the same again repeats the last
	Lease    time.Duration
	Seen     int64 // the last cancel that the worker knows
	Idle     bool  // wait to be woken when the answer comes back short
	Crashes  int   // as many dead workers, and a task fails instead of starting; 0: never
	Solo     bool  // may start one task whose next death would be its last
	Keep     int   // failed tasks
	Outcomes []Outcome
	Stopping []Stopping // what runs of the cancels up to Said
	Said     int64      // the last cancel of which Stopping has told all
	Heard    []string   // digests of which a cancel message came
	Start    []string   // ids of the processes to start
	Ahead    int        // how many of these, the last ones, are more than can begin at once
	Budget   int        // μs of Redis time that the starts may take; 0: any. One starts in any case
	Room     int        // bytes of payload that may be started ahead; 0: any number
	Brief    bool       // tell of a large payload or result only its length, and start nothing new
	Results  int        // bytes of the largest result that is sent whole; 0: Large
	Passed   Passed     // what the last answer told
}

// results is how long a result may be to be sent whole. One that is large may be what a
// lost answer is due to.
func (r *Round) results() int {
	switch {
	case r.Results == 0 || r.Brief && r.Results > Large:
		return Large
	}
	return r.Results
}

// Passed is the entries at the head of the schedule that rounds have passed over, since
// a peer runs such tasks one at a time. A round that knows it looks behind them.
type Passed struct {
	Count int
	Last  string // the last of them
	First string // the time of the first
}

// ends is how many outcomes, the last ones, are simple.
func (r *Round) ends() (n int) {
	for n < len(r.Outcomes) && r.Outcomes[len(r.Outcomes)-1-n].simple() {
		n++
	}
	return n
}

// entries is how many outcomes may be of the schedule.
func (r *Round) entries() int {
	for i := len(r.Outcomes); i > 0; i-- {
		if !r.Outcomes[i-1].Plain {
			return i
		}
	}
	return 0
}

// Settled is what became of an outcome.
type Settled string

// What becomes of an outcome: it was applied; the task was to go back and a
// cancel had come; the worker had settled the process before; the queue's key is not a
// list, nothing was done.
const (
	OK       Settled = "ok"
	Canceled Settled = "canceled"
	Gone     Settled = "gone"
	Refused  Settled = "refused"
)

// A Start is a started process; it has the id of the same place in the request.
type Start struct {
	Payload []byte
	Token   int64
	Entry   string // of the schedule; "" for the list
	Retries int
	Crashes int
	Failure *Grave // in a failed queue
	Bytes   int    // of the payload, if it was left out of a brief answer
}

// An Answer is what a round was answered.
type Answer struct {
	Settled []Settled
	Started []Start
	Cancels []Cancellation
	Seen    int64
	Hungry  int           // others who are idle though nothing is left for them
	Rank    int           // place among the idle workers; -1 when not among them
	Again   bool          // there is more to do at once
	Trouble string        // why nothing could be started
	Tokens  []int64       // of the cancels in Heard; 0 when not on record
	Due     time.Duration // until the worker is to look; negative when it is not
	Buried  int           // tasks that failed because workers had died holding them
	Last    int64         // the number of the round before, as Redis knows it
	Cut     bool          // the budget ended the starts, and more could start
	Dropped int           // failed tasks that were more than to be kept
	Passed  *Passed       // nil when it was not looked
	Heard   bool          // observers have, of a finished task
	Watched bool          // there were locks, crashes or cancels, for which ends are hashed
}

// How many arguments step has before its lists, which are the outcomes, the ends, the
// acks, the heard and the starts; and for each outcome.
const (
	StepFixed   = 29
	StepOutcome = 5
)

// StepCall is the call of one round.
func StepCall(q keys.Queue, round *Round) redisconn.Call {
	var head, tail, bury string
	if !q.IsFailed() {
		head, tail = q.Failed().Around()
		bury = q.Failed().Wake("")
	}
	ends := round.ends()
	outcomes, simple := round.Outcomes[:len(round.Outcomes)-ends], round.Outcomes[len(round.Outcomes)-ends:]
	args := make([]any, 0, StepFixed+StepOutcome*len(outcomes)+2*ends+2*len(round.Stopping)+len(round.Heard)+len(round.Start))
	args = append(args, q.Process(""), q.Working(""), q.Cancel(""), q.Wake(""), q.Keyed(""),
		round.Worker, round.Number, round.Lease.Milliseconds(), round.Seen, flag(round.Idle),
		round.Crashes, flag(round.Solo), round.Keep, head, tail, bury,
		q.Channel(keys.KindDone), len(outcomes), round.entries(), ends, len(round.Stopping), len(round.Heard), round.Ahead, max(round.Budget, 0), max(round.Room, 0), flag(round.Brief),
		round.Passed.Count, round.Passed.Last, round.Passed.First)
	for _, o := range outcomes {
		args = append(args, o.Process, o.Token, string(o.Verb), o.word(round), o.large())
	}
	for _, o := range simple {
		args = append(args, o.Process, o.Token)
	}
	args = append(args, round.Said)
	for _, s := range round.Stopping {
		args = append(args, s.Name, s.Process)
	}
	for _, h := range round.Heard {
		args = append(args, h)
	}
	for _, id := range round.Start {
		args = append(args, id)
	}

	return step.Call(shared(q), args...)
}

// ReadStep reads the reply of a StepCall. It fails with ErrEvicted when the worker
// is no member of the queue.
func ReadStep(r redisconn.Reply, round *Round) (*Answer, error) {
	ends := round.ends()
	outcomes := round.Outcomes[:len(round.Outcomes)-ends]
	d := decode(r.Value, Refusal(r.Err))
	a := &Answer{}
	settled, odd, started, plain, last := d.list(), d.list(), d.list(), d.list(), d.int()
	if len(round.Outcomes) > 0 {
		a.Settled = make([]Settled, 0, len(round.Outcomes))
	}
	settled.each(func() { a.Settled = append(a.Settled, Settled(settled.string())) })
	for range ends {
		a.Settled = append(a.Settled, OK)
	}
	odd.each(func() {
		i, what := len(outcomes)+int(odd.int()), Settled(odd.string())
		if odd.err == nil && i >= len(outcomes) && i < len(a.Settled) {
			a.Settled[i] = what
		}
	})
	a.Started = make([]Start, 0, len(started.rest)/3+len(plain.rest))
	started.each(func() { a.Started = append(a.Started, started.start()) })
	for token := last - int64(len(plain.rest)); len(plain.rest) > 0 && plain.err == nil; {
		token++
		a.Started = append(a.Started, Start{Payload: plain.bytes(), Token: token})
	}
	for _, nested := range []*decoder{settled, odd, started, plain} {
		d.join(nested)
	}
	cancels := d.list()
	cancels.each(func() { a.Cancels = append(a.Cancels, Cancellation{cancels.string(), cancels.int()}) })
	d.join(cancels)
	a.Seen, a.Rank, a.Hungry, a.Again, a.Trouble = d.int(), int(d.int()), int(d.int()), d.int() == 1, d.string()
	recorded := d.list()
	recorded.each(func() { a.Tokens = append(a.Tokens, recorded.int()) })
	d.join(recorded)
	a.Due, a.Buried, a.Last, a.Cut = time.Duration(d.int())*time.Microsecond, int(d.int()), d.int(), d.int() == 1
	a.Dropped = int(d.int())
	if passed := d.list(); len(passed.rest) > 0 {
		a.Passed = &Passed{int(passed.int()), passed.string(), passed.string()}
		d.join(passed)
	}
	a.Heard, a.Watched = d.int() == 1, d.int() == 1
	if d.err == nil && (len(a.Settled) != len(round.Outcomes) || len(a.Started) > len(round.Start) || len(a.Tokens) != len(round.Heard)) {
		d.err = errors.New("the reply does not tell of what was asked")
	}
	return a, d.err
}

// start decodes one started process.
func (d *decoder) start() Start {
	s := Start{Payload: d.bytes(), Token: d.int()}
	switch more := d.next().(type) {
	case []byte: // a plain task
	case []any:
		in := &decoder{rest: more}
		s.Entry, s.Retries, s.Crashes = in.string(), int(in.int()), int(in.int())
		if story, ok := in.next().([]any); ok {
			of := &decoder{rest: story}
			g := of.grave()
			s.Failure = &g
			in.join(of)
		}
		s.Bytes = int(in.int())
		d.join(in)
	default:
		d.fail(more, "what there is to tell of a task")
	}
	return s
}
