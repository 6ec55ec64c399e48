package store

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Cancellation is an entry of the cancel log.
type Cancellation struct {
	Name  string // the digest of a payload, or the entry of a key
	Token int64  // it covers every process with a lower token
}

// A Stopping is a process that a cancel covers and that still runs.
type Stopping struct {
	Name    string // of the cancel
	Process string
}

// What a round ends weighs at most RoundWeight, and has payloads and results of at most RoundBytes, or is one
// task: Redis does nothing else while it works on a round. step.lua limits what a round starts in the same way.
const (
	RoundWeight = 512
	RoundBytes  = 1 << 20
	EventBytes  = 128 << 10 // instead of RoundBytes if observers listen: Redis encodes what ends for them
	heavy       = 4         // the weight of an outcome that isn't simple; others weigh 1
)

// A Round is a worker's request on a queue.
type Round struct {
	Worker   string
	Number   int64 // rises by one; the same number repeats the last round
	Lease    time.Duration
	Seen     int64 // the last cancel that the worker has received
	Issued   int64 // the highest token that the worker knows; at least Seen and Said
	Idle     bool  // wait to be woken if fewer tasks start than asked for
	Crashes  int   // the worker fails a task after this many workers died holding it; 0: never
	Solo     bool  // may start one task that fails if one more worker dies holding it
	Keep     int   // how many failed tasks are kept
	Outcomes []*Outcome
	Stopping []Stopping // the running processes that the cancels up to Said cover
	Said     int64      // the last cancel for which Stopping is complete
	Heard    []string   // digests from cancel messages
	Start    []string   // ids of the processes to start
	Ahead    int        // how many of these, at the end, are prefetched: no slot is free for them
	Passed   Passed     // from the last answer
}

// Passed describes the entries at the head of the schedule that rounds have skipped, since a peer
// runs such tasks one at a time. A round that has it looks only behind these entries.
type Passed struct {
	Count int
	Last  string // the last of them
	First string // the time of the first
}

// ends returns how many outcomes, the last ones, are simple.
func (r *Round) ends() (n int) {
	for n < len(r.Outcomes) && r.Outcomes[len(r.Outcomes)-1-n].simple() {
		n++
	}
	return n
}

// unplain returns how many outcomes there are up to the last one whose task may not be from the
// list.
func unplain(outcomes []*Outcome) int {
	for i := len(outcomes); i > 0; i-- {
		if !outcomes[i-1].Plain {
			return i
		}
	}
	return 0
}

// Settled says what happened to an outcome.
type Settled string

const (
	OK       Settled = "ok"       // the outcome was applied
	Canceled Settled = "canceled" // the task was to return or to be retried, but a cancel dropped it
	Gone     Settled = "gone"     // the process had been settled before
	Refused  Settled = "refused"  // a key has the wrong type, and nothing was done
)

// A Start is a started process. Its id is the one at the same index in the request.
type Start struct {
	Payload []byte // empty if it's large and has crashed too often
	Token   int64
	Entry   string // of the schedule, or of an added task; "" for the list
	Added   bool   // it was added, and waited in the stream; its outcome says so, too
	ByKey   bool   // its key alone identifies it: no cancel of its payload covers it
	Card    string // of a task with properties; "" without
	Error   string // of the previous attempt, if that was retried with a reason
	Due     int64  // ms of Redis time when it was due, or was added; 0: unknown
	Retries int
	Crashes int
	Failure *FailedTask // in a failed queue
}

// An Answer is the answer to a round.
type Answer struct {
	Settled []Settled
	Started []Start
	Token   int64 // the last one of the queue
	Cancels []Cancellation
	Seen    int64         // the last cancel that the worker has received now
	Hungry  int           // how many other workers are idle, with nothing to start
	More    bool          // more tasks could start, also if the round asked for none
	Rank    int           // place among the idle workers; -1 when not among them
	Again   bool          // there is more to do immediately
	Trouble string        // why nothing could be started
	Tokens  []int64       // of the cancels in Heard; 0 if not recorded
	Due     time.Duration // until the worker should look again; negative if it doesn't need to
	Last    int64         // the number of the previous round, according to Redis
	Dropped int           // failed tasks dropped, since more than Keep had failed
	Passed  *Passed       // nil if the round didn't look
	Heard   bool          // observers have received the event of a finished task
	Now     int64         // ms of Redis time
}

// Before returns the queue's last token before the round started tasks, or a later one.
func (a *Answer) Before() int64 {
	if len(a.Started) > 0 {
		return a.Started[0].Token - 1
	}
	return a.Token
}

// A Stepper makes the calls of rounds on a queue. It has what is the same in all of them.
type Stepper struct {
	q                      keys.Queue
	own                    []any
	head, tail, wakeFailed any
}

// NewStepper returns a Stepper for the queue.
func NewStepper(q keys.Queue) *Stepper {
	s := &Stepper{q: q, own: step.own(q), head: "", tail: "", wakeFailed: ""}
	if !q.IsFailed() {
		s.head, s.tail = q.Failed().Around()
		s.wakeFailed = q.Failed().Wake("")
	}
	return s
}

// Call returns the call of a round.
func (s *Stepper) Call(round *Round) redisconn.Call {
	ends := round.ends()
	outcomes, simple := round.Outcomes[:len(round.Outcomes)-ends], round.Outcomes[len(round.Outcomes)-ends:]
	all := step.line(s.q, s.own, outcomeSize*len(outcomes)+2*ends+1+2*len(round.Stopping)+len(round.Heard)+len(round.Start), []any{
		"worker", round.Worker, "round", round.Number, "lease", round.Lease.Milliseconds(), "seen", round.Seen, "issued", round.Issued, "idle", flag(round.Idle),
		"crashes", round.Crashes, "solo", flag(round.Solo), "keep", round.Keep, "head", s.head, "tail", s.tail, "wake_failed", s.wakeFailed,
		"outcomes", len(outcomes), "entries", unplain(outcomes), "ends", ends, "adds", unplain(simple), "stopping", len(round.Stopping), "heard", len(round.Heard),
		"ahead", round.Ahead,
		"passed", round.Passed.Count, "last", round.Passed.Last, "first", round.Passed.First, "lists", []any(nil),
	})
	for _, o := range outcomes {
		all = append(all, o.Process, o.Token, string(o.Verb), o.word())
	}
	for _, o := range simple {
		all = append(all, o.Process, o.Token)
	}
	all = append(all, round.Said)
	for _, s := range round.Stopping {
		all = append(all, s.Name, s.Process)
	}
	for _, h := range round.Heard {
		all = append(all, h)
	}
	for _, id := range round.Start {
		all = append(all, id)
	}
	return step.begun(s.q, all)
}

// outcomeSize is how many arguments a call has for an outcome.
const outcomeSize = 4

// A RoundView is the decoded call of a round.
type RoundView struct {
	Worker   string
	Number   int64
	Lease    time.Duration
	Outcomes []Outcome // without results
	Said     int64
	Stopping []Stopping
	Heard    []string
	Start    []string
}

// RoundOf reads the call of a round: it is the inverse of Stepper.Call. Lists that are shorter
// than the call says are read as far as they go.
func RoundOf(c Call) RoundView {
	v := RoundView{Worker: c.Arg("worker"), Number: c.Int("round"), Lease: time.Duration(c.Int("lease")) * time.Millisecond}
	rest := c.Rest()
	take := func(n int64) (some []string) {
		n = max(min(n, int64(len(rest))), 0)
		some, rest = rest[:n], rest[n:]
		return some
	}
	for o := range slices.Chunk(take(outcomeSize*c.Int("outcomes")), outcomeSize) {
		if len(o) == outcomeSize {
			end := Outcome{Process: o[0], Token: numberIn(o[1]), Verb: Ending(o[2])}
			switch end.Verb {
			case Retry, Snooze:
				delay, reason, _ := strings.Cut(o[3], ":")
				end.Delay, end.Reason = time.Duration(numberIn(delay))*time.Millisecond, reason
			case Fail:
				kind, rest, _ := strings.Cut(o[3], ":")
				due, reason, _ := strings.Cut(rest, ":")
				end.Kind, end.Due, end.Reason = Kind(kind), numberIn(due), reason
			}
			v.Outcomes = append(v.Outcomes, end)
		}
	}
	adds := c.Int("adds")
	for o := range slices.Chunk(take(2*c.Int("ends")), 2) {
		if len(o) == 2 {
			v.Outcomes = append(v.Outcomes, Outcome{Process: o[0], Token: numberIn(o[1]), Verb: Finish, Plain: adds <= 0, Added: adds > 0})
			adds--
		}
	}
	if said := take(1); len(said) == 1 {
		v.Said = numberIn(said[0])
	}
	for s := range slices.Chunk(take(2*c.Int("stopping")), 2) {
		if len(s) == 2 {
			v.Stopping = append(v.Stopping, Stopping{Name: s[0], Process: s[1]})
		}
	}
	v.Heard = take(c.Int("heard"))
	v.Start = rest
	return v
}

// ReadStep reads the reply to the call of a round. It fails with ErrEvicted when the worker
// isn't a member of the queue.
func ReadStep(r redisconn.Reply, round *Round) (*Answer, error) {
	ends := round.ends()
	outcomes := round.Outcomes[:len(round.Outcomes)-ends]
	in := step.read(r.Value, r.Err)
	settled, odd, started, plain := in.list("settled"), in.list("odd"), in.list("started"), in.list("plain")
	a := &Answer{Token: in.int("token")}
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
	for token := a.Token - int64(len(plain.rest)); len(plain.rest) > 0 && plain.err == nil; {
		token++
		a.Started = append(a.Started, Start{Payload: plain.bytes(), Token: token})
	}
	for _, nested := range []*decoder{settled, odd, started, plain} {
		in.join(nested)
	}
	in.each("cancels", func(d *decoder) { a.Cancels = append(a.Cancels, Cancellation{d.string(), d.int()}) })
	a.Seen, a.Rank, a.Hungry, a.Again = in.int("seen"), int(in.int("rank")), int(in.int("hungry")), in.int("again") == 1
	a.Hungry, a.More = max(a.Hungry, 0), a.Hungry < 0
	a.Trouble = in.string("trouble")
	in.each("recorded", func(d *decoder) { a.Tokens = append(a.Tokens, d.int()) })
	a.Due, a.Last = time.Duration(in.int("due"))*time.Microsecond, in.int("last")
	a.Dropped = int(in.int("dropped"))
	if passed := in.list("passed"); len(passed.rest) > 0 {
		a.Passed = &Passed{int(passed.int()), passed.string(), passed.string()}
		in.join(passed)
	}
	a.Heard, a.Now = in.int("observed") == 1, in.int("now")
	if in.err == nil && (len(a.Settled) != len(round.Outcomes) || len(a.Started) > len(round.Start) || len(a.Tokens) != len(round.Heard)) {
		in.err = errors.New("the reply doesn't match the request")
	}
	return a, in.err
}

// start decodes one started process.
func (d *decoder) start() Start {
	s := Start{Payload: d.bytes(), Token: d.int()}
	switch more := d.next().(type) {
	case []byte: // a plain task, or the field of an added one in entries
		s.from(string(more))
	case []any:
		in := &decoder{rest: more}
		s.from(in.string())
		s.Retries, s.Crashes = int(in.int()), int(in.int())
		if story, ok := in.next().([]any); ok {
			of := &decoder{rest: story}
			g := of.failedTask()
			s.Failure = &g
			in.join(of)
		}
		due, card, failure, byKey := in.int(), in.string(), in.string(), in.int()
		if !s.Added {
			s.ByKey = byKey == 1
			s.Card, s.Error = card, failure
			if due >= ancient { // a lower number is the place of a task that was returned to the front
				s.Due = due
			}
		}
		if s.Failure != nil {
			s.Failure.Card = s.Card
		}
		d.join(in)
	default:
		as[[]any](more, &d.err, "", "the details of a started task")
	}
	return s
}

// from reads what a task was started from: an entry, or the name and card of an added task.
func (s *Start) from(origin string) {
	s.Entry = origin
	if key, card, ok := keys.SplitAdded(origin); ok {
		s.Entry, s.Added, s.ByKey, s.Card = EntryOf(key), true, true, card
		if at, ok := keys.AddedAt(key); ok {
			s.Due = at.UnixMilli()
		}
	}
}
