package search

import (
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// The bounds: the search visits everything that can happen within them.
const (
	maxWorkers = 3 // ids of workers
	maxSlots   = 4 // ids of processes that a worker has in use at the same time
	maxTasks   = 4
	maxLanes   = store.Lanes // rounds that a worker has in flight at the same time
	maxEnds    = 2           // ends in one round
	maxCopies  = 4           // copies of requests still in flight: an evicted worker leaves up to three
	chunk      = 1           // tasks that one call returns; in the scripts, AT_ONCE
	mentions   = 1           // canceled tasks that one round names as still running; maxStopping
)

// A state is everything between two steps: Redis, the peers, the requests in
// flight, and what the invariants must remember. It is a plain value, so that
// states can be copied and compared.
type state struct {
	redis redis
	peers [maxWorkers]peer
	late  [maxCopies]request // no worker waits for these anymore; they may arrive at any time
	call  canceling
	past  past
	left  budget
}

// A budget is how many more times optional things may happen.
type budget struct {
	produced                       uint8 // tasks so far
	crashes, leaves                uint8
	lost, late, refused, lateJoins uint8
	cancels, keyCancels            uint8
}

// redis is the data of a queue. Tasks and processes are numbered from 1.
type redis struct {
	waiting [maxTasks]uint8 // front first; 0 ends it
	process [maxWorkers * maxSlots]process
	entry   [maxTasks + 1]entry // 0 is the key, the others r: entries, by their task
	token   uint8
	member  [maxWorkers]lease
	suspect [maxWorkers]mark
	round   [maxWorkers]uint8
	fence   uint8    // rises when a worker leaves
	cancel  [2]uint8 // the cancel log: tokens, 0 is none; of the payload, and of the key
	holder  [maxWorkers]holder
	// For each process that runs although a cancel covers it: its token, by the name of the cancel.
	stopping [maxWorkers * maxSlots][2]uint8
	added    [maxTasks]uint8 // added tasks that wait, the front first; 0 ends them
}

// A process is in a processing list and in the working set of its worker.
type process struct {
	task, token uint8
	entry       uint8 // 1 + index; 0 is the list
	added       bool  // it came from the stream
}

// An entry is one of the schedule.
type entry struct {
	task    uint8 // what waits
	process uint8 // what runs
	score   uint8 // token of what was returned; 0 if it has a time
	planned bool  // it is in schedule: it waits and isn't blocked
	later   bool  // its time is still to come
	keep    bool  // if what runs comes back, its payload stays
}

// A holder is a worker that holds something, and up to which cancel it has named
// what that covers.
type holder struct {
	there bool
	said  uint8
}

// A canceling is a cancel of the payload that has further pages.
type canceling struct {
	begun        bool
	left         int8  // how many copies may still wait in the list
	started      int8  // how many tasks have started since the page before, as far as that matters
	after, until uint8 // 1 + index of entries
	wait         uint8 // the place of its receipt
}

type lease uint8

const (
	noMember lease = iota
	fresh
	lapsed
)

type mark uint8

const (
	unmarked mark = iota
	suspected
	failed // 0: being returned
	parted // -1: being returned at its own request
)

// A verb is how a process ends. The last two aren't the worker's choice.
type verb uint8

const (
	none verb = iota
	finish
	drop
	stop
	retry
	returned
	canceled
)

var verbs = [...]string{"-", "finish", "drop", "stop", "retry", "returned", "canceled"}

func (v verb) String() string { return verbs[v] }

// An end states how a process ended.
type end struct {
	process, token uint8
	verb           verb
}

// A request is a call to Redis, mostly by a worker.
type request struct {
	kind   kind
	worker uint8
	number uint8 // of the round
	start  uint8 // the process to start; 0 is none
	ends   [maxEnds]end
	runs   [maxSlots][2]bool // what runs though a cancel covers it, by the name of the cancel
	said   uint8             // the token up to which that list is complete
	seen   uint8             // the last cancel that it has received
	asked  uint8             // the fence that a join has read; for a leave, that of its join
}

type kind uint8

const (
	nothing kind = iota
	toStep
	toJoin
	toLeave
	toBeat
	toSweep
	toFail
	toProduce
	toCancel
	toCancelKey
)

// An answer is the answer to a step.
type answer struct {
	refused bool // EVICTED or STALE
	settled [maxEnds]settled
	token   uint8 // of the started process; 0 is none
	task    uint8
	entry   uint8
	cancels [2]uint8 // tokens of new cancels
	seen    uint8    // the last cancel in the answers
}

type settled uint8

const (
	unsettled settled = iota
	ok
	wasCanceled
	gone
)

// An exchange is a round that a peer waits for.
type exchange struct {
	request
	sent     bool // it is in flight, and not answered
	repeated bool
	answer
}

// A peer is a worker's view of itself.
type peer struct {
	phase  phase
	number uint8 // of its last round
	asked  uint8 // the fence that its join has read
	seen   uint8
	held   [maxSlots]held
	flight [maxLanes]exchange // oldest first
	said   uint8              // up to which cancel it has named what runs
}

type held struct {
	task, token, entry uint8
	said               bool // how it ended is in flight
	canceled           bool
	covered            [2]uint8 // tokens of cancels that it must still be named for
}

type phase uint8

const (
	away  phase = iota
	loose       // may be a member, and shouldn't be
	working
	leaving
	ousted // was evicted, and knows it
	dead
)

var phases = [...]string{"away", "loose", "working", "leaving", "ousted", "dead"}

// past is what the invariants remember.
type past struct {
	fate    [maxTasks]fate
	begun   [maxTasks]bool  // it was started before
	covered [maxTasks]uint8 // by which cancels it was covered while it ran: a bit each
	doomed  [maxTasks]bool  // it existed when the cancel with further pages began
	waits   [2]uint8        // tokens of the receipts of cancels; 0 if nothing was covered
	back    [maxTasks]turn  // how it came back
	failed  [maxWorkers]bool
	since   [maxWorkers]uint8 // the round with which its membership began
	ended   [maxWorkers * maxSlots]verb
	unique  uint8 // the last unique task that was accepted
	wrong   wrong
}

// A turn is the group with which a task came back, and the token of its start. The tasks that one
// round stops are one group, and those that a worker held when it died are another; 0 is neither.
type turn struct{ group, token uint8 }

type fate uint8

const (
	unborn fate = iota
	accepted
	finished
	gaveUp   // canceled
	replaced // by a put
	rejected // duplicate
)

func workerOf(process uint8) int { return int(process-1) / maxSlots }
func slotOf(process uint8) int   { return int(process-1) % maxSlots }
func processOf(worker, slot int) uint8 {
	return uint8(worker*maxSlots + slot + 1)
}

// holds reports whether a worker has a process.
func (s *state) holds(w int) bool {
	of := s.redis.process[w*maxSlots : (w+1)*maxSlots]
	return slices.ContainsFunc(of, func(p process) bool { return p.token != 0 })
}
