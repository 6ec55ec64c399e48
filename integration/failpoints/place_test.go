package failpoints_test

// A place is a place on the way of a call.
type place string

const (
	before   place = "before"   // the peer is about to send it
	sent     place = "sent"     // sent, but Redis doesn't have it yet
	executed place = "executed" // Redis has carried it out, and the reply is on its way
	received place = "received" // the peer has read the reply, but not used it yet
)

// A fault is what happens to a call, or to the peer that makes it.
type fault string

const (
	// The process is killed. What it had sent arrives when others have its tasks.
	kill fault = "kill"
	// The process is stopped until others have its tasks, if it had any. What it had sent arrives
	// in the meantime. A reply that it had not read comes too late, and it drops the connection.
	pause fault = "pause"
	// The live peer is evicted, and others have its tasks. What it had sent arrives after that; a
	// reply that it had not read is lost.
	evict fault = "evict"
	// The connection is cut. What was in flight never arrives.
	lost fault = "lost"
	// The connection is cut, and again when the call is repeated.
	twice fault = "twice"
	// The connection is cut; what was in flight arrives after the peer has gone on.
	late fault = "late"
	// A copy of the request arrives on another connection.
	again fault = "again"
)

// A moment is when a copy arrives.
type moment = place

const (
	atOnce moment = "reply"  // before the peer has processed the reply
	next   moment = "next"   // after one more round
	goneOn moment = "later"  // when the peer holds another task
	left   moment = "left"   // when the peer has left
	failed moment = "failed" // when the peer was evicted
)

// A cell is one fault at one place.
type cell struct {
	fault fault
	place place
}

func (c cell) String() string { return string(c.fault) + "/" + string(c.place) }

// cells are all cells, in the order of the table.
var cells = []cell{
	{kill, before}, {kill, sent}, {kill, executed}, {kill, received},
	{pause, before}, {pause, sent}, {pause, executed}, {pause, received},
	{evict, before}, {evict, sent}, {evict, executed}, {evict, received},
	{lost, before}, {lost, sent}, {lost, executed}, {late, sent},
	{twice, sent}, {twice, executed},
	{again, atOnce}, {again, next}, {again, goneOn}, {again, left}, {again, failed},
}

// holds returns the place at which the call is held.
func (c cell) holds() place {
	if c.fault == again {
		return received // the request is known by then
	}
	return c.place
}

// times returns how often it is held there.
func (c cell) times() int {
	if c.fault == twice {
		return 2
	}
	return 1
}

// A promise is the expected result of a call with a fault.
type promise struct {
	effect int    // how often the call is carried out
	result string // what the caller gets, as kind returns it; "" if the caller is dead
	or     string // the alternative, if the peer may learn of two things in either order
}
