package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Stream is one connection for calls of many senders, who don't wait for each other's answers.
// Calls are made in the order in which they are sent, also across connections: while some that were
// lost are reported, nothing else is sent. A Stream dials when it has something to send, and has no
// goroutine when nothing is in flight. It is safe for concurrent use.
type Stream struct {
	dial    Dial
	timeout time.Duration // time without a sign of life from Redis after which calls fail
	routed  bool          // the connection leads to a node of a cluster
	renew   time.Duration // the age at which the connection is replaced; 0 is never
	alive   life

	mu      sync.Mutex       // protects the fields below
	queue   []*bunch         // not written yet
	flight  []*bunch         // being written, or written and not answered
	written int              // how many in flight are written
	conn    redis.Conn       // changed only by run
	made    time.Time        // when conn was made; zero if there is none
	due     time.Time        // when conn is to be replaced
	known   map[*Script]bool // scripts that were sent on conn, so that the server knows them
	broken  error            // why nothing more can be written on conn
	spent   bool             // conn is replaced once nothing is in flight
	dialed  time.Time        // when the last dial began
	forgo   func()           // ends the last dial; nil before the first
	running bool             // run is
	reading bool             // it waits for a reply
	writing bool             // some goroutine writes
	wrote   *sync.Cond       // it has written something, or has ended
	idle    chan struct{}    // closed when run ends; nil if nobody waits for that
	closed  bool
}

// A bunch is the calls of one Send.
type bunch struct {
	calls   []Call
	size    int // bytes
	stale   func() bool
	err     error // why it wasn't written
	replies []Reply
	done    func([]Reply)
}

var errStale = errors.New("an earlier call failed")

const (
	flushSize = 64 << 10              // what gathers in one write, in bytes
	dialPause = 20 * time.Millisecond // from one dial to the next, so that no sender makes the stream spin
)

// NewStream returns a Stream over connections made by dial. If Redis gives no sign of life for the
// timeout, all calls in flight fail; zero is DefaultTimeout. Large payloads get more time. On a pool's
// connections, only a complete reply is a sign of life.
func NewStream(dial Dial, timeout time.Duration) *Stream {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	timeout = min(timeout, longest)
	s := &Stream{dial: dial, timeout: timeout, alive: life{timeout: timeout}}
	s.wrote = sync.NewCond(&s.mu)
	return s
}

// Renewed makes the stream replace each connection before it gets older than every, as long as it is used. It
// returns the stream. Zero is never.
func (s *Stream) Renewed(every time.Duration) *Stream {
	s.renew = every
	return s
}

// Routed marks the stream as one to a node of a cluster, as Line.Routed does, and returns it.
func (s *Stream) Routed() *Stream {
	s.routed = true
	return s
}

// Silent reports whether Redis has given no sign of life for the timeout of the stream.
func (s *Stream) Silent() bool { return s.alive.since() >= s.timeout }

// Heard returns how long ago Redis last gave a sign of life on the stream.
func (s *Stream) Heard() time.Duration { return s.alive.since() }

// Made returns when the stream was connected, or the zero time if it isn't, as far as is known.
func (s *Stream) Made() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Send makes calls, behind all that were sent before, and doesn't block. It calls done once, with a
// reply for each call, in the order of the Sends. done runs on a goroutine that all senders share, never
// within Send; it must not block, and may call Send.
//
// When the connection breaks, everything fails that was sent until then: with ErrUnknown if it may
// have been carried out. What is sent by done, or after that, is made on the next connection.
//
// Unless it is nil, stale is asked shortly before the calls are written, on any goroutine. If it
// returns true, they aren't made, and fail in their turn.
//
// The arguments must not change until done is called.
func (s *Stream) Send(calls []Call, stale func() bool, done func([]Reply)) {
	b := &bunch{calls: calls, stale: stale, done: done}
	for i := range calls {
		b.size += calls[i].size()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, b)
	switch {
	case !s.running:
		s.running = true
		go s.run()
	case s.reading && s.mayWriteLocked():
		s.writing = true
		go s.write()
	}
}

// Abort closes the connection, whatever is in progress, so that everything that was sent fails, and returns.
// A pool's connection can't be closed while it is in use, so those calls time out.
func (s *Stream) Abort() {
	s.mu.Lock()
	conn := s.conn
	if s.forgo != nil {
		s.forgo()
	}
	s.mu.Unlock()
	if conn != nil {
		Interrupt(conn) // run finds it closed
	}
}

// Close closes the connection once all that is written is answered, and waits for that, but not longer than the
// timeout. Everything else fails with ErrClosed. Don't call it in done.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	if s.forgo != nil {
		s.forgo()
	}
	idle := over
	if s.running {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle = s.idle
	}
	s.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(s.timeout + lastWord):
	}
	s.mu.Lock()
	conn, running := s.conn, s.running
	s.mu.Unlock()
	switch {
	case !running:
		s.drop()
	case conn != nil:
		Interrupt(conn) // run drops it
	}
}

// run writes and reads until nothing is left.
func (s *Stream) run() {
	for more := true; more; more = s.more() {
		err := s.connect()
		if err == nil {
			err = s.exchange()
		}
		if err != nil {
			s.lose(err)
		}
	}
}

// more reports whether run goes on. Nothing is in flight.
func (s *Stream) more() bool {
	s.mu.Lock()
	useless := s.spent || s.closed
	s.mu.Unlock()
	if useless {
		s.drop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		return true
	}
	s.running = false
	if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	return false
}

// mayWriteLocked reports whether a goroutine may begin to write what is queued.
func (s *Stream) mayWriteLocked() bool {
	return len(s.queue) > 0 && !s.writing && s.openLocked()
}

// openLocked reports whether the connection accepts more.
func (s *Stream) openLocked() bool {
	return s.broken == nil && !s.spent && !s.closed && !s.isDueLocked()
}

func (s *Stream) isDueLocked() bool { return s.renew > 0 && time.Now().After(s.due) }

// exchange writes and reads until nothing is in flight, and nothing is left or the connection accepts no more.
func (s *Stream) exchange() error {
	for {
		b, err := s.first()
		if err == nil && b != nil {
			err = s.read(b)
		}
		if err != nil || b == nil {
			return err
		}
		b.done(b.replies)
	}
}

// first returns the oldest bunch in flight once it is written; nil if there is none. If nothing is in
// flight, run writes itself, which saves a goroutine.
func (s *Stream) first() (*bunch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken != nil:
			return nil, s.broken
		case s.written > 0:
			if s.mayWriteLocked() {
				s.writing = true
				go s.write()
			}
			s.reading = true
			return s.flight[0], nil
		case s.writing:
			s.wrote.Wait()
		case s.mayWriteLocked():
			s.writing = true
			s.mu.Unlock()
			s.write()
			s.mu.Lock()
		default:
			return nil, nil
		}
	}
}

// write writes what is queued.
func (s *Stream) write() {
	for {
		conn, some := s.take()
		if len(some) == 0 {
			return
		}
		err := s.put(conn, some)
		s.mu.Lock()
		s.written, s.broken = len(s.flight), cmp.Or(s.broken, err)
		s.mu.Unlock()
		s.wrote.Signal()
	}
}

// take returns what to put into one write; if nothing, the caller has ended writing. What it returns
// counts as in flight: from now on, it may be carried out.
func (s *Stream) take() (conn redis.Conn, some []*bunch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing = len(s.queue) > 0 && s.openLocked(); !s.writing {
		s.wrote.Signal()
		return nil, nil
	}
	n := 0
	for size := 0; n < len(s.queue) && size < flushSize; n++ {
		size += s.queue[n].size
	}
	some = s.queue[:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil // it would keep the calls in memory
	}
	s.flight = append(s.flight, some...)
	return s.conn, some
}

// put writes some bunches with one flush.
func (s *Stream) put(conn redis.Conn, some []*bunch) error {
	for _, b := range some {
		if b.stale != nil && b.stale() {
			b.err = errStale
			continue
		}
		for i := range b.calls {
			cmd := commandOf(&b.calls[i])
			cmd.whole = s.isNew(b.calls[i].script)
			if err := cmd.send(conn); err != nil {
				return err
			}
		}
	}
	return conn.Flush()
}

// isNew reports whether a call must contain the script's source, which makes the server know it: if the
// server didn't know the digest, the call would come after those behind it.
func (s *Stream) isNew(script *Script) bool {
	if script == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is := !s.known[script]
	s.known[script] = true
	return is
}

// read reads the replies of the oldest bunch in flight.
func (s *Stream) read(b *bunch) error {
	b.replies = make([]Reply, 0, len(b.calls))
	if b.err != nil {
		b.fail(b.err)
		s.answered(nil)
		return nil
	}
	timeout := s.patience()
	for i := range b.calls {
		v, err := redis.ReceiveWithTimeout(s.conn, timeout)
		if err != nil {
			if !Answered(err) {
				return err
			}
			err = placed(Discreet(err, commandOf(&b.calls[i]).told()...), s.routed)
		}
		s.alive.sign()
		b.replies = append(b.replies, Reply{v, err})
	}
	s.answered(b.replies)
	return nil
}

// patience returns how long to wait for a reply: what is in flight may still be on its way.
func (s *Stream) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, b := range s.flight {
		size += b.size
	}
	return s.timeout + time.Duration(size)*time.Second/slowestLink
}

// answered records that the oldest bunch has its replies, and what they say about the connection.
func (s *Stream) answered(replies []Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = false
	s.written--
	s.flight = slices.Delete(s.flight, 0, 1)
	for _, r := range replies {
		if Unloaded(r.Err) {
			clear(s.known) // someone has flushed the scripts; the sender repeats the calls
		}
		s.spent = s.spent || poisoned(r.Err) && !harmless(r.Err, s.routed)
	}
}

// fail adds the error as the reply of all calls that have none.
func (b *bunch) fail(err error) {
	for len(b.replies) < len(b.calls) {
		b.replies = append(b.replies, Reply{Err: err})
	}
}

// lose closes the connection, and fails everything that was sent.
func (s *Stream) lose(err error) {
	s.mu.Lock()
	conn := s.conn
	s.broken = err
	s.reading = false
	s.mu.Unlock()
	if conn != nil {
		Interrupt(conn) // so that a write ends
	}
	s.mu.Lock()
	for s.writing {
		s.wrote.Wait()
	}
	lost, unsent := s.flight, s.queue
	s.flight, s.queue, s.written = nil, nil, 0
	s.mu.Unlock()
	s.drop()
	for _, b := range lost {
		b.fail(cmp.Or(b.err, fmt.Errorf("%w: %w", ErrUnknown, err)))
	}
	if conn != nil {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	for _, b := range unsent {
		b.fail(err)
	}
	for _, b := range slices.Concat(lost, unsent) {
		b.done(b.replies)
	}
}

// drop closes the connection.
func (s *Stream) drop() {
	s.mu.Lock()
	conn := s.conn
	s.conn, s.made, s.broken, s.spent = nil, time.Time{}, nil, false
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it has failed, or isn't needed anymore
	}
}

// connect ensures that there is a connection that accepts calls. Nothing is in flight.
func (s *Stream) connect() error {
	s.mu.Lock()
	conn, closed, due := s.conn, s.closed, s.isDueLocked()
	s.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case conn == nil:
	case conn.Err() != nil: // it was aborted
		s.drop()
		conn = nil
	case !due:
		return nil
	}
	fresh, err := s.open()
	now := time.Now()
	if err != nil {
		if conn != nil { // it's still good for a while
			s.mu.Lock()
			s.due = now.Add(min(s.renew, renewAgain))
			s.mu.Unlock()
			return nil
		}
		return err
	}
	s.drop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.made, s.due, s.known = fresh, now, now.Add(Jitter(s.renew)), map[*Script]bool{}
	return nil
}

// open makes a connection that answers. If requests arrived but replies didn't, calls would be
// carried out, again and again, and the peer would never know.
func (s *Stream) open() (redis.Conn, error) {
	until := time.Now().Add(s.timeout)
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), lifeKey{}, &s.alive), until)
	defer cancel()
	s.mu.Lock()
	closed, pause := s.closed, time.Until(s.dialed.Add(dialPause))
	s.forgo = cancel
	s.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.dialed = time.Now()
	s.mu.Unlock()
	conn, err := s.dial(ctx)
	if err == nil {
		if err = ping(conn, max(time.Until(until), time.Millisecond)); Usable(err) {
			s.alive.sign()
			return conn, nil
		}
		_ = conn.Close() // useless
		if Answered(err) {
			return nil, placed(Discreet(err), s.routed)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return nil, &absentError{err}
}

// ping asks whether a new connection answers.
func ping(conn redis.Conn, within time.Duration) error {
	if err := errors.Join(conn.Send("PING"), conn.Flush()); err != nil {
		return err
	}
	_, err := redis.ReceiveWithTimeout(conn, within)
	return err
}
