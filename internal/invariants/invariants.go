// Package invariants says what must hold for a queue at any moment, and judges what its keys say. The
// check of a fleet and the suites that look for faults share it.
//
// Some invariants can be seen in the keys of one moment: see Flaw. The suites that know who has sent
// what judge the others.
package invariants

import "github.com/worqr/worqr/inspect"

// An Invariant must hold at any moment. docs/protocol.md says what keeps it.
type Invariant struct{ ID, Means string }

// The invariants, in the order of docs/protocol.md.
var (
	Conservation = Invariant{"conservation", "an accepted task is in exactly one place, or it has ended"}
	OneOwner     = Invariant{"one owner", "an attempt has its list exactly if one worker holds it"}
	Members      = Invariant{"owners are members", "who holds tasks is a member, or its tasks are being returned"}
	Fenced       = Invariant{"fenced", "who is neither, or has another token, changes nothing"}
	Order        = Invariant{"order", "tasks of a kind start in order, and returned ones before others"}
	Progress     = Invariant{"progress", "nothing waits longer than a heartbeat while a member has a free slot"}
	Unique       = Invariant{"unique", "a unique task is refused exactly while an equal one waits or runs"}
	OneRun       = Invariant{"one run", "a name has at most one attempt, and a task waits behind it only while it has one"}
	NothingLeft  = Invariant{"nothing left", "an idle, empty, unserved queue has nothing but what was kept on purpose"}
	Bounded      = Invariant{"bounded", "no call does unbounded work, in elements or in bytes"}
	Cancels      = Invariant{"cancels", "once a cancel has returned, each attempt that it covers must stop, or has ended"}
)

// All are the invariants.
var All = []Invariant{Conservation, OneOwner, Members, Fenced, Order, Progress, Unique, OneRun, NothingLeft, Bounded, Cancels}

// A Flaw is one way in which the keys of a queue break an invariant.
type Flaw string

// The flaws. The first group can be mended; repair.lua has the same words, but Unreturned only takes evict.
const (
	Unowned    Flaw = "unowned"
	Stuck      Flaw = "stuck"
	Stray      Flaw = "stray"
	Token      Flaw = "token"
	Place      Flaw = "place"
	Dead       Flaw = "dead"
	Unreturned Flaw = "unreturned"
	Ahead      Flaw = "ahead"

	NoList     Flaw = "no-list"
	NoRecord   Flaw = "no-record"
	Nowhere    Flaw = "nowhere"
	Twice      Flaw = "twice"
	Damaged    Flaw = "damaged"
	Stranger   Flaw = "stranger"
	SecondRun  Flaw = "second-run"
	Behind     Flaw = "behind-nothing"
	NoCopy     Flaw = "no-copy"
	Leftover   Flaw = "leftover"
	Ghost      Flaw = "ghost"
	HalfMember Flaw = "half-member"
	HalfPlan   Flaw = "half-schedule"
)

// About says what a flaw means.
type About struct {
	Breaks Invariant
	Kind   inspect.FindingKind // what a check calls it; docs/findings.md says what to do
	Says   string              // in the keys
}

// Flaws says what each flaw means. Those that are inconsistent aren't repaired.
var Flaws = map[Flaw]About{
	Unowned:    {OneOwner, "orphan", "an attempt has its list, but no worker holds it: the task doesn't run and isn't returned"},
	Stuck:      {OneOwner, "orphan", "a name has an attempt with neither a list nor a worker: its task never starts"},
	Stray:      {Members, "orphan", "a worker that is no member holds tasks: nobody returns them"},
	NoList:     {OneOwner, "no-payload", "a worker holds an attempt without a list"},
	NoRecord:   {Conservation, "no-payload", "a task waits or runs, but its record is gone"},
	Token:      {Fenced, "token", "the token isn't a number, or lower than one in use: an evicted worker could end another one's attempt"},
	Place:      {Order, "token", "the counter of places is lower than one in use: tasks start out of order, or replace each other"},
	Dead:       {Progress, "expired-worker", "the lease of a member has expired, or lies too far ahead, and nobody evicts it"},
	Unreturned: {Progress, "expired-worker", "tasks are being returned, and nobody goes on"},
	Ahead:      {Progress, "recurring", "times of a schedule lie too far ahead: it doesn't run, or never ends"},

	Nowhere:    {Conservation, "inconsistent", "a task neither waits nor runs, so it never starts"},
	Twice:      {Conservation, "inconsistent", "a task is in two places, so it may start twice"},
	Damaged:    {Conservation, "inconsistent", "what is stored of a task can't be read"},
	Stranger:   {OneOwner, "inconsistent", "a worker holds the attempt of another one"},
	SecondRun:  {OneRun, "inconsistent", "a worker runs a name that another attempt has"},
	Behind:     {OneRun, "inconsistent", "a task waits behind one that doesn't run"},
	NoCopy:     {Cancels, "inconsistent", "a task without a key isn't in copies, so a cancel doesn't find it"},
	Leftover:   {NothingLeft, "inconsistent", "something is left of a task that is gone"},
	Ghost:      {Members, "inconsistent", "a worker that is gone is still listed"},
	HalfMember: {Members, "inconsistent", "a member has no rounds, or its tasks are being returned"},
	HalfPlan:   {Conservation, "inconsistent", "a part of a schedule is missing"},
}
