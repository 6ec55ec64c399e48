package search

// A guard is one check or rule of the protocol that can be taken away.
type guard uint8

const (
	noGuard guard = iota
	stepMembers
	window
	overtakenRenews
	overtakenStarts
	overtakenTells
	repeatStarts
	endsHeld
	endsToken
	stopsNewestFirst
	returnsFirst
	resumes
	newestFirst
	fenceFirst
	fenceForgets
	heardOf
	beatMembers
	joinMark
	joinFence
	joinCopies
	leaveFences
	spentIDs
	leaveNumber
	numbersRise
	newID
	logOnReturn
	logOnRetry
	cancelSpares
	beginsHolding
	endsHolding
	returnHolds
	returnEnds
	saidTold
	saidHolder
	namedFirst
	allNamed
	endsStopping
	keyStops
	trimSaid
	trimStopped
	overSaid
	overStopped
	firstLogs
	pagesLog
	lastLogs
	lateUntil
	backCounted
	blocks
	blockedReleased
	duplicate
	lockTaken
	lockFollows
	lockEnds
	cancelUnlocks
	gapLeft
	gapFilled
	gapPushed
	graced
	judgeSteady
	gapEndsSteady
	lapseEndsSteady
	judgeUntil
	lapsedJudges
	guards // how many
)

// A removal is what the search is to find without a guard.
type removal struct {
	guard guard
	where string // the script, or the file of the library
	what  string // the guard
	scope string // in which it is found first
	spare string // why nothing is found, if it is not
}

var removals = []removal{
	{stepMembers, "step.lua", "only a member may act", "back under a new id", ""},
	{window, "step.lua", "a round older than the last but one is refused", "two rounds of a dead worker",
		"What was overtaken starts nothing, however old it is, and ends only what it names. The refusal says that to the worker."},
	{overtakenRenews, "step.lua", "an overtaken round leaves the number as it is", "two rounds under way", ""},
	{overtakenStarts, "step.lua", "an overtaken round starts nothing", "two rounds under way", ""},
	{overtakenTells, "step.lua", "an overtaken round tells of no cancels", "canceled between two rounds", ""},
	{repeatStarts, "step.lua", "a repeated round tells what it has started, and starts nothing", "back under a new id", ""},
	{endsHeld, "step.lua", "what is not in the working set does not end", "two rounds under way", ""},
	{endsToken, "step.lua", "an end names the token of the start", "two rounds of a dead worker",
		"An id is started once, so that no end can meet another start of it. It counts where Redis has lost writes, and ids are started again."},
	{stopsNewestFirst, "compose.go", "what goes back goes newest first", "workers die", ""},
	{returnsFirst, "step.lua", "a return under way goes first", "workers die", ""},
	{resumes, "lib_return.lua", "whoever looks goes on with a return", "canceled, and its worker dies", ""},
	{newestFirst, "lib_return.lua", "tasks go back newest first", "workers die", ""},
	{fenceFirst, "lib_return.lua", "a worker is fenced before its tasks go back", "workers die", ""},
	{fenceForgets, "lib_return.lua", "a fenced worker has no number any more", "leaving and coming again", ""},
	{heardOf, "lib_return.lua", "a suspect that was heard of is none", "lapsed and suspected",
		"Whoever is heard of takes the mark off itself, with the beat, the round or the join. It counts where a beat could not, as it changes nothing else."},
	{beatMembers, "beat.lua", "only a member may beat", "lapsed and suspected", ""},
	{joinMark, "join.lua", "nobody joins while its tasks are returned", "joining again",
		"Whoever is fenced raises the fence, so all joins from before come too late; and who is to join again leaves first, until nothing is left. It counts for a client that does not."},
	{joinFence, "join.lua", "a join from before a worker went is refused", "joining again", ""},
	{joinCopies, "join.lua", "a copy of a join changes nothing", "joining again", ""},
	{leaveFences, "leave.lua", "a leave of who is no member ends its join", "joining again", ""},
	{spentIDs, "leave.lua", "who may have been failed does not join again", "joining again", ""},
	{leaveNumber, "leave.lua", "a leave names the last round", "leaving and coming again", ""},
	{numbersRise, "workerreg.go", "numbers rise when a worker joins again", "leaving and coming again", ""},
	{newID, "failover.go", "who was failed comes back under a new id", "back under a new id", ""},
	{logOnReturn, "lib_settle.lua", "what goes back is looked up in the cancel log", "canceled while it runs", ""},
	{logOnRetry, "lib_settle.lua", "what is tried again is looked up in the cancel log", "canceled, and tried again", ""},
	{cancelSpares, "lib_settle.lua", "a cancel covers what has a lower token", "canceled while it runs", ""},
	{beginsHolding, "step.lua", "who begins to hold something is a holder", "canceled while it runs", ""},
	{endsHolding, "step.lua", "who holds nothing any more is no holder", "canceled while it runs", ""},
	{returnHolds, "lib_return.lua", "who is being returned is a holder until then", "canceled while it runs", ""},
	{returnEnds, "lib_return.lua", "who has been returned is no holder", "canceled, and its worker dies", ""},
	{saidTold, "step.lua", "a worker has said nothing of cancels that it was not told of", "canceled while it runs", ""},
	{saidHolder, "step.lua", "who holds nothing has nothing to say of cancels", "canceled between two rounds",
		"The same round takes out of the holders whoever holds nothing when it ends."},
	{namedFirst, "cancel.go", "a worker names what runs before it has said all", "canceled while it runs", ""},
	{allNamed, "cancel.go", "a worker has not said all while there is more to name", "canceled while it runs", ""},
	{endsStopping, "lib_settle.lua", "what has ended is not said to run", "canceled while it runs", ""},
	{keyStops, "cancel_key.lua", "what runs under a key is said to run", "a key canceled", ""},
	{trimSaid, "lib_settle.lua", "a cancel is on record until all have said what it covers", "canceled while it runs", ""},
	{trimStopped, "lib_settle.lua", "a cancel is on record while something runs that it covers", "canceled while it runs", ""},
	{overSaid, "cancel.go", "a cancel is not over until all have said what it covers", "canceled while it runs", ""},
	{overStopped, "cancel.go", "a cancel is not over while something runs that it covers", "canceled while it runs", ""},
	{firstLogs, "cancel.lua", "the first page puts the cancel on record", "canceled in pages", ""},
	{pagesLog, "cancel.lua", "each further page does, too", "canceled in three pages", ""},
	{lastLogs, "cancel.lua", "the last page does, too", "canceled in pages", ""},
	{lateUntil, "cancel.lua", "the last entry is looked up when the list is done", "canceled in pages, and tried again", ""},
	{backCounted, "cancel.lua", "a page takes what may have come back, too", "canceled in pages", ""},
	{blocks, "put.lua", "what is put under a key that runs is blocked", "a key put again", ""},
	{blockedReleased, "lib_entry.lua", "the end of a run releases what it blocked", "a key put again", ""},
	{duplicate, "enqueue_unique.lua", "a lock that holds refuses", "a locked task of a dead worker", ""},
	{lockTaken, "lib_settle.lua", "a lock goes with its task into a process", "a locked task of a dead worker", ""},
	{lockFollows, "lib_settle.lua", "a lock goes with its task to the front", "a locked task of a dead worker", ""},
	{lockEnds, "lib_settle.lua", "a lock ends with its process", "a locked task of a dead worker", ""},
	{cancelUnlocks, "cancel.lua", "a cancel takes the lock, too", "a locked task canceled", ""},
	{gapLeft, "cancel.lua", "what was in front of a lock leaves a gap", "gaps before a locked task", ""},
	{gapFilled, "lib_settle.lua", "what goes back to the front fills the gap there", "gaps behind a locked task", ""},
	{gapPushed, "enqueue_unique.lua", "positions are counted with the gaps", "gaps before a locked task",
		"The gaps go with the last lock, and here is only one, so who takes it finds none. It counts beside other locks."},
	{graced, "lib_return.lua", "a suspect has a grace", "Redis stalls", ""},
	{judgeSteady, "workerreg.go", "who has not beaten for a lease does not judge", "Redis stalls, and its clock jumps", ""},
	{gapEndsSteady, "workerreg.go", "a gap between beats ends the right to judge", "Redis stalls, and its clock jumps", ""},
	{lapseEndsSteady, "workerreg.go", "a lapse ends the right to judge", "Redis stalls, and its clock jumps", ""},
	{judgeUntil, "beat.lua", "the right to judge ends at a time", "Redis stalls, and its clock jumps", ""},
	{lapsedJudges, "beat.lua", "who has lapsed does not judge with that beat", "Redis stalls, and its clock jumps", ""},
}
