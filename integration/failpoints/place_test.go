package failpoints_test

// A place is one on the way of a call.
type place string

const (
	before place = "before" // it is about to be sent
	sent   place = "sent"   // it is on its way, and Redis does not have it
	done   place = "done"   // Redis has carried it out, and the reply is on its way
	told   place = "told"   // the reply was read, and nothing made of it yet
)

// A fault is what happens to a call, or to the peer that makes it.
type fault string

const (
	// The process is killed. What it had sent arrives once others have its tasks.
	kill fault = "kill"
	// The process is stopped until others have its tasks, if it had any, then goes
	// on. What it had sent arrives meanwhile; a reply that it had not read is late,
	// and its connection given up.
	pause fault = "pause"
	// Somebody gives the peer up for dead while it lives, and has its tasks. What it had
	// sent arrives after that; a reply that it had not read is lost.
	evict fault = "evict"
	// The connection is cut. What was on its way never arrives.
	lost fault = "lost"
	// The connection is cut, and so is the next one, when the call is made again.
	twice fault = "twice"
	// The connection is cut; what was on its way arrives once the peer has gone on.
	late fault = "late"
	// A copy of the request arrives by another connection.
	again fault = "again"
)

// A moment is when a copy arrives.
type moment = place

const (
	atOnce moment = "reply"  // before the peer has taken in the reply
	next   moment = "next"   // it has made one more round
	goneOn moment = "later"  // it has gone on, and holds another task
	left   moment = "left"   // it has left
	failed moment = "failed" // it was given up for dead
)

// A cell is one fault at one place.
type cell struct {
	fault fault
	place place
}

func (c cell) String() string { return string(c.fault) + "/" + string(c.place) }

// cells are all, in the order of the table.
var cells = []cell{
	{kill, before}, {kill, sent}, {kill, done}, {kill, told},
	{pause, before}, {pause, sent}, {pause, done}, {pause, told},
	{evict, before}, {evict, sent}, {evict, done}, {evict, told},
	{lost, before}, {lost, sent}, {lost, done}, {late, sent},
	{twice, sent}, {twice, done},
	{again, atOnce}, {again, next}, {again, goneOn}, {again, left}, {again, failed},
}

// holds is the place at which the call is held.
func (c cell) holds() place {
	if c.fault == again {
		return told // the request is known then
	}
	return c.place
}

// times is how often it is held there.
func (c cell) times() int {
	if c.fault == twice {
		return 2
	}
	return 1
}

// A promise is what is to come of a call that meets a fault.
type promise struct {
	effect int    // how often it is carried out
	told   string // what its caller is told, as kind says it; "" if nobody is left to be told
	or     string // or this, if it is not certain which of two things the peer learns first
}
