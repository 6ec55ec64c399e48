package redisconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// ErrUnknown marks errors of calls that Redis may have carried out: they were sent, and no reply
// arrived. A call that failed without it wasn't carried out.
var ErrUnknown = errors.New("the reply was lost")

// ErrClosed is returned by the calls on a closed Line.
var ErrClosed = errors.New("the connection is closed")

var errLost = errors.New("the connection was lost before the call was sent")

// DefaultTimeout is the timeout of a Line made without one.
const DefaultTimeout = 5 * time.Second

const (
	longest     = 365 * 24 * time.Hour   // timeout; extensions for large payloads must not overflow
	slowestLink = 1 << 20                // bytes per second; extends the time for large payloads
	idleCheck   = 1 * time.Second        // how long a connection may be idle and still be trusted
	lastWord    = 250 * time.Millisecond // callers wait this much longer than a dial, since the dial's error is more specific
	checkShare  = 4                      // the fraction of the timeout for a check; the rest is for another connection
)

// A Line is one connection shared by many callers. If the line is free and a caller's context can't
// end, the caller makes the exchange itself. Otherwise a goroutine does, so that callers can leave
// when their context ends. Calls that arrive in the meantime are sent together in the next
// exchange. The line dials when it has something to send, and runs a goroutine only while calls are
// waiting. It is safe for concurrent use.
type Line struct {
	dial    Dial
	timeout time.Duration // time without a sign of life from Redis after which calls fail
	verify  bool          // ping a connection that was idle, so that fewer replies are lost
	routed  bool          // the connection leads to a node of a cluster
	alive   life
	renewal renewal

	// The fields below are owned by the current exchange.
	used time.Time // when conn last answered
	pipe pipeline

	mu     sync.Mutex    // protects the fields below
	conn   redis.Conn    // changed only by the current exchange
	made   time.Time     // when conn was made; zero until it has answered, and after an exchange in which it broke
	busy   bool          // some goroutine makes exchanges
	now    *batch        // of the current exchange; nil if there is none; changed only by the exchange
	next   *batch        // for the next exchange; nil if no call waits
	idle   chan struct{} // closed when the line becomes idle; nil if nobody waits for that
	closed bool
	forgo  func() // cancels the last dial; nil before the first
	alarm  alarm
}

// A batch holds the calls of one exchange. One channel wakes its callers for every reason, since
// receiving costs much less than selecting.
type batch struct {
	bundles []*bundle     // nil once the exchange has ended; protected by Line.mu until it begins
	over    atomic.Bool   // the exchange has ended
	wake    chan struct{} // closed then, and when the alarm rings; replaced if callers may keep waiting; protected by Line.mu
	first   [1]*bundle    // room for bundles
}

// newBatch returns a batch of one bundle, whose caller makes the exchange itself.
func newBatch(b *bundle) *batch {
	all := &batch{first: [1]*bundle{b}}
	all.bundles = all.first[:]
	b.batch = all
	return all
}

// A bundle holds the calls of one caller.
type bundle struct {
	calls   []Call
	replies []Reply
	batch   *batch

	// The fields below are protected by Line.mu.
	sent   bool        // or about to be sent
	gone   bool        // its caller has left, so it isn't sent
	late   *time.Timer // calls forsake, once its caller has left
	joined int         // the turn of the alarm when it began to wait
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
	l.alarm = newAlarm(timeout+lastWord, &l.alive)
	return l
}

// Heard returns how long ago Redis last gave a sign of life on the line.
func (l *Line) Heard() time.Duration { return l.alive.since() }

// Verified makes the line ping idle connections before it uses them, and returns the line. Calls
// that can't be repeated need this.
func (l *Line) Verified() *Line {
	l.verify = true
	return l
}

// Do makes the calls in one exchange and returns a reply for each. It blocks until all have been
// answered or have failed, or until ctx ends. If ctx can't end, nothing reads the arguments after Do
// has returned.
func (l *Line) Do(ctx context.Context, calls ...Call) []Reply {
	b := &bundle{calls: calls, replies: make([]Reply, len(calls))}
	if err := l.do(ctx, b); err != nil {
		return fail(len(calls), err)
	}
	return b.replies
}

func (l *Line) One(ctx context.Context, c Call) (any, error) {
	one := &struct {
		bundle
		call  [1]Call
		reply [1]Reply
	}{call: [1]Call{c}}
	one.calls, one.replies = one.call[:], one.reply[:]
	if err := l.do(ctx, &one.bundle); err != nil {
		if !errors.Is(err, ErrUnknown) {
			one.call[0] = Call{} // it wasn't sent, and the line may hold on to the rest for a while
		}
		return nil, err
	}
	return one.reply[0].Value, one.reply[0].Err
}

// do sends the bundle and waits for its replies. If it returns an error, the caller must not read
// the replies.
func (l *Line) do(ctx context.Context, b *bundle) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wake, err := l.enter(b, ctx.Done() == nil)
	switch {
	case err != nil:
		return err
	case wake != nil:
		return l.wait(ctx, b, wake)
	case !l.connected():
		return l.wait(ctx, b, l.begin(b))
	}
	l.exchange()
	if l.owed() {
		go l.run()
	}
	return nil
}

// enter adds the bundle to the next exchange, and returns a channel to wait for. If the line is free
// and the caller can make the exchange itself, enter takes the line for it, and returns no channel;
// the caller must then call owed.
func (l *Line) enter(b *bundle, itself bool) (wake <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case !l.busy && itself:
		l.busy, l.now = true, newBatch(b)
		return nil, nil
	case !l.busy:
		l.busy = true
		go l.run()
	}
	if l.next == nil {
		l.next = &batch{wake: make(chan struct{})}
	}
	b.batch = l.next
	l.next.bundles = append(l.next.bundles, b)
	l.expectLocked(b)
	return l.next.wake, nil
}

// wait waits until the bundle is answered, ctx ends, or it can't be sent since Redis is silent.
func (l *Line) wait(ctx context.Context, b *bundle, wake <-chan struct{}) error {
	for {
		if ctx.Done() == nil {
			<-wake
		} else {
			select {
			case <-wake:
			case <-ctx.Done():
				return l.quit(b, context.Cause(ctx))
			}
		}
		if b.batch.over.Load() {
			return nil
		}
		next, may := l.mayWait(b)
		if !may {
			return fmt.Errorf("no reply within %v: %w", l.timeout, os.ErrDeadlineExceeded)
		}
		wake = next
	}
}

// quit makes the caller of a bundle leave. An unsent bundle is dropped immediately, however long
// the current exchange takes. The cause of a context is user code: its methods may use the line, so
// none is called under the lock.
func (l *Line) quit(b *bundle, cause error) error {
	over, sent := l.leave(b)
	switch {
	case over:
		return nil
	case !sent:
		return cause
	}
	return fmt.Errorf("%w: %w", ErrUnknown, cause)
}

// leave records that the caller of the bundle has left, unless it is answered. If it was sent,
// forsake runs later, unless the exchange ends first.
func (l *Line) leave(b *bundle) (over, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.batch.over.Load(): // both had happened
		return true, b.sent
	case b.sent:
		b.gone = true
		b.late = time.AfterFunc(l.timeout, func() { l.forsake(b) })
	default:
		b.dropLocked()
	}
	return false, b.sent
}

// dropLocked records that the caller of an unsent bundle has left. Nothing reads its calls anymore.
func (b *bundle) dropLocked() { b.gone, b.calls = true, nil }

// forsake ends the exchange that the bundle is still in, unless another caller waits for it.
// Otherwise, a large reply that keeps coming and that no caller wants would delay later calls and
// Close.
func (l *Line) forsake(b *bundle) {
	waits := func(b *bundle) bool { return !b.gone }
	l.mu.Lock()
	conn, forsaken := l.conn, l.now == b.batch && !slices.ContainsFunc(b.batch.bundles, waits)
	l.mu.Unlock()
	if conn != nil && forsaken {
		Interrupt(conn)
	}
}

// Abort closes the connection, whatever is in progress, and waits until the affected calls have
// failed. The next call dials again. A pool's connection can't be closed while it is in use, so
// those calls time out.
func (l *Line) Abort() {
	l.mu.Lock()
	conn := l.conn
	if l.forgo != nil {
		l.forgo()
	}
	idle := l.idling()
	l.mu.Unlock()
	if conn != nil {
		Interrupt(conn) // the next exchange finds it closed
	}
	l.await(idle)
}

// Close closes the connection once the current exchange has ended, and waits for that. Later calls
// fail with ErrClosed, and so do calls that have no connection yet.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	if l.forgo != nil {
		l.forgo()
	}
	idle := l.idling()
	l.mu.Unlock()
	l.endRenewal()
	l.await(idle)
	l.mu.Lock()
	conn, busy := l.conn, l.busy
	if !busy {
		l.muteLocked()
	}
	l.mu.Unlock()
	switch {
	case !busy:
		l.drop()
	case conn != nil:
		Interrupt(conn) // the goroutine that makes exchanges drops it
	}
}

// await waits until no exchange is in progress, but not longer than one may take: an exchange may
// be running user code, namely the methods of an error, and that code may be what waits here.
func (l *Line) await(idle <-chan struct{}) {
	select {
	case <-idle:
	case <-time.After(l.timeout + lastWord):
	}
}

// idling returns a channel that is closed when no exchange is in progress. The caller holds l.mu.
func (l *Line) idling() <-chan struct{} {
	if !l.busy {
		return over
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// connect ensures that there is a connection that answers. If requests arrive but replies don't,
// calls would be carried out, again and again, and the peer would never know.
func (l *Line) connect() error {
	l.swap()
	if l.conn != nil && l.conn.Err() != nil {
		l.drop() // it was aborted
	}
	if l.conn != nil && !l.unsure() {
		return nil
	}
	until := time.Now().Add(l.timeout) // for the check, the dial and the first reply
	if l.conn != nil && l.ping(l.timeout/checkShare) == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), lifeKey{}, &l.alive), until)
	defer cancel()
	l.mu.Lock()
	l.forgo = cancel
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	conn, err := l.dial(ctx)
	if err != nil {
		err = &absentError{err}
	}
	var made time.Time
	l.mu.Lock()
	switch closed = l.closed; {
	case err == nil:
		l.madeLocked(conn)
		made, l.made = l.made, time.Time{} // until it has answered
	case closed:
		err = ErrClosed
	}
	l.mu.Unlock()
	if err == nil {
		err = l.ping(max(time.Until(until), time.Millisecond))
	}
	if err == nil {
		l.mu.Lock()
		l.made = made
		l.mu.Unlock()
	}
	return err
}

// lifeKey is the key for the line's *life in the contexts of its dials.
type lifeKey struct{}

// connected reports whether an exchange can begin without checking the connection first. Only the
// owner of the line may call it.
func (l *Line) connected() bool {
	return l.conn != nil && l.conn.Err() == nil && !l.unsure() && !l.hasFresh()
}

// Made returns when the line was connected to a server that answers, or the zero time if it isn't
// connected, as far as is known. It calls no method of the connection: a Pool's connection is user
// code.
func (l *Line) Made() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// unsure reports whether to check the connection before using it.
func (l *Line) unsure() bool { return l.verify && time.Since(l.used) > idleCheck }

// ping drops a connection that doesn't answer in time.
func (l *Line) ping(within time.Duration) error {
	call, pong := Command("PING"), Reply{}
	l.pipe.timeout = within
	l.pipe.add(&call, &pong, true)
	l.roundTrip()
	l.pipe.reset(0)
	switch {
	case Usable(pong.Err):
		return nil
	case errors.Is(pong.Err, ErrUnknown):
		// Only the outcome of the PING is unknown.
		return &absentError{errors.New(strings.TrimPrefix(pong.Err.Error(), ErrUnknown.Error()+": "))}
	}
	l.drop()
	return pong.Err
}

func (l *Line) drop() {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it has failed, or isn't needed anymore
	}
}
