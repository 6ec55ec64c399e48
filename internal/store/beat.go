package store

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Dead is a worker that a sweep or a beat has evicted.
type Dead struct {
	Worker string
	Tasks  int // how many it held; they return to the queue
}

// A Look is the result of looking for workers whose lease has expired.
type Look struct {
	Failed   []Dead
	Returned int           // tasks returned to the front
	Again    bool          // there is more to do immediately
	Due      time.Duration // until the next suspect is due; negative if there is none
}

func (a *answer) look() (l Look) {
	a.each("failed", func(d *decoder) { l.Failed = append(l.Failed, Dead{d.string(), int(d.int())}) })
	l.Returned, l.Again = int(a.int("returned")), a.int("again") == 1
	l.Due = time.Duration(a.int("due")) * time.Millisecond
	return l
}

// A Pulse is the answer to a beat.
type Pulse struct {
	Lapsed   bool  // the lease had expired
	Waiting  int   // tasks
	Held     int   // processes of the worker
	Rank     int   // place among the idle workers; -1 when not among them
	Canceled int64 // token of the last cancel, if the worker hasn't reported which of its tasks it covers
	Look
	Now      int64 // ms of Redis time
	Deadline int64 // end of the lease before this beat, according to Redis
	Over     bool  // there are schedules that no peer asserts anymore
}

// BeatCall returns the call of one beat; several can be sent together. A beat marks workers whose
// lease has expired as suspects, and evicts them one grace period later. judge is the Redis time in
// ms until which it may evict, since a copy that arrives late doesn't know what has happened since;
// 0 means never.
func BeatCall(q keys.Queue, worker string, lease, grace time.Duration, judge int64) redisconn.Call {
	return beat.call(q, "worker", worker, "lease", lease.Milliseconds(), "grace", grace.Milliseconds(), "judge", judge)
}

// ReadBeat reads the reply of a BeatCall. It fails with ErrEvicted when the
// worker isn't a member of the queue.
func ReadBeat(r redisconn.Reply) (*Pulse, error) {
	a := beat.read(r.Value, r.Err)
	p := &Pulse{
		Lapsed: a.int("lapsed") == 1, Waiting: int(a.int("waiting")), Held: int(a.int("held")), Rank: int(a.int("rank")), Canceled: a.int("canceled"),
		Look: a.look(), Now: a.int("now"), Deadline: a.int("deadline"), Over: a.int("over") == 1,
	}
	return p, a.err
}

// Sweep looks once for workers whose lease has expired.
func Sweep(ctx context.Context, r Runner, q keys.Queue, grace time.Duration) (Look, error) {
	a := sweep.ask(ctx, r, q, "grace", grace.Milliseconds())
	return a.look(), a.err
}
