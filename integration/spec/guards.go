package spec

// A Guard is a check or rule of the protocol that can be removed to see that it's needed.
type Guard string

// Without removes one guard, or none if g is "".
func (s *Store) Without(g Guard) { s.without = g }

func (s *Store) has(g Guard) bool { return s.without != g }

// A Removal is the effect of removing a guard. The search of integration/search visits all states of the scope
// until it finds a violation.
type Removal struct {
	Guard Guard
	Where string // the script, or the file of the library
	What  string // the rule
	Scope string // the first scope of the search that finds a violation
	Spare string // why no violation is found, if there is none
}

// Removals has a row for each guard.
var Removals []Removal

// The guards.
var (
	StepMembers = guard("step-members", "step.lua", "only a member may act", "back under a new id", "")
	Window      = guard("window", "step.lua", "a round before the last four is refused", "four rounds in flight",
		"An overtaken round starts nothing, however old it is, and ends only what it names. The refusal only informs the worker.")
	OvertakenRenews = guard("overtaken-renews", "step.lua", "an overtaken round leaves the number as it is", "four rounds in flight", "")
	OvertakenStarts = guard("overtaken-starts", "step.lua", "an overtaken round starts nothing", "four rounds in flight", "")
	OvertakenTells  = guard("overtaken-tells", "step.lua", "an overtaken round returns no cancels", "canceled between two rounds", "")
	RepeatStarts    = guard("repeat-starts", "step.lua", "a repeated round returns what it has started, and starts nothing", "back under a new id", "")
	EndsHeld        = guard("ends-held", "step.lua", "only a process in the working set can end", "four rounds in flight", "")
	EndsToken       = guard("ends-token", "step.lua", "an end names the token of the start", "four rounds of a dead worker",
		"An id is started only once, so no end can refer to another start of it. The check matters if Redis has lost writes, and ids are started again.")
	StopsNewestFirst = guard("stops-newest-first", "compose.go", "a round returns tasks newest first", "workers die", "")
	ReturnsFirst     = guard("returns-first", "step.lua", "a return in progress goes first", "workers die", "")
	Resumes          = guard("resumes", "lib_return.lua", "whoever looks for dead workers continues a return", "canceled, and its worker dies", "")
	NewestFirst      = guard("newest-first", "lib_return.lua", "tasks go back newest first", "workers die", "")
	FenceFirst       = guard("fence-first", "lib_return.lua", "a worker is fenced before its tasks go back", "workers die", "")
	FenceForgets     = guard("fence-forgets", "lib_return.lua", "a fenced worker loses its round number", "leaving and joining again", "")
	HeardOf          = guard("heard-of", "lib_return.lua", "a worker that has renewed its lease isn't a suspect anymore", "lapsed and suspected",
		"A worker that beats, sends a round or joins removes the mark itself. The check matters if a beat can't do that, since it changes nothing else.")
	BeatMembers = guard("beat-members", "beat.lua", "only a member may beat", "lapsed and suspected", "")
	JoinMark    = guard("join-mark", "join.lua", "a worker can't join while its tasks are being returned", "a late join and a late round",
		"Fencing a worker raises the fence, so all earlier joins come too late; and a worker that joins again first leaves until all its tasks have been returned. The check matters for a client that doesn't.")
	JoinFence     = guard("join-fence", "join.lua", "a join sent before a worker was removed is refused", "a late join and a late round", "")
	JoinCopies    = guard("join-copies", "join.lua", "a copy of a join changes nothing", "a late join and a late round", "")
	LeaveFences   = guard("leave-fences", "leave.lua", "a leave by a worker that isn't a member cancels its join", "a late join and a late round", "")
	SpentIDs      = guard("spent-ids", "leave.lua", "a worker that may have been evicted does not join again", "a late join and a late round", "")
	LeaveNumber   = guard("leave-number", "leave.lua", "a leave names the last round", "leaving and joining again", "")
	NumbersRise   = guard("numbers-rise", "join.go", "numbers rise when a worker joins again", "leaving and joining again", "")
	NewID         = guard("new-id", "evict.go", "an evicted worker comes back under a new id", "back under a new id", "")
	LogOnReturn   = guard("log-on-return", "lib_settle.lua", "a returned task is looked up in the cancel log", "canceled while it runs", "")
	LogOnRetry    = guard("log-on-retry", "lib_settle.lua", "a retried task is looked up in the cancel log", "canceled, and retried", "")
	CancelSpares  = guard("cancel-spares", "lib_settle.lua", "a cancel covers only processes with a lower token", "canceled while it runs", "")
	BeginsHolding = guard("begins-holding", "step.lua", "a worker that starts to hold something becomes a holder", "canceled while it runs", "")
	EndsHolding   = guard("ends-holding", "step.lua", "a worker that holds nothing anymore stops being a holder", "canceled while it runs", "")
	ReturnHolds   = guard("return-holds", "lib_return.lua", "a worker stays a holder while its tasks are being returned", "canceled while it runs", "")
	ReturnEnds    = guard("return-ends", "lib_return.lua", "a worker whose tasks were returned stops being a holder", "canceled, and its worker dies", "")
	SaidTold      = guard("said-told", "step.lua", "a worker acknowledges only cancels that it has received", "canceled while it runs", "")
	SaidHolder    = guard("said-holder", "step.lua", "a worker that holds nothing acknowledges no cancels", "canceled between two rounds",
		"The same round removes the worker from the holders if it holds nothing at the end.")
	NamedFirst      = guard("named-first", "cancels.go", "a worker names what still runs before it acknowledges a cancel", "canceled while it runs", "")
	AllNamed        = guard("all-named", "cancels.go", "a worker doesn't acknowledge a cancel while there is more to name", "canceled while it runs", "")
	EndsStopping    = guard("ends-stopping", "lib_settle.lua", "an ended process is no longer listed as running", "canceled while it runs", "")
	KeyStops        = guard("key-stops", "cancel_key.lua", "what runs under a canceled key is listed as running", "a key canceled", "")
	TrimSaid        = guard("trim-said", "lib_settle.lua", "a cancel stays in the log until all holders have acknowledged it", "canceled while it runs", "")
	TrimStopped     = guard("trim-stopped", "lib_settle.lua", "a cancel stays in the log while something that it covers runs", "canceled while it runs", "")
	OverSaid        = guard("over-said", "store/await.go", "a cancel has not ended until all holders have acknowledged it", "canceled while it runs", "")
	OverStopped     = guard("over-stopped", "store/await.go", "a cancel has not ended while something that it covers runs", "canceled while it runs", "")
	FirstLogs       = guard("first-logs", "cancel.lua", "the first page adds the cancel to the log", "canceled in pages", "")
	PagesLog        = guard("pages-log", "cancel.lua", "each further page adds it, too", "canceled in three pages", "")
	LastLogs        = guard("last-logs", "cancel.lua", "the last page adds it, too", "canceled in pages", "")
	LateUntil       = guard("late-until", "cancel.lua", "the last entry is looked up when the list is done", "canceled in pages, and retried", "")
	BackCounted     = guard("back-counted", "cancel.lua", "a page also removes copies that may have come back", "canceled in pages", "")
	Blocks          = guard("blocks", "put.lua", "a put under a key that runs is blocked", "a key put again", "")
	BlockedReleased = guard("blocked-released", "lib_entry.lua", "the end of a run releases what it blocked", "a key put again", "")
	Duplicate       = guard("duplicate", "put.lua", "a unique task is refused while an equal one waits or runs", "a unique task of a dead worker", "")
	Graced          = guard("graced", "lib_return.lua", "a suspect has a grace period", "Redis stalls", "")
	JudgeSteady     = guard("judge-steady", "witness.go", "a peer evicts only after a full lease of successful beats", "Redis stalls, and its clock jumps", "")
	GapEndsSteady   = guard("gap-ends-steady", "witness.go", "a gap between beats ends the right to evict", "Redis stalls, and its clock jumps", "")
	LapseEndsSteady = guard("lapse-ends-steady", "witness.go", "an expired lease ends the right to evict", "Redis stalls, and its clock jumps", "")
	JudgeUntil      = guard("judge-until", "beat.lua", "the right to evict expires", "Redis stalls, and its clock jumps", "")
	LapsedJudges    = guard("lapsed-judges", "beat.lua", "a peer whose lease has expired evicts no worker with that beat", "Redis stalls, and its clock jumps", "")
)

// guard adds a row to the table.
func guard(name Guard, where, what, scope, spare string) Guard {
	Removals = append(Removals, Removal{name, where, what, scope, spare})
	return name
}
