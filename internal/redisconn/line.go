package redisconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// ErrUnknown marks errors of calls that Redis may have carried out: they were sent, and no reply
// arrived. A call that failed without it wasn't carried out.
var ErrUnknown = errors.New("the reply was lost")

// ErrClosed is returned by the calls on a closed Line.
var ErrClosed = errors.New("the connection is closed")

var (
	errLost  = errors.New("the connection was lost before the call was sent")
	errStale = errors.New("an earlier call failed")
)

// DefaultTimeout is the timeout of a Line made without one.
const DefaultTimeout = 5 * time.Second

const (
	longest     = 365 * 24 * time.Hour   // timeout; extensions for large payloads must not overflow
	slowestLink = 1 << 20                // bytes per second; extends the time for large payloads
	idleCheck   = 1 * time.Second        // how long a connection may be idle and still be trusted
	lastWord    = 500 * time.Millisecond // callers wait this much longer than a dial, since the dial's error is more specific
	checkShare  = 4                      // the fraction of the timeout for a check; the rest is for another connection
	turns       = 16                     // how often, within the timeout, a line looks for callers that have waited too long
)

// A Line is one connection shared by many callers. It dials when it has something to send, and has no
// goroutine when nothing is in flight. It is safe for concurrent use.
//
// Send doesn't wait for earlier answers. Do and One wait for their turn: calls that arrive during an
// exchange are sent together in the next one, and combined if they have the same Head.
type Line struct {
	dial    Dial
	timeout time.Duration // time without a sign of life from Redis after which calls fail
	verify  bool          // ping a connection that was idle, so that fewer replies are lost
	routed  bool          // the connection leads to a node of a cluster
	renew   time.Duration // the age at which the connection is replaced; 0 is never
	alive   life

	mu      sync.Mutex       // protects the fields below
	queue   []*bunch         // not written yet
	flight  []*bunch         // being written, or written and not answered
	written int              // how many in flight are written
	conn    redis.Conn       // changed only by run, and by Close once that has ended
	made    time.Time        // when conn was made; zero if there is none
	next    replacement      // of conn
	known   map[*Script]bool // scripts that Send has sent on conn, so that the server knows them
	broken  error            // why nothing more can be written on conn
	spent   bool             // conn is replaced once nothing is in flight
	dialed  time.Time        // when the last dial began, except of a replacement
	forgo   func()           // ends the last dial, except of a replacement; nil before the first
	running bool             // run is
	reading bool             // it waits for a reply
	writing bool             // some goroutine writes
	wrote   *sync.Cond       // it has written something, or has ended
	clock   *time.Timer      // of tick; nil if that doesn't run
	idle    chan struct{}    // closed when run ends; nil if nobody waits for that
	closed  bool
}

// A replacement is the connection that is to follow an old one.
type replacement struct {
	due   time.Time  // when to dial it
	cease func()     // ends its dial; nil if there is none
	conn  redis.Conn // it's used once nothing is in flight; nil if there is none yet
}

// A bunch is the calls of one Send or Do.
type bunch struct {
	calls   []Call
	size    int // bytes
	stale   func() bool
	err     error // why it wasn't written
	replies []Reply
	done    func([]Reply)

	turn   bool      // of Do: if it's the first, it's sent when nothing is in flight; done doesn't block: it's called under the lock, too
	whole  bool      // it contains the scripts' sources: the server doesn't know their digests
	since  time.Time // when it came
	left   time.Time // when its caller has left, if that was after it was sent
	lead   *bunch    // the one whose call includes this one
	riders int       // those that this one's call includes
}

// NewLine returns a Line over connections made by dial. A call fails when Redis has given no sign
// of life for the timeout, whether the call waits for its turn, the line dials, or a reply is
// missing; zero is DefaultTimeout. Large payloads get more time. On a pool's connections, only a
// complete reply is a sign of life.
func NewLine(dial Dial, timeout time.Duration) *Line {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	timeout = min(timeout, longest)
	l := &Line{dial: dial, timeout: timeout, alive: life{timeout: timeout}}
	l.wrote = sync.NewCond(&l.mu)
	return l
}

// Verified makes the line ping idle connections before it uses them, and returns the line. Calls
// that can't be repeated need this.
func (l *Line) Verified() *Line {
	l.verify = true
	return l
}

// Renewed makes the line replace each connection before it gets older than every, as long as it is used, so that
// the server doesn't close it when its credentials expire. It returns the line. Zero is never.
func (l *Line) Renewed(every time.Duration) *Line {
	l.renew = every
	return l
}

// Routed marks the line as one to a node of a cluster, and returns it. If the node redirects a
// call, the line keeps its connection and returns that reply unchanged.
func (l *Line) Routed() *Line {
	l.routed = true
	return l
}

// Heard returns how long ago Redis last gave a sign of life on the line.
func (l *Line) Heard() time.Duration { return l.alive.since() }

// Made returns when the line was connected to a server that answers, or the zero time if it isn't connected, as far
// as is known. It calls no method of the connection: a Pool's connection is user code.
func (l *Line) Made() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// Send makes calls, behind all that were sent before, and doesn't block. It calls done once, with a
// reply for each call, in the order of the Sends. done runs on a goroutine that all callers share, never
// within Send; it must not block, and may call Send.
//
// When the connection breaks, everything fails that was sent until then: with ErrUnknown if it may
// have been carried out. What is sent by done, or after that, is made on the next connection.
//
// Unless it is nil, stale is asked shortly before the calls are written, on any goroutine. If it
// returns true, they aren't made, and fail in their turn. If Redis forgot a script, its call fails with Unloaded.
//
// The arguments must not change until done is called.
func (l *Line) Send(calls []Call, stale func() bool, done func([]Reply)) {
	l.enter(&bunch{calls: calls, stale: stale, done: done}, false)
}

// Do makes the calls in one exchange and returns a reply for each. It blocks until all have been
// answered or have failed, or until ctx ends. If ctx can't end, nothing reads the arguments after Do
// has returned.
func (l *Line) Do(ctx context.Context, calls ...Call) []Reply {
	replies := l.do(ctx, calls, false)
	var forgotten []int // calls of scripts
	var again []Call
	for i := range replies {
		if calls[i].script != nil && Unloaded(replies[i].Err) {
			forgotten, again = append(forgotten, i), append(again, calls[i])
		}
	}
	if len(again) > 0 {
		for n, reply := range l.do(ctx, again, true) {
			replies[forgotten[n]] = reply
		}
	}
	return replies
}

// One makes a call, as Do does.
func (l *Line) One(ctx context.Context, c Call) (any, error) {
	reply := l.Do(ctx, c)[0]
	return reply.Value, reply.Err
}

func (l *Line) do(ctx context.Context, calls []Call, whole bool) []Reply {
	if ctx.Err() != nil {
		return fail(len(calls), context.Cause(ctx))
	}
	answer := make(chan []Reply, 1)
	b := &bunch{calls: calls, turn: true, whole: whole, done: func(replies []Reply) { answer <- replies }}
	if l.enter(b, ctx.Done() == nil) {
		l.run(true)
	}
	if ctx.Done() == nil {
		return <-answer
	}
	select {
	case replies := <-answer:
		return replies
	case <-ctx.Done():
	}
	cause, sent := context.Cause(ctx), l.leave(b)
	if sent {
		select {
		case replies := <-answer: // both had happened
			return replies
		default:
		}
		cause = fmt.Errorf("%w: %w", ErrUnknown, cause)
	}
	return fail(len(calls), cause)
}

func fail(n int, err error) []Reply { return slices.Repeat([]Reply{{Err: err}}, n) }

// enter queues a bunch. If the line is connected and idle, and the caller can make the exchange itself, which saves a
// goroutine, enter returns true, and the caller must run the line.
func (l *Line) enter(b *bunch, itself bool) (runs bool) {
	for i := range b.calls {
		b.size += b.calls[i].size()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b.since = time.Now()
	l.queue = append(l.queue, b)
	switch {
	case !l.running:
		l.running = true
		if runs = itself && l.conn != nil; runs {
			return true
		}
		go l.run(false)
	case l.reading && l.mayWriteLocked():
		l.writing = true
		go l.write()
	}
	if b.turn && l.clock == nil && !l.closed {
		l.clock = time.AfterFunc(l.timeout/turns, l.tick)
	}
	return false
}

// leave records that the caller of a bunch has left. An unsent one is dropped: nothing reads its calls anymore.
func (l *Line) leave(b *bunch) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, b); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return false
	}
	b.left = time.Now()
	return true
}

// tick runs while the line is busy. It fails calls that have waited for the timeout while Redis was silent, and
// ends an exchange that no caller has wanted for as long: a large reply that keeps coming would delay later calls and
// Close. One timer for all callers costs less than one for each.
func (l *Line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clock = nil; !l.running || l.closed {
		return
	}
	l.clock = time.AfterFunc(l.timeout/turns, l.tick)
	limit := l.timeout + lastWord
	if l.alive.since() >= limit {
		silent := fail(1, fmt.Errorf("no reply within %v: %w", l.timeout, os.ErrDeadlineExceeded))[0]
		l.queue = slices.DeleteFunc(l.queue, func(b *bunch) bool {
			old := b.turn && time.Since(b.since) >= limit
			if old {
				b.done(slices.Repeat([]Reply{silent}, len(b.calls)))
			}
			return old
		})
	}
	wanted := func(b *bunch) bool { return b.left.IsZero() || time.Since(b.left) < l.timeout }
	if len(l.flight) > 0 && l.conn != nil && !slices.ContainsFunc(l.flight, wanted) {
		go Interrupt(l.conn)
	}
}

// Abort closes the connection, whatever is in progress, so that everything that was sent fails, and returns.
// The next call dials again. A pool's connection can't be closed while it is in use, so those calls time out.
func (l *Line) Abort() {
	l.mu.Lock()
	conn := l.conn
	l.spent = conn != nil // what is sent from now on goes to the next one
	if l.forgo != nil {
		l.forgo()
	}
	l.next.giveUp()
	l.mu.Unlock()
	if conn != nil {
		Interrupt(conn) // run finds it closed
	}
}

// Close closes the connection once all that is written is answered, and waits for that, but not longer than the
// timeout. Everything else fails with ErrClosed. Don't call it in done.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	if l.forgo != nil {
		l.forgo()
	}
	l.next.giveUp()
	if l.clock != nil {
		l.clock.Stop() // it would keep the line in memory
		l.clock = nil
	}
	if l.running && l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-time.After(l.timeout + lastWord):
		}
	}
	l.mu.Lock()
	conn, running := l.conn, l.running
	l.mu.Unlock()
	switch {
	case !running:
		l.drop()
	case conn != nil:
		Interrupt(conn) // run drops it
	}
}
