package spec

// A Guard is a check or rule of the protocol that can be removed to see that it's needed. The lines of Lua that
// implement it have a comment with its name: --! guard step-members.
type Guard string

// Without removes one guard, or none if g is "".
func (s *Store) Without(g Guard) { s.without = g }

// has reports whether a guard is in place.
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
	Window      = guard("window", "step.lua", "a round before the last four is refused", "four rounds under way",
		"What was overtaken starts nothing, however old it is, and ends only what it names. The refusal says that to the worker.")
	OvertakenRenews = guard("overtaken-renews", "step.lua", "an overtaken round leaves the number as it is", "four rounds under way", "")
	OvertakenStarts = guard("overtaken-starts", "step.lua", "an overtaken round starts nothing", "four rounds under way", "")
	OvertakenTells  = guard("overtaken-tells", "step.lua", "an overtaken round tells of no cancels", "canceled between two rounds", "")
	RepeatStarts    = guard("repeat-starts", "step.lua", "a repeated round tells what it has started, and starts nothing", "back under a new id", "")
	EndsHeld        = guard("ends-held", "step.lua", "what is not in the working set does not end", "four rounds under way", "")
	EndsToken       = guard("ends-token", "step.lua", "an end names the token of the start", "four rounds of a dead worker",
		"An id is started once, so that no end can meet another start of it. It counts where Redis has lost writes, and ids are started again.")
	StopsNewestFirst = guard("stops-newest-first", "compose.go", "what goes back goes newest first", "workers die", "")
	ReturnsFirst     = guard("returns-first", "step.lua", "a return under way goes first", "workers die", "")
	Resumes          = guard("resumes", "lib_return.lua", "whoever looks goes on with a return", "canceled, and its worker dies", "")
	NewestFirst      = guard("newest-first", "lib_return.lua", "tasks go back newest first", "workers die", "")
	FenceFirst       = guard("fence-first", "lib_return.lua", "a worker is fenced before its tasks go back", "workers die", "")
	FenceForgets     = guard("fence-forgets", "lib_return.lua", "a fenced worker has no number any more", "leaving and coming again", "")
	HeardOf          = guard("heard-of", "lib_return.lua", "a suspect that was heard of is none", "lapsed and suspected",
		"Whoever is heard of takes the mark off itself, with the beat, the round or the join. It counts where a beat could not, as it changes nothing else.")
	BeatMembers = guard("beat-members", "beat.lua", "only a member may beat", "lapsed and suspected", "")
	JoinMark    = guard("join-mark", "join.lua", "nobody joins while its tasks are returned", "a join and a round that are late",
		"Whoever is fenced raises the fence, so all joins from before come too late; and who is to join again leaves first, until nothing is left. It counts for a client that does not.")
	JoinFence     = guard("join-fence", "join.lua", "a join from before a worker went is refused", "a join and a round that are late", "")
	JoinCopies    = guard("join-copies", "join.lua", "a copy of a join changes nothing", "a join and a round that are late", "")
	LeaveFences   = guard("leave-fences", "leave.lua", "a leave of who is no member ends its join", "a join and a round that are late", "")
	SpentIDs      = guard("spent-ids", "leave.lua", "who may have been failed does not join again", "a join and a round that are late", "")
	LeaveNumber   = guard("leave-number", "leave.lua", "a leave names the last round", "leaving and coming again", "")
	NumbersRise   = guard("numbers-rise", "join.go", "numbers rise when a worker joins again", "leaving and coming again", "")
	NewID         = guard("new-id", "evict.go", "who was failed comes back under a new id", "back under a new id", "")
	LogOnReturn   = guard("log-on-return", "lib_settle.lua", "what goes back is looked up in the cancel log", "canceled while it runs", "")
	LogOnRetry    = guard("log-on-retry", "lib_settle.lua", "what is tried again is looked up in the cancel log", "canceled, and tried again", "")
	CancelSpares  = guard("cancel-spares", "lib_settle.lua", "a cancel covers what has a lower token", "canceled while it runs", "")
	BeginsHolding = guard("begins-holding", "step.lua", "who begins to hold something is a holder", "canceled while it runs", "")
	EndsHolding   = guard("ends-holding", "step.lua", "who holds nothing any more is no holder", "canceled while it runs", "")
	ReturnHolds   = guard("return-holds", "lib_return.lua", "who is being returned is a holder until then", "canceled while it runs", "")
	ReturnEnds    = guard("return-ends", "lib_return.lua", "who has been returned is no holder", "canceled, and its worker dies", "")
	SaidTold      = guard("said-told", "step.lua", "a worker has said nothing of cancels that it was not told of", "canceled while it runs", "")
	SaidHolder    = guard("said-holder", "step.lua", "who holds nothing has nothing to say of cancels", "canceled between two rounds",
		"The same round takes out of the holders whoever holds nothing when it ends.")
	NamedFirst      = guard("named-first", "cancels.go", "a worker names what runs before it has said all", "canceled while it runs", "")
	AllNamed        = guard("all-named", "cancels.go", "a worker has not said all while there is more to name", "canceled while it runs", "")
	EndsStopping    = guard("ends-stopping", "lib_settle.lua", "what has ended is not said to run", "canceled while it runs", "")
	KeyStops        = guard("key-stops", "cancel_key.lua", "what runs under a key is said to run", "a key canceled", "")
	TrimSaid        = guard("trim-said", "lib_settle.lua", "a cancel is on record until all have said what it covers", "canceled while it runs", "")
	TrimStopped     = guard("trim-stopped", "lib_settle.lua", "a cancel is on record while something runs that it covers", "canceled while it runs", "")
	OverSaid        = guard("over-said", "cancels.go", "a cancel is not over until all have said what it covers", "canceled while it runs", "")
	OverStopped     = guard("over-stopped", "cancels.go", "a cancel is not over while something runs that it covers", "canceled while it runs", "")
	FirstLogs       = guard("first-logs", "cancel.lua", "the first page puts the cancel on record", "canceled in pages", "")
	PagesLog        = guard("pages-log", "cancel.lua", "each further page does, too", "canceled in three pages", "")
	LastLogs        = guard("last-logs", "cancel.lua", "the last page does, too", "canceled in pages", "")
	LateUntil       = guard("late-until", "cancel.lua", "the last entry is looked up when the list is done", "canceled in pages, and tried again", "")
	BackCounted     = guard("back-counted", "cancel.lua", "a page takes what may have come back, too", "canceled in pages", "")
	Blocks          = guard("blocks", "put.lua", "what is put under a key that runs is blocked", "a key put again", "")
	BlockedReleased = guard("blocked-released", "lib_entry.lua", "the end of a run releases what it blocked", "a key put again", "")
	OccursOnce      = guard("occurs-once", "step.lua", "an occurrence that has started isn't planned again", "a schedule", "")
	OccursNext      = guard("occurs-next", "step.lua", "the next occurrence is planned when one starts", "a schedule", "")
	Duplicate       = guard("duplicate", "enqueue_unique.lua", "a lock that holds refuses", "a locked task of a dead worker", "")
	LockTaken       = guard("lock-taken", "lib_settle.lua", "a lock goes with its task into a process", "a locked task of a dead worker", "")
	LockFollows     = guard("lock-follows", "lib_settle.lua", "a lock goes with its task to the front", "a locked task of a dead worker", "")
	LockEnds        = guard("lock-ends", "lib_settle.lua", "a lock ends with its process", "a locked task of a dead worker", "")
	CancelUnlocks   = guard("cancel-unlocks", "cancel.lua", "a cancel takes the lock, too", "a locked task canceled", "")
	GapLeft         = guard("gap-left", "cancel.lua", "what was in front of a lock leaves a gap", "gaps before a locked task", "")
	GapFilled       = guard("gap-filled", "lib_settle.lua", "what goes back to the front fills the gap there", "gaps behind a locked task", "")
	GapPushed       = guard("gap-pushed", "enqueue_unique.lua", "positions are counted with the gaps", "gaps before a locked task",
		"The gaps go with the last lock, and here is only one, so who takes it finds none. It counts beside other locks.")
	Graced          = guard("graced", "lib_return.lua", "a suspect has a grace", "Redis stalls", "")
	JudgeSteady     = guard("judge-steady", "witness.go", "who has not beaten for a lease does not judge", "Redis stalls, and its clock jumps", "")
	GapEndsSteady   = guard("gap-ends-steady", "witness.go", "a gap between beats ends the right to judge", "Redis stalls, and its clock jumps", "")
	LapseEndsSteady = guard("lapse-ends-steady", "witness.go", "a lapse ends the right to judge", "Redis stalls, and its clock jumps", "")
	JudgeUntil      = guard("judge-until", "beat.lua", "the right to judge ends at a time", "Redis stalls, and its clock jumps", "")
	LapsedJudges    = guard("lapsed-judges", "beat.lua", "who has lapsed does not judge with that beat", "Redis stalls, and its clock jumps", "")
)

// guard adds a row to the table.
func guard(name Guard, where, what, scope, spare string) Guard {
	Removals = append(Removals, Removal{name, where, what, scope, spare})
	return name
}
