package store

import (
	"context"

	"github.com/worqr/worqr/internal/keys"
)

// A Place says where the waiting and failed copies of a task are, and what state the queue is in.
type Place struct {
	Now     int64 // ms of Redis time
	Paused  bool
	Workers int // that serve the queue, with an unexpired lease
	Idle    int
	Ready   int // entries that are due
	Length  int // of the list, and of the batches behind it
	Added   int // tasks that wait in the stream
	Before  []int
	Line    *Line // of the added task with the entry; nil if none waits
	Entries []Entry
	Failed  []FailedTask
}

// A Line is the place of a waiting added task.
type Line struct {
	Before  int   // added tasks before it; negative: more than were counted
	Since   int64 // ms
	Card    string
	Payload []byte
}

// An Entry is one entry of the schedule, or an added task that runs.
type Entry struct {
	Name    string
	Due     int64 // of the waiting task; negative if none waits
	Planned int64 // ms; negative while it is blocked
	Retries int
	Crashes int
	Before  int    // entries planned before it; negative while it is blocked
	Process string // "" when nothing runs
	Worker  string // that holds the process
	Token   int64
	Turn    int64 // the time of the occurrence that waits; 0 if it's none
	Held    bool  // no peer asserts its schedule, so it doesn't start
}

// Explain looks for the copies of a payload, or for an entry if one is given. The parameters limit
// it: most, the copies of each kind; depth, how far it looks into the list and the batches behind it.
func Explain(ctx context.Context, r Runner, q keys.Queue, entry string, payload []byte, most, depth int) (*Place, error) {
	head, tail := q.Failed().Around()
	a := explain.ask(ctx, r, q, "entry", entry, "payload", payload, "most", most, "depth", depth, "head", head, "tail", tail)
	p := &Place{
		Now: a.int("now"), Paused: a.int("paused") == 1, Workers: int(a.int("workers")), Idle: int(a.int("idle")),
		Ready: int(a.int("ready")), Length: int(a.int("length")),
	}
	p.Added = int(a.int("added"))
	a.each("places", func(d *decoder) { p.Before = append(p.Before, int(d.int())) })
	if line := a.list("line"); len(line.rest) > 0 {
		p.Line = &Line{int(line.int()), line.int(), line.string(), line.bytes()}
		a.join(line)
	}
	a.each("entries", func(d *decoder) {
		e := d.list()
		p.Entries = append(p.Entries, Entry{e.string(), e.int(), e.int(), int(e.int()), int(e.int()), int(e.int()), e.string(), e.string(), e.int(), e.int(), e.int() == 1})
		d.join(e)
	})
	a.each("failures", func(d *decoder) {
		g := d.list()
		p.Failed = append(p.Failed, FailedTask{g.string(), payload, Kind(wordIn(g.string())), g.string(), int(g.number()), int(g.number()), g.string(), g.number(), g.string(), 0, g.string()})
		d.join(g)
	})
	return p, a.err
}
