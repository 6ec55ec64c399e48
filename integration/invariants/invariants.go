// Package invariants says what must hold for a queue between any two requests, and checks what its keys show. The suites
// that use it judge the rest: they know who has sent what, and so what a request may change.
package invariants

// An Invariant must hold at any moment. docs/protocol.md says what keeps it.
type Invariant struct{ Name, Means string }

// The invariants, in the order of docs/protocol.md.
var (
	Conservation = Invariant{"conservation", "an accepted task is in exactly one place, or has ended"}
	OneOwner     = Invariant{"one owner", "a processing list exists if and only if its id is in exactly one working set"}
	Members      = Invariant{"owners are members", "who holds something is a member, or its tasks are being returned"}
	Fenced       = Invariant{"fenced", "an evicted worker, or an outcome with an old token, changes nothing"}
	Order        = Invariant{"order", "tasks of a kind start in order, and returned ones first, in the order of their starts"}
	Progress     = Invariant{"progress", "no task waits longer than a heartbeat while a free worker serves the queue"}
	Unique       = Invariant{"unique", "a unique task is refused exactly as long as an equal one waits or runs"}
	OneRun       = Invariant{"one run", "at most one attempt runs a key, and what waits behind it isn't planned"}
	NothingLeft  = Invariant{"nothing left", "an idle, empty, unserved queue has no keys but what is kept on purpose"}
	Bounded      = Invariant{"bounded", "no call does unbounded work, in elements or in bytes"}
	Cancels      = Invariant{"cancels", "a cancel has ended only when nothing that it covers runs"}
)

// All are the invariants.
var All = []Invariant{Conservation, OneOwner, Members, Fenced, Order, Progress, Unique, OneRun, NothingLeft, Bounded, Cancels}
