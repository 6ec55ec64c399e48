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
