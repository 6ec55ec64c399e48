package script

import (
	"context"

	"github.com/worqr/worqr/internal/keys"
)

var check = load("check")

// What a check looks at: what the names are.
type What string

// Where the names are: processes with a list; those that a worker holds, and
// those that another one holds, too; workers that hold something, members,
// suspects, idle workers, workers with rounds; fields of entries; entries with a
// hash, in schedule, in contents; digests with a lock; names in the cancel log
// and those with a record; the queue, by any name.
const (
	CheckProcesses What = "process"
	CheckHeld      What = "held"
	CheckTwice     What = "twice" // process:worker
	CheckHolders   What = "working"
	CheckMembers   What = "member" // deadline:worker; the deadline may be left out
	CheckSuspects  What = "suspect"
	CheckIdle      What = "idle"
	CheckRounds    What = "round"
	CheckRunning   What = "running"
	CheckEntries   What = "entry"
	CheckScheduled What = "scheduled"
	CheckContents  What = "content" // digest:entry
	CheckLocks     What = "lock"
	CheckCanceled  What = "canceled"
	CheckRecords   What = "record"
	CheckQueue     What = "queue"
)

// A Flaw is something that no invariant allows, or that holds up tasks.
type Flaw struct {
	Kind   string
	Name   string
	Mended bool
	Detail string // the deadline of a dead member; how many tasks wait; who lost a process that two held
}

// Check looks at things of a queue at one moment, and says what is wrong with
// them; with mend it is put right where no task can be lost by it. The worker is
// the one who holds the processes, for CheckHeld and CheckTwice. The work grows with the
// names; for a process that nobody holds, also with the workers.
func Check(ctx context.Context, r Runner, q keys.Queue, what What, worker string, mend bool, names []string) ([]Flaw, error) {
	args := prefixes(q, flag(mend), string(what), worker)
	for _, name := range names {
		args = append(args, name)
	}
	var flaws []Flaw
	d := decode(do(ctx, r, check.Call(shared(q), args...)))
	d.each(func() {
		one := d.list()
		flaws = append(flaws, Flaw{one.string(), one.string(), one.int() == 1, one.string()})
		d.join(one)
	})
	return flaws, d.err
}
