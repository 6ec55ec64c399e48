package store

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/past"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	start  = verb("start")
	finish = verb("finish")
)

// What a call of finish ends weighs at most RoundWeight, and has payloads and results of at most RoundBytes,
// or is one task: Redis does nothing else meanwhile. start.lua limits what it starts in the same way.
const (
	RoundWeight = 512
	RoundBytes  = 1 << 20
)

// MaxDigested is the largest payload that has a digest, in bytes. No handler gets a larger one.
const MaxDigested = 16 << 20

// An Ending says how an attempt ends.
type Ending string

// The endings: Done ends the task; Drop ends it without the event; Stop returns it to the front; Retry
// schedules a retry; Snooze schedules a start that doesn't count as a retry; Fail moves it to the
// failed queue.
const (
	Done   Ending = "done"
	Drop   Ending = "drop"
	Stop   Ending = "stop"
	Retry  Ending = "retry"
	Snooze Ending = "snooze"
	Fail   Ending = "fail"
)

// MaxError is how much of an error the next attempt sees, in bytes.
const MaxError = 1 << 10

// An End ends one attempt.
type End struct {
	Attempt string
	Token   int64
	Name    string // "" for a raw task
	Digest  Digest // of a raw task's payload
	Size    int    // bytes of the payload
	Verb    Ending
	Delay   time.Duration // of Retry and Snooze; of Done: for how long the result is kept
	Result  []byte        // of Done; nil: none
	Kind    Kind          // of Fail
	Reason  string        // of Fail; of Retry, up to MaxError bytes for the next attempt to see; of Drop, the word in the result
	past    string        // of Fail and Retry: the list of attempts that failed
}

// Follow adds the list of attempts that failed: those in the text of the one before, and this one if it ran.
// began is when a handler did; zero if none has.
func (e *End) Follow(before past.Text, began time.Time, ran bool) {
	if e.Verb != Retry && e.Verb != Fail {
		return
	}
	all := before.Attempts()
	if ran {
		this := inspect.Attempt{WorkerID: WorkerOf(e.Attempt), StartedAt: cmp.Or(began, StartedAt(e.Attempt)), EndedAt: time.Now(), Error: e.Reason}
		all = append([]inspect.Attempt{this}, all...)
	}
	e.past = past.List(all...)
}

// Plain reports whether an end needs only the attempt and its token.
func (e *End) Plain() bool { return e.Name == "" && e.Verb == Done && e.Result == nil }

// Weight returns how much the end counts in a round, and how many bytes Redis may have to read for it.
func (e *End) Weight() (weight, bytes int) {
	switch {
	case e.Plain():
		return 1, e.Size
	case e.Verb == Done:
		return 2, e.Size + len(e.Result)
	}
	return 4, e.Size + len(e.Result)
}

// identity returns what an end says about its task.
func (e *End) identity() string {
	if e.Name != "" {
		return e.Name
	}
	return "d:" + e.Digest.String()
}

// A Digest is the SHA-1 of a payload, by which cancels and crash counts know it.
type Digest [sha1.Size]byte

// SumOf returns the digest of a payload. One above MaxDigested has the zero Digest.
func SumOf(payload []byte) Digest {
	if len(payload) > MaxDigested {
		return Digest{}
	}
	return sha1.Sum(payload)
}

// String returns the digest in hex, as the scripts have it; "" for the zero Digest.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// DigestOf returns the digest of a payload in hex; "" if the payload is too large for one.
func DigestOf(payload []byte) string { return SumOf(payload).String() }

func (e *End) text() any {
	switch {
	case e.Verb == Fail:
		return string(e.Kind) + ":" + e.Reason + e.past
	case e.Verb == Done && e.Result != nil:
		return e.Result
	case e.Verb == Done:
		return ""
	}
	return e.Reason + e.past
}

// A Finish is a request to end attempts.
type Finish struct {
	Worker    string
	MaxFailed int // how many failed tasks are kept; 0: all. In a failed queue, how many of those that were set aside
	Ends      []*End
}

// Call returns the call of a Finish. It moves the plain ends to the front.
func (f *Finish) Call(s *Shared) redisconn.Call {
	slices.SortStableFunc(f.Ends, func(a, b *End) int { return flag(b.Plain()) - flag(a.Plain()) })
	plain := slices.IndexFunc(f.Ends, func(e *End) bool { return !e.Plain() })
	if plain < 0 {
		plain = len(f.Ends)
	}
	all := finish.line(s, 2*plain+6*(len(f.Ends)-plain), f.Worker, f.MaxFailed, plain)
	for _, e := range f.Ends[:plain] {
		all = append(all, e.Attempt, e.Token)
	}
	for _, e := range f.Ends[plain:] {
		all = append(all, e.Attempt, e.Token, e.identity(), string(e.Verb), max(e.Delay, 0).Milliseconds(), e.text())
	}
	return finish.callOf(s, all)
}

// Settled says what happened to an end.
type Settled string

const (
	OK        Settled = "ok"        // it was carried out
	Canceled  Settled = "canceled"  // the task was to come back or fail, but a cancel dropped it
	Gone      Settled = "gone"      // the attempt had ended before
	Refused   Settled = "refused"   // a key has the wrong type, and nothing was done
	Postponed Settled = "postponed" // too much waits behind the tasks of this call: say it again
)

// Read reads the reply to the call of a Finish: what happened to each of its ends, in their order after Call, and
// how many failed tasks were dropped, since more than MaxFailed had failed. It fails with ErrNoMember
// when the worker isn't a member of the queue.
func (f *Finish) Read(r redisconn.Reply) (settled []Settled, dropped int, err error) {
	in := read(r.Value, r.Err)
	settled = slices.Repeat([]Settled{OK}, len(f.Ends))
	in.lists(func(odd *decoder) {
		i, what := odd.int()-1, Settled(odd.string())
		if odd.err == nil && (i < 0 || i >= int64(len(settled))) {
			odd.err = errMismatch
		}
		if odd.err == nil {
			settled[i] = what
		}
	})
	return settled, int(in.int()), in.err
}

var errMismatch = errors.New("the reply doesn't match the request")

// A Start is a request for tasks.
type Start struct {
	Worker     string
	Round      int64 // rises by one; the same number repeats a round, with the same contents
	Stamp      int64 // the worker's clock in ms, for the ids of the attempts
	Lease      time.Duration
	Wanted     int  // tasks at most
	Ahead      int  // how many of them, the last ones, are prefetched: no slot is free for them
	Idle       bool // wait to be woken if fewer start
	Solo       bool // may start one risky task
	MaxCrashes int  // a task that has crashed once less is risky; 0: never
}

func (r *Start) Call(s *Shared) redisconn.Call {
	return start.call(s, r.Worker, r.Round, r.Stamp, r.Lease.Milliseconds(), r.Wanted, r.Ahead, flag(r.Idle), flag(r.Solo), r.MaxCrashes)
}

// An Attempt is what a worker gets to know of a task that it starts.
type Attempt struct {
	ID      string
	Token   int64
	Name    string // "" for a raw task
	Record  Record // of a raw task only the payload
	Large   bool   // the payload has more than 1 MiB, or the record has: it has to be read
	Retries int
	Crashes int
	Error   past.Text // of the attempt before; "" if there's none
	Over    bool      // it has ended since, and there's nothing else: only a repeat can answer that
}

// In an answer, these are in place of how many tasks can start.
const (
	InPause  = -1
	InReturn = -2
)

// An Answer is the answer to a Start.
type Answer struct {
	Tasks  []Attempt
	Last   int64         // the queue's last token
	Before int64         // the last round before this one; not lower than this one if it's a repeat
	More   int           // how many tasks can start now; or InPause or InReturn
	Due    time.Duration // until the time that this worker has claimed; negative: none
	Now    int64         // ms of Redis time
}

// Read reads the reply to the call of a Start. It fails with ErrNoMember when the worker isn't a
// member of the queue.
func (r *Start) Read(of keys.Queue, reply redisconn.Reply) (*Answer, error) {
	in := read(reply.Value, reply.Err)
	first, started := in.int(), in.list()
	a := &Answer{Last: in.int(), Before: in.int(), More: int(in.int())}
	due := in.int()
	a.Due = time.Duration(due) * time.Microsecond
	a.Now = in.int()
	a.Tasks = make([]Attempt, 0, len(started.rest))
	started.each(func() {
		n := int64(len(a.Tasks))
		t := started.attempt(of.IsFailed())
		t.Token, t.ID = first+n, r.attempt(n+1, t.Name != "")
		a.Tasks = append(a.Tasks, t)
	})
	in.join(started)
	return a, in.err
}

// attempt returns the id of the nth attempt of the round.
func (r *Start) attempt(n int64, named bool) string {
	var b [96]byte
	id := append(b[:0], r.Worker...)
	for _, part := range [...]int64{r.Round, r.Stamp, n} {
		id = strconv.AppendInt(append(id, '.'), part, 10)
	}
	if named {
		id = append(id, 'n')
	}
	return string(id)
}

func (d *decoder) attempt(inFailed bool) Attempt {
	switch what := d.next().(type) {
	case nil:
		return Attempt{Over: d.err == nil}
	case []byte:
		return Attempt{Record: Record{Payload: what}}
	case int64:
		return Attempt{Large: true}
	case []any:
		in := &decoder{rest: what}
		defer d.join(in)
		if len(what) == 2 { // a raw one
			t := Attempt{Large: isLarge(what[0]), Crashes: int(max(as[int64](what[1], &in.err, "a number"), 0))}
			if !t.Large {
				t.Record.Payload = in.bytes()
			}
			return t
		}
		t := Attempt{Name: in.string()}
		if record := in.next(); isLarge(record) {
			t.Large = true
		} else {
			t.Record = ReadRecord(as[[]byte](record, &in.err, "a string"), inFailed)
		}
		t.Retries, t.Crashes = int(max(in.int(), 0)), int(max(in.int(), 0)) // others may have written any number
		t.Error = past.Text(in.string())
		return t
	default:
		as[[]any](what, &d.err, "a started task")
		return Attempt{}
	}
}

// isLarge reports whether a payload is left out, since it has more than 1 MiB.
func isLarge(v any) bool {
	_, large := v.(int64)
	return large
}

// A Round is what a worker sends in one write: a Finish, a Start, or both.
type Round struct {
	Finish *Finish
	Start  *Start
}

func (r *Round) Calls(s *Shared) (calls []redisconn.Call) {
	if r.Finish != nil {
		calls = append(calls, r.Finish.Call(s))
	}
	if r.Start != nil {
		calls = append(calls, r.Start.Call(s))
	}
	return calls
}

// A Result is what came of a round.
type Result struct {
	Settled []Settled // what happened to each end of the Finish, in their order after Calls
	Dropped int       // how many failed tasks were dropped, since more than MaxFailed had failed
	Answer  *Answer   // to the Start

	FinishErr, StartErr error // why there's no result of either
}

// Read reads the replies to a round. An error matches ErrUnknown if Redis may have carried out the call.
func (r *Round) Read(of keys.Queue, replies []redisconn.Reply) (res Result) {
	if r.Finish != nil {
		res.Settled, res.Dropped, res.FinishErr = r.Finish.Read(replies[0])
		res.FinishErr = unread(replies[0], res.FinishErr)
	}
	if r.Start != nil {
		last := replies[len(replies)-1]
		res.Answer, res.StartErr = r.Start.Read(of, last)
		res.StartErr = unread(last, res.StartErr)
	}
	return res
}

// unread returns the error of a call. If there is a reply, but it can't be read, it matches ErrUnknown.
func unread(reply redisconn.Reply, err error) error {
	if reply.Err == nil && err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// WorkerOf returns the worker in the id of an attempt; "" if it isn't one.
func WorkerOf(attempt string) string { return idOf(attempt).worker }

// RoundOf returns the round that started an attempt; 0 if it isn't the id of one.
func RoundOf(attempt string) int64 { return idOf(attempt).round }

// StartedAt returns when an attempt was asked for, by its worker's clock.
func StartedAt(attempt string) time.Time { return Moment(idOf(attempt).ms) }

// CompareStarts orders attempts by when they were asked for. Those that a worker asked for in the same millisecond are
// in the order of its rounds, and within a round in the order in which they started.
func CompareStarts(a, b string) int {
	x, y := idOf(a), idOf(b)
	return cmp.Or(cmp.Compare(x.ms, y.ms), cmp.Compare(x.worker, y.worker), cmp.Compare(x.round, y.round),
		cmp.Compare(x.n, y.n), cmp.Compare(a, b))
}

// An attemptID is what the id of an attempt says; zero if it isn't one.
type attemptID struct {
	worker       string
	round, ms, n int64
}

func idOf(attempt string) attemptID {
	parts := strings.Split(attempt, ".")
	if len(parts) < 4 {
		return attemptID{}
	}
	last := len(parts) - 3
	worker, numbers := strings.Join(parts[:last], "."), parts[last:]
	return attemptID{worker, numberIn(numbers[0]), max(numberIn(numbers[1]), 0), numberIn(strings.TrimSuffix(numbers[2], "n"))}
}
