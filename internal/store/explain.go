package store

import (
	"context"

	"github.com/worqr/worqr/internal/keys"
)

// A Place is where the copies of a task are that wait or have failed, and how the
// queue stands.
type Place struct {
	Now     int64 // ms of Redis time
	Paused  bool
	Workers int // that serve the queue, with an unexpired lease
	Idle    int
	Ready   int // entries that are due
	Length  int // of the list, and of the batches behind it
	Before  []int
	Entries []Entry
	Graves  []Grave
}

// An Entry is one entry of the schedule.
type Entry struct {
	Name    string
	Due     int64 // of what waits; negative when nothing does
	Planned int64 // likewise; negative while it is blocked
	Retries int
	Crashes int
	Before  int    // entries planned before it; negative while it is blocked
	Process string // "" when nothing runs
	Worker  string // that holds the process
	Token   int64
}

// Explain looks for the copies of a payload, or for an entry if one is given: for
// most of each kind, and so deep into the list and the batches behind it.
func Explain(ctx context.Context, r Runner, q keys.Queue, entry string, payload []byte, most, depth int) (*Place, error) {
	head, tail := q.Failed().Around()
	a := explain.ask(ctx, r, q, "entry", entry, "payload", payload, "most", most, "depth", depth, "head", head, "tail", tail, "digest", named(payload))
	p := &Place{
		Now: a.int("now"), Paused: a.int("paused") == 1, Workers: int(a.int("workers")), Idle: int(a.int("idle")),
		Ready: int(a.int("ready")), Length: int(a.int("length")),
	}
	a.each("places", func(d *decoder) { p.Before = append(p.Before, int(d.int())) })
	a.each("entries", func(d *decoder) {
		e := d.list()
		p.Entries = append(p.Entries, Entry{e.string(), e.int(), e.int(), int(e.int()), int(e.int()), int(e.int()), e.string(), e.string(), e.int()})
		d.join(e)
	})
	a.each("graves", func(d *decoder) {
		g := d.list()
		p.Graves = append(p.Graves, Grave{g.string(), payload, Kind(g.string()), g.string(), int(g.number()), int(g.number()), g.string(), g.number(), g.string()})
		d.join(g)
	})
	return p, a.err
}
