package store

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	join  = load("join")
	step  = load("step")
	beat  = load("beat")
	sweep = load("sweep")
	leave = load("leave")
	fail  = load("fail")

	register = load("register")
	delist   = load("delist")
)

// shared and prefixes are what lib_queue.lua names.
func shared(q keys.Queue) []string {
	return []string{
		q.Waiting(), q.Workers(), q.Idle(), q.Suspects(), q.Canceled(), q.Rounds(), q.Unique(), q.Token(),
		q.Schedule(), q.Contents(), q.Entries(), q.Ledger(), q.Paused(),
		q.Gaps(), q.Holders(), q.Stopping(),
	}
}

func prefixes(q keys.Queue, args ...any) []any {
	return append([]any{q.Process(""), q.Working(""), q.Cancel(""), q.Wake(""), q.Keyed("")}, args...)
}

// TokenCall asks for the last token of a queue, which a join has to name.
func TokenCall(q keys.Queue) redisconn.Call { return redisconn.Command("GET", q.Token()) }

// ReadToken reads the answer to a TokenCall. Where Redis answers with no number it is
// 0, and the join then says why.
func ReadToken(reply redisconn.Reply) (int64, error) {
	text, err := redis.String(reply.Value, reply.Err)
	if _, refused := errors.AsType[redis.Error](err); refused || errors.Is(err, redis.ErrNil) {
		return 0, nil
	}
	token, _ := strconv.ParseFloat(text, 64) // as the scripts read it
	return int64(token), err
}

// JoinCall is the call that makes the worker a member for the lease (0: forever).
// Several travel together. Asked is the token that the queue had before; the rounds
// of the membership begin behind the given number.
func JoinCall(q keys.Queue, worker string, lease time.Duration, asked, round int64) redisconn.Call {
	return join.Call([]string{q.Workers(), q.Suspects(), q.Rounds(), q.Token()}, worker, lease.Milliseconds(), asked, round)
}

// ReadJoin reads the answer to a JoinCall. Joined is false when a worker went since
// the token was asked for, so that it is to be asked for again. It fails with
// ErrEvicted when the worker was failed or is leaving.
func ReadJoin(reply redisconn.Reply) (joined bool, err error) {
	n, err := redis.Int(reply.Value, Refusal(reply.Err))
	return n == 1, err
}

// An Ending says how a process ends.
type Ending string

// The endings: Finish for good; Drop for good, as canceled and without the event;
// Stop returns the task to the front; Retry has it tried again later; Fail puts
// it into the failed queue.
const (
	Finish Ending = "finish"
	Drop   Ending = "drop"
	Stop   Ending = "stop"
	Retry  Ending = "retry"
	Fail   Ending = "fail"
)

// A Kind says why a task is in the failed queue.
type Kind string

// The kinds of failure: its handler gave up; its payload cannot be read; too
// many workers died holding it.
const (
	Failed  Kind = "failed"
	Broken  Kind = "broken"
	Crashed Kind = "crashed"
)

// An Outcome ends one process.
type Outcome struct {
	Process string
	Token   int64
	Plain   bool   // it is certain to be of the list; in a round these come last
	Size    int    // bytes of the payload
	Digest  string // of the payload; of a large one it is said to the script
	Verb    Ending
	Result  []byte        // of Finish; nil: none
	Delay   time.Duration // of Retry
	Kind    Kind          // of Fail
	Reason  string        // of Fail

	about   string // of a large result: its length and digest, once Encode has been called
	encoded []byte // likewise, the result as it is sent; nil above the limit
}

// Encode does beforehand, without a lock and beside the rounds, what takes long of sending
// a large result. Most is how long one may be to be sent whole.
func (o *Outcome) Encode(most int) {
	if o.Verb != Finish || len(o.Result) <= Large {
		return
	}
	o.about = about(len(o.Result), fmt.Sprintf("%x", sha1.Sum(o.Result)))
	if len(o.Result) <= most {
		o.encoded = quoted("+"+o.about+":", o.Result)
	}
}

// word is what the verb needs besides the process, in a round.
func (o *Outcome) word(r *Round) any {
	switch {
	case o.Verb == Retry:
		return max(o.Delay, 0).Milliseconds()
	case o.Verb == Fail:
		return string(o.Kind) + ":" + o.Reason
	case o.Verb == Finish && len(o.Result) > Large:
		if o.about == "" || o.encoded == nil && len(o.Result) <= r.results() {
			o.Encode(r.results())
		}
		if len(o.Result) > r.results() {
			return "#" + o.about
		}
		return o.encoded
	case o.Verb == Finish && o.Result != nil:
		return append([]byte{'='}, o.Result...)
	}
	return ""
}

// quoted appends a string to a head as JSON writes it, whatever its bytes are. Redis
// would take 30 ms for each MiB.
func quoted(head string, s []byte) []byte {
	const hex = "0123456789abcdef"
	b := append(make([]byte, 0, len(head)+len(s)+len(s)/8+2), head...)
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// Large is from how many bytes on Redis would take long to encode a payload or a result.
// Observers get the length and the digest of such a payload; a result is encoded by
// the worker.
const Large = 64 << 10

// large is what there is to say of a large payload. A script that knows its digest
// need not read it.
func (o *Outcome) large() string {
	if o.Size <= Large {
		return ""
	}
	return about(o.Size, o.Digest)
}

func about(size int, digest string) string { return strconv.Itoa(size) + ":" + digest }

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

// simple reports whether all there is to say of an outcome is that it finishes
// a process of the list. In a round these come last, each process once.
func (o *Outcome) simple() bool {
	return o.Plain && o.Verb == Finish && o.Result == nil && o.Size <= Large
}

// Rank is the place of an outcome in a round: what may be of the schedule
// comes first, what is simple last.
func (o *Outcome) Rank() int {
	switch {
	case !o.Plain:
		return 0
	case !o.simple():
		return 1
	}
	return 2
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

// A Grave is a task in a failed queue.
type Grave struct {
	Entry   string // in the failed queue
	Payload []byte
	Kind    Kind
	Reason  string
	Retries int
	Crashes int
	Worker  string // that had it last
	At      int64  // ms of Redis time
	From    string // the entry of its key; "" for the list
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

// grave decodes what is known of a failed task.
func (d *decoder) grave() Grave {
	return Grave{d.string(), d.bytes(), Kind(d.string()), d.string(), int(d.number()), int(d.number()), d.string(), d.number(), d.string()}
}

// A Dead worker is one that a look has failed.
type Dead struct {
	Worker string
	Tasks  int // that it held, and that go back
}

// A Look is what a look for lapsed workers found.
type Look struct {
	Failed   []Dead
	Returned int           // tasks put back to the front
	Again    bool          // there is more to do at once
	Due      time.Duration // until the next suspect is due; negative when there is none
}

func (d *decoder) look() (l Look) {
	failed := d.list()
	failed.each(func() { l.Failed = append(l.Failed, Dead{failed.string(), int(failed.int())}) })
	d.join(failed)
	l.Returned, l.Again = int(d.int()), d.int() == 1
	l.Due = time.Duration(d.int()) * time.Millisecond
	return l
}

// A Pulse is what a beat was answered.
type Pulse struct {
	Lapsed   bool  // the lease had lapsed
	Waiting  int   // tasks
	Held     int   // processes of the worker
	Rank     int   // place among the idle workers; -1 when not among them
	Canceled int64 // token of the last cancel, if the worker has still to say what it holds of that
	Look
	Now      int64  // ms of Redis time
	Deadline int64  // until when the lease held before, as Redis knows it
	Batch    string // what is left of the batch that is to be moved to the queue next; "" if none is
}

// BeatCall is the call of one beat; several travel together. Workers that are
// seen lapsed are suspected, and failed a grace later by a beat that may judge.
// It may judge until the given Redis time, since a copy that comes late does not
// know what has been meanwhile; 0 is not at all.
func BeatCall(q keys.Queue, worker string, lease, grace time.Duration, judge int64) redisconn.Call {
	return beat.Call(append(shared(q), q.Batches()), prefixes(q, worker, lease.Milliseconds(), grace.Milliseconds(), judge, q.Batch(""))...)
}

// ReadBeat reads the reply of a BeatCall. It fails with ErrEvicted when the
// worker is no member of the queue.
func ReadBeat(r redisconn.Reply) (*Pulse, error) {
	d := decode(r.Value, Refusal(r.Err))
	p := &Pulse{Lapsed: d.int() == 1, Waiting: int(d.int()), Held: int(d.int()), Rank: int(d.int()), Canceled: d.int()}
	p.Look = d.look()
	p.Now, p.Deadline, p.Batch = d.int(), d.int(), d.string()
	return p, d.err
}

// Sweep looks once for lapsed workers.
func Sweep(ctx context.Context, r Runner, q keys.Queue, grace time.Duration) (Look, error) {
	d := decode(do(ctx, r, sweep.Call(shared(q), prefixes(q, grace.Milliseconds())...)))
	return d.look(), d.err
}

// Leave returns all that the worker holds to the front and ends its membership,
// unless a round after the given one has been answered. Asked is the token that the
// join of the membership named; that join has no effect any more, should it still
// be under way. It fails with ErrEvicted when the worker is no member, and may have
// been failed since.
func Leave(ctx context.Context, r Runner, q keys.Queue, worker string, asked, round int64) (returned int, err error) {
	for last := int64(math.MaxInt64); ; {
		d := decode(do(ctx, r, leave.Call(shared(q), prefixes(q, worker, round, asked)...)))
		n, left := int(d.int()), d.int()
		returned += n
		switch {
		case errors.Is(d.err, ErrEvicted) && last < math.MaxInt64:
			return returned, nil // somebody else has returned the rest
		case d.err != nil || left == 0:
			return returned, d.err
		case left >= last:
			return returned, errStuck
		}
		last = left
	}
}

// OfQueue reports whether an error is of one queue or key alone: Redis has answered.
func OfQueue(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered || errors.Is(err, errStuck)
}

// errStuck is why a return makes no progress. The scripts pass over what they cannot
// move, and do not tell why. Any peer goes on with it once it can be moved.
var errStuck = errors.New("not all tasks can be returned: Redis refuses to move what is left, " +
	"since a key of the queue is of another type (WRONGTYPE), or since this user may not use a command of the scripts, such as LMOVE")

// FailWorker fences the worker and returns its tasks. Known tells whether it
// served the queue. Others may help: what they handle meanwhile counts as returned.
func FailWorker(ctx context.Context, r Runner, q keys.Queue, worker string) (known bool, returned int, err error) {
	return takeBack(ctx, r, q, worker, true)
}

// GoOn goes on with the return of a worker that was failed or has left, and may have
// come back since.
func GoOn(ctx context.Context, r Runner, q keys.Queue, worker string) (returned int, err error) {
	_, returned, err = takeBack(ctx, r, q, worker, false)
	return returned, err
}

func takeBack(ctx context.Context, r Runner, q keys.Queue, worker string, begin bool) (known bool, returned int, err error) {
	for last := int64(math.MaxInt64); ; begin = false {
		d := decode(do(ctx, r, fail.Call(shared(q), prefixes(q, worker, flag(begin))...)))
		k, n, handled, left := d.int(), int(d.int()), d.int(), d.int()
		known = known || k == 1
		returned += n
		if last != math.MaxInt64 && d.err == nil {
			returned += int(max(last-handled-left, 0))
		}
		if d.err != nil || left == 0 {
			return known, returned, d.err
		}
		if left >= last {
			return known, returned, errStuck
		}
		last = left
	}
}

// A Registration is what a peer says of itself.
type Registration struct {
	Name, Host, Version string
	PID                 int
	Started             time.Time
	Queues              string // JSON array
	Lease               time.Duration
	Stuck               int64
}

// Register writes the registration and lists the worker. A ttl of 0 never
// ends.
func Register(ctx context.Context, r Runner, s keys.Space, worker string, ttl time.Duration, reg Registration) error {
	for _, reply := range r.Do(ctx,
		register.Call([]string{s.Worker(worker)}, ttl.Milliseconds(), reg.Name, reg.Host, reg.PID,
			reg.Started.UnixMilli(), reg.Version, reg.Queues, reg.Lease.Milliseconds(), reg.Stuck),
		enlist.Call([]string{s.Workers()}, worker)) {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Delist takes workers off the list of peers whose registration has ended.
func Delist(ctx context.Context, r Runner, s keys.Space, workers []string) error {
	calls := make([]redisconn.Call, len(workers))
	for i, w := range workers {
		calls[i] = delist.Call([]string{s.Workers(), s.Worker(w)}, w)
	}
	for _, reply := range r.Do(ctx, calls...) {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Now is the time of Redis, in ms.
func Now(ctx context.Context, r Runner) (int64, error) {
	v, err := redis.Int64s(do(ctx, r, redisconn.Command("TIME")))
	if err != nil || len(v) != 2 {
		return 0, err
	}
	return v[0]*1000 + v[1]/1000, nil
}
