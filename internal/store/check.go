package store

import (
	"context"
	"errors"

	"github.com/worqr/worqr/internal/keys"
)

// A What is the kind of names that a check examines.
type What string

// The kinds of names, in order: processes with a list; processes that a worker holds, and those
// that another one holds, too; workers that hold something, members, suspects, idle workers, members of
// holders; fields of entries; ids of the stream; entries with a hash, in schedule, in contents;
// names in the cancel log; entries with a schedule; the queue, by any name.
const (
	CheckProcesses What = "process"
	CheckHeld      What = "held"
	CheckTwice     What = "twice" // process:worker
	CheckHolders   What = "working"
	CheckMembers   What = "member" // deadline:worker; the deadline may be left out
	CheckSuspects  What = "suspect"
	CheckIdle      What = "idle"
	CheckHolding   What = "holder"
	CheckRunning   What = "running"
	CheckAdded     What = "added"
	CheckEntries   What = "entry"
	CheckScheduled What = "scheduled"
	CheckContents  What = "content" // digest:entry
	CheckCanceled  What = "canceled"
	CheckRecurring What = "recurring"
	CheckQueue     What = "queue"
)

// A Flaw is a broken invariant, or something that blocks tasks.
type Flaw struct {
	Kind   string
	Name   string
	Mended bool
	Detail string // the deadline of a dead member; how many tasks wait; what disagrees
}

// A Verdict is the result of a check.
type Verdict struct {
	Flaws   []Flaw
	Judged  int // how many of the names, from the first; check the others again
	Retries int // for CheckScheduled: how many of these entries wait for a retry
}

// Check examines names of a queue at one moment, and reports what is wrong with them; with mend it
// returns tasks, evicts workers, lifts the token and corrects times. worker holds the processes, for CheckHeld and
// CheckTwice. The work grows with the number of names and the bytes of the payloads returned; after too many
// bytes, a call ends early. For a process without a holder, it also grows with the number of workers.
func Check(ctx context.Context, r Runner, q keys.Queue, what What, worker string, mend bool, names []string) (Verdict, error) {
	var v Verdict
	a := check.ask(ctx, r, q, "mend", flag(mend), "what", string(what), "worker", worker, "name", names)
	a.each("flaws", func(d *decoder) {
		one := d.list()
		v.Flaws = append(v.Flaws, Flaw{one.string(), one.string(), one.int() == 1, one.string()})
		d.join(one)
	})
	v.Judged, v.Retries = int(a.int("judged")), int(a.int("retries"))
	if a.err == nil && (v.Judged < 1 || v.Judged > len(names)) && len(names) > 0 {
		a.err = errors.New("the reply covers more or fewer items than requested")
	}
	return v, a.err
}
