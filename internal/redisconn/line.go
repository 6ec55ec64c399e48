package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// ErrUnknown marks the errors of calls that Redis may have carried out: they
// were sent, and no reply came. A call that failed without it was not carried
// out.
var ErrUnknown = errors.New("the reply was lost")

// ErrClosed is returned by the calls on a closed Line.
var ErrClosed = errors.New("the connection is closed")

var errLost = errors.New("the connection was lost before the call was sent")

const (
	callTimeout = 5 * time.Second
	slowestLink = 1 << 20         // bytes a second; large payloads get more time
	idleCheck   = 1 * time.Second // how long a connection may be idle and still be trusted
)

// A Script is a Lua script with its digest.
type Script struct{ src, sha string }

// NewScript returns the script with the given source.
func NewScript(src string) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{src, hex.EncodeToString(sum[:])}
}

// Call returns the call of the script with the given keys and arguments.
func (s *Script) Call(keys []string, args ...any) Call {
	all := make([]any, 0, 2+len(keys)+len(args))
	all = append(all, s.sha, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return Call{name: "EVALSHA", args: append(all, args...), script: s}
}

// A Call is one command. Byte slices among its arguments must not change
// until Redis has received them, which may be after Do has returned.
type Call struct {
	name   string
	args   []any
	script *Script
}

// Command returns the call of a plain command.
func Command(name string, args ...any) Call { return Call{name: name, args: args} }

// whole is the call with the script's source in place of its digest.
func (c Call) whole() Call {
	args := slices.Clone(c.args)
	args[0] = c.script.src
	return Call{name: "EVAL", args: args}
}

func (c Call) size() (n int) {
	for _, a := range c.args {
		if b, ok := a.([]byte); ok {
			n += len(b)
		}
	}
	return n
}

// A Reply is what Redis answered: a value, an error reply (a redis.Error), or
// why there is no answer.
type Reply struct {
	Value any
	Err   error
}

// A Line is one connection shared by many callers. Calls that arrive while an
// exchange is under way gather and travel together in the next one. It dials
// when it has something to send, and runs a goroutine only while it has.
// It is safe for concurrent use.
type Line struct {
	dial    Dial
	timeout time.Duration // for a reply
	verify  bool          // ping a connection that was idle, so that fewer replies are lost

	used time.Time // when conn last answered; owned by the exchange under way

	mu      sync.Mutex // protects the fields below
	conn    redis.Conn // changed only by the exchange under way
	waiting []*bundle
	busy    chan struct{} // closed when no exchange is under way any more; nil when none is
	closed  bool
}

// A bundle is the calls of one caller.
type bundle struct {
	calls   []Call
	replies []Reply
	sent    bool // protected by Line.mu
	gone    bool // nobody waits any more, so it is not to be sent; likewise
	done    chan struct{}
}

// NewLine returns a Line over connections made by dial. A timeout of zero is
// five seconds.
func NewLine(dial Dial, timeout time.Duration) *Line {
	if timeout == 0 {
		timeout = callTimeout
	}
	return &Line{dial: dial, timeout: timeout}
}

// Verified makes the line ping connections that were idle before it uses them
// and returns it. Calls that cannot be repeated want this.
func (l *Line) Verified() *Line {
	l.verify = true
	return l
}

// Do makes the calls in one exchange and returns a reply for each. It blocks
// until all have been answered or have failed, or until ctx ends.
func (l *Line) Do(ctx context.Context, calls ...Call) []Reply {
	b := &bundle{calls: calls, replies: make([]Reply, len(calls)), done: make(chan struct{})}
	if err := ctx.Err(); err != nil {
		return fail(len(calls), err)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fail(len(calls), ErrClosed)
	}
	l.waiting = append(l.waiting, b)
	if l.busy == nil {
		l.busy = make(chan struct{})
		go l.run()
	}
	l.mu.Unlock()

	select {
	case <-b.done:
		return b.replies
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-b.done: // both were ready
		return b.replies
	default:
		if !b.sent {
			b.gone = true
			return fail(len(calls), context.Cause(ctx))
		}
		return fail(len(calls), fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx)))
	}
}

// One makes one call.
func (l *Line) One(ctx context.Context, c Call) (any, error) {
	r := l.Do(ctx, c)[0]
	return r.Value, r.Err
}

// Abort closes the connection, whatever is under way, and waits for the calls
// that are to fail. The next call dials again. A connection that belongs to a
// pool cannot be closed while it is in use, so then the calls time out.
func (l *Line) Abort() {
	l.mu.Lock()
	if l.conn != nil {
		Interrupt(l.conn) // the next exchange finds it closed
	}
	busy := l.busy
	l.mu.Unlock()
	if busy != nil {
		<-busy
	}
}

// Close closes the connection once the exchange under way has ended, and waits
// for that. Calls made afterwards fail with ErrClosed.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	busy := l.busy
	l.mu.Unlock()
	if busy != nil {
		<-busy
	}
	l.drop()
}

func fail(n int, err error) []Reply {
	rs := make([]Reply, n)
	for i := range rs {
		rs[i].Err = err
	}
	return rs
}

func (l *Line) run() {
	for {
		l.mu.Lock()
		batch := l.waiting
		l.waiting = nil
		if len(batch) == 0 {
			close(l.busy)
			l.busy = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.exchange(slices.Clone(batch))
		for _, b := range batch {
			close(b.done)
		}
	}
}

// exchange sends a batch and receives its replies.
func (l *Line) exchange(batch []*bundle) {
	if err := l.connect(); err != nil {
		for _, b := range batch {
			copy(b.replies, fail(len(b.calls), err))
		}
		return
	}
	l.mu.Lock()
	batch = slices.DeleteFunc(batch, func(b *bundle) bool {
		b.sent = !b.gone
		return b.gone
	})
	l.mu.Unlock()
	timeout := l.timeout
	for _, b := range batch {
		for _, c := range b.calls {
			timeout += time.Duration(c.size()) * time.Second / slowestLink
		}
	}
	var unloaded []*Reply // answered NOSCRIPT; their calls follow
	var whole []Call
	var flat []Call
	var into []*Reply
	for _, b := range batch {
		for i, c := range b.calls {
			flat = append(flat, c)
			into = append(into, &b.replies[i])
		}
	}
	l.roundTrip(flat, into, timeout)
	for i, r := range into {
		if flat[i].script != nil && isNoScript(r.Err) {
			unloaded = append(unloaded, r)
			whole = append(whole, flat[i].whole())
		}
	}
	if len(whole) > 0 {
		l.roundTrip(whole, unloaded, timeout)
		into = append(into, unloaded...)
	}
	for _, r := range into {
		if poisoned(r.Err) {
			l.drop()
			return
		}
	}
}

func isNoScript(err error) bool {
	e, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}

// roundTrip fills in the reply of each call.
func (l *Line) roundTrip(calls []Call, replies []*Reply, timeout time.Duration) {
	if l.conn == nil {
		for _, r := range replies {
			*r = Reply{Err: errLost}
		}
		return
	}
	lost := func(from int, err error) {
		l.drop()
		for _, r := range replies[from:] {
			*r = Reply{Err: fmt.Errorf("%w: %w", ErrUnknown, err)}
		}
	}
	for _, c := range calls {
		if err := l.conn.Send(c.name, c.args...); err != nil {
			lost(0, err)
			return
		}
	}
	if err := l.conn.Flush(); err != nil {
		lost(0, err)
		return
	}
	for i, r := range replies {
		v, err := redis.ReceiveWithTimeout(l.conn, timeout)
		if _, ok := errors.AsType[redis.Error](err); err != nil && !ok {
			lost(i, err)
			return
		}
		*r = Reply{v, err}
	}
	l.used = time.Now()
}

// connect makes sure that there is a connection that answers. What is sent on a
// link on which requests arrive and replies do not would be carried out, again
// and again, by a peer that hears nothing of it.
func (l *Line) connect() error {
	if l.conn != nil && l.conn.Err() != nil {
		l.drop() // aborted
	}
	if l.conn != nil && (!l.verify || time.Since(l.used) <= idleCheck) {
		return nil
	}
	if l.conn != nil && l.ping() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	conn, err := l.dial(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	return l.ping()
}

// ping drops a connection that does not answer.
func (l *Line) ping() error {
	var pong Reply
	l.roundTrip([]Call{Command("PING")}, []*Reply{&pong}, l.timeout)
	switch {
	case errors.Is(pong.Err, ErrUnknown):
		// Nothing but the PING is unknown.
		return fmt.Errorf("the connection does not answer: %s", strings.TrimPrefix(pong.Err.Error(), ErrUnknown.Error()+": "))
	case pong.Err != nil:
		l.drop()
	}
	return pong.Err
}

func (l *Line) drop() {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it has failed, or nobody wants it
	}
}
