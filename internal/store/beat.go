package store

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

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

func (a *answer) look() (l Look) {
	a.each("failed", func(d *decoder) { l.Failed = append(l.Failed, Dead{d.string(), int(d.int())}) })
	l.Returned, l.Again = int(a.int("returned")), a.int("again") == 1
	l.Due = time.Duration(a.int("due")) * time.Millisecond
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
	return beat.call(q, "worker", worker, "lease", lease.Milliseconds(), "grace", grace.Milliseconds(), "judge", judge)
}

// ReadBeat reads the reply of a BeatCall. It fails with ErrEvicted when the
// worker is no member of the queue.
func ReadBeat(r redisconn.Reply) (*Pulse, error) {
	a := beat.read(r.Value, r.Err)
	p := &Pulse{
		Lapsed: a.int("lapsed") == 1, Waiting: int(a.int("waiting")), Held: int(a.int("held")), Rank: int(a.int("rank")), Canceled: a.int("canceled"),
		Look: a.look(), Now: a.int("now"), Deadline: a.int("deadline"), Batch: a.string("batch"),
	}
	return p, a.err
}

// Sweep looks once for lapsed workers.
func Sweep(ctx context.Context, r Runner, q keys.Queue, grace time.Duration) (Look, error) {
	a := sweep.ask(ctx, r, q, "grace", grace.Milliseconds())
	return a.look(), a.err
}
