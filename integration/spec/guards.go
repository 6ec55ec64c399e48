package spec

// A Guard is one check or rule of the protocol that can be taken away, to see that it is
// needed. Lines of Lua are marked with its name: --! guard step-members.
type Guard string

// Without takes one guard away, or with "" none.
func (s *Store) Without(g Guard) { s.without = g }

// has reports whether a guard is there.
func (s *Store) has(g Guard) bool { return s.without != g }

// A Removal is what is found without a guard. The search of integration/search goes through
// all states of the scope until it finds something wrong.
type Removal struct {
	Guard Guard
	Where string // the script, or the file of the library
	What  string // the guard
	Scope string // of the search, in which it is found first
	Spare string // why nothing is found, if it is not
}

// The guards, by their names.
const (
	StepMembers      Guard = "step-members"
	Window           Guard = "window"
	OvertakenRenews  Guard = "overtaken-renews"
	OvertakenStarts  Guard = "overtaken-starts"
	OvertakenTells   Guard = "overtaken-tells"
	RepeatStarts     Guard = "repeat-starts"
	EndsHeld         Guard = "ends-held"
	EndsToken        Guard = "ends-token"
	StopsNewestFirst Guard = "stops-newest-first"
	ReturnsFirst     Guard = "returns-first"
	Resumes          Guard = "resumes"
	NewestFirst      Guard = "newest-first"
	FenceFirst       Guard = "fence-first"
	FenceForgets     Guard = "fence-forgets"
	HeardOf          Guard = "heard-of"
	BeatMembers      Guard = "beat-members"
	JoinMark         Guard = "join-mark"
	JoinFence        Guard = "join-fence"
	JoinCopies       Guard = "join-copies"
	LeaveFences      Guard = "leave-fences"
	SpentIDs         Guard = "spent-ids"
	LeaveNumber      Guard = "leave-number"
	NumbersRise      Guard = "numbers-rise"
	NewID            Guard = "new-id"
	LogOnReturn      Guard = "log-on-return"
	LogOnRetry       Guard = "log-on-retry"
	CancelSpares     Guard = "cancel-spares"
	BeginsHolding    Guard = "begins-holding"
	EndsHolding      Guard = "ends-holding"
	ReturnHolds      Guard = "return-holds"
	ReturnEnds       Guard = "return-ends"
	SaidTold         Guard = "said-told"
	SaidHolder       Guard = "said-holder"
	NamedFirst       Guard = "named-first"
	AllNamed         Guard = "all-named"
	EndsStopping     Guard = "ends-stopping"
	KeyStops         Guard = "key-stops"
	TrimSaid         Guard = "trim-said"
	TrimStopped      Guard = "trim-stopped"
	OverSaid         Guard = "over-said"
	OverStopped      Guard = "over-stopped"
	FirstLogs        Guard = "first-logs"
	PagesLog         Guard = "pages-log"
	LastLogs         Guard = "last-logs"
	LateUntil        Guard = "late-until"
	BackCounted      Guard = "back-counted"
	Blocks           Guard = "blocks"
	BlockedReleased  Guard = "blocked-released"
	Duplicate        Guard = "duplicate"
	LockTaken        Guard = "lock-taken"
	LockFollows      Guard = "lock-follows"
	LockEnds         Guard = "lock-ends"
	CancelUnlocks    Guard = "cancel-unlocks"
	GapLeft          Guard = "gap-left"
	GapFilled        Guard = "gap-filled"
	GapPushed        Guard = "gap-pushed"
	Graced           Guard = "graced"
	JudgeSteady      Guard = "judge-steady"
	GapEndsSteady    Guard = "gap-ends-steady"
	LapseEndsSteady  Guard = "lapse-ends-steady"
	JudgeUntil       Guard = "judge-until"
	LapsedJudges     Guard = "lapsed-judges"
)

// Removals has a row for each guard.
var Removals = []Removal{
	{StepMembers, "step.lua", "only a member may act", "back under a new id", ""},
	{Window, "step.lua", "a round before the last four is refused", "two rounds of a dead worker",
		"What was overtaken starts nothing, however old it is, and ends only what it names. The refusal says that to the worker."},
	{OvertakenRenews, "step.lua", "an overtaken round leaves the number as it is", "two rounds under way", ""},
	{OvertakenStarts, "step.lua", "an overtaken round starts nothing", "two rounds under way", ""},
	{OvertakenTells, "step.lua", "an overtaken round tells of no cancels", "canceled between two rounds", ""},
	{RepeatStarts, "step.lua", "a repeated round tells what it has started, and starts nothing", "back under a new id", ""},
	{EndsHeld, "step.lua", "what is not in the working set does not end", "two rounds under way", ""},
	{EndsToken, "step.lua", "an end names the token of the start", "two rounds of a dead worker",
		"An id is started once, so that no end can meet another start of it. It counts where Redis has lost writes, and ids are started again."},
	{StopsNewestFirst, "compose.go", "what goes back goes newest first", "workers die", ""},
	{ReturnsFirst, "step.lua", "a return under way goes first", "workers die", ""},
	{Resumes, "lib_return.lua", "whoever looks goes on with a return", "canceled, and its worker dies", ""},
	{NewestFirst, "lib_return.lua", "tasks go back newest first", "workers die", ""},
	{FenceFirst, "lib_return.lua", "a worker is fenced before its tasks go back", "workers die", ""},
	{FenceForgets, "lib_return.lua", "a fenced worker has no number any more", "leaving and coming again", ""},
	{HeardOf, "lib_return.lua", "a suspect that was heard of is none", "lapsed and suspected",
		"Whoever is heard of takes the mark off itself, with the beat, the round or the join. It counts where a beat could not, as it changes nothing else."},
	{BeatMembers, "beat.lua", "only a member may beat", "lapsed and suspected", ""},
	{JoinMark, "join.lua", "nobody joins while its tasks are returned", "joining again",
		"Whoever is fenced raises the fence, so all joins from before come too late; and who is to join again leaves first, until nothing is left. It counts for a client that does not."},
	{JoinFence, "join.lua", "a join from before a worker went is refused", "joining again", ""},
	{JoinCopies, "join.lua", "a copy of a join changes nothing", "joining again", ""},
	{LeaveFences, "leave.lua", "a leave of who is no member ends its join", "joining again", ""},
	{SpentIDs, "leave.lua", "who may have been failed does not join again", "joining again", ""},
	{LeaveNumber, "leave.lua", "a leave names the last round", "leaving and coming again", ""},
	{NumbersRise, "workerreg.go", "numbers rise when a worker joins again", "leaving and coming again", ""},
	{NewID, "failover.go", "who was failed comes back under a new id", "back under a new id", ""},
	{LogOnReturn, "lib_settle.lua", "what goes back is looked up in the cancel log", "canceled while it runs", ""},
	{LogOnRetry, "lib_settle.lua", "what is tried again is looked up in the cancel log", "canceled, and tried again", ""},
	{CancelSpares, "lib_settle.lua", "a cancel covers what has a lower token", "canceled while it runs", ""},
	{BeginsHolding, "step.lua", "who begins to hold something is a holder", "canceled while it runs", ""},
	{EndsHolding, "step.lua", "who holds nothing any more is no holder", "canceled while it runs", ""},
	{ReturnHolds, "lib_return.lua", "who is being returned is a holder until then", "canceled while it runs", ""},
	{ReturnEnds, "lib_return.lua", "who has been returned is no holder", "canceled, and its worker dies", ""},
	{SaidTold, "step.lua", "a worker has said nothing of cancels that it was not told of", "canceled while it runs", ""},
	{SaidHolder, "step.lua", "who holds nothing has nothing to say of cancels", "canceled between two rounds",
		"The same round takes out of the holders whoever holds nothing when it ends."},
	{NamedFirst, "cancel.go", "a worker names what runs before it has said all", "canceled while it runs", ""},
	{AllNamed, "cancel.go", "a worker has not said all while there is more to name", "canceled while it runs", ""},
	{EndsStopping, "lib_settle.lua", "what has ended is not said to run", "canceled while it runs", ""},
	{KeyStops, "cancel_key.lua", "what runs under a key is said to run", "a key canceled", ""},
	{TrimSaid, "lib_settle.lua", "a cancel is on record until all have said what it covers", "canceled while it runs", ""},
	{TrimStopped, "lib_settle.lua", "a cancel is on record while something runs that it covers", "canceled while it runs", ""},
	{OverSaid, "cancel.go", "a cancel is not over until all have said what it covers", "canceled while it runs", ""},
	{OverStopped, "cancel.go", "a cancel is not over while something runs that it covers", "canceled while it runs", ""},
	{FirstLogs, "cancel.lua", "the first page puts the cancel on record", "canceled in pages", ""},
	{PagesLog, "cancel.lua", "each further page does, too", "canceled in three pages", ""},
	{LastLogs, "cancel.lua", "the last page does, too", "canceled in pages", ""},
	{LateUntil, "cancel.lua", "the last entry is looked up when the list is done", "canceled in pages, and tried again", ""},
	{BackCounted, "cancel.lua", "a page takes what may have come back, too", "canceled in pages", ""},
	{Blocks, "put.lua", "what is put under a key that runs is blocked", "a key put again", ""},
	{BlockedReleased, "lib_entry.lua", "the end of a run releases what it blocked", "a key put again", ""},
	{Duplicate, "enqueue_unique.lua", "a lock that holds refuses", "a locked task of a dead worker", ""},
	{LockTaken, "lib_settle.lua", "a lock goes with its task into a process", "a locked task of a dead worker", ""},
	{LockFollows, "lib_settle.lua", "a lock goes with its task to the front", "a locked task of a dead worker", ""},
	{LockEnds, "lib_settle.lua", "a lock ends with its process", "a locked task of a dead worker", ""},
	{CancelUnlocks, "cancel.lua", "a cancel takes the lock, too", "a locked task canceled", ""},
	{GapLeft, "cancel.lua", "what was in front of a lock leaves a gap", "gaps before a locked task", ""},
	{GapFilled, "lib_settle.lua", "what goes back to the front fills the gap there", "gaps behind a locked task", ""},
	{GapPushed, "enqueue_unique.lua", "positions are counted with the gaps", "gaps before a locked task",
		"The gaps go with the last lock, and here is only one, so who takes it finds none. It counts beside other locks."},
	{Graced, "lib_return.lua", "a suspect has a grace", "Redis stalls", ""},
	{JudgeSteady, "workerreg.go", "who has not beaten for a lease does not judge", "Redis stalls, and its clock jumps", ""},
	{GapEndsSteady, "workerreg.go", "a gap between beats ends the right to judge", "Redis stalls, and its clock jumps", ""},
	{LapseEndsSteady, "workerreg.go", "a lapse ends the right to judge", "Redis stalls, and its clock jumps", ""},
	{JudgeUntil, "beat.lua", "the right to judge ends at a time", "Redis stalls, and its clock jumps", ""},
	{LapsedJudges, "beat.lua", "who has lapsed does not judge with that beat", "Redis stalls, and its clock jumps", ""},
}
