package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

const (
	askShare    = 4                      // the fraction of the dial timeout in which a sentinel must answer
	retryFirst  = 100 * time.Millisecond // the first pause between tries to reach a master; pauses double
	retryMost   = 400 * time.Millisecond
	watchEvery  = time.Second
	mostLearned = 32 // sentinels learned from other sentinels
)

// sentinels follow one master. They connect to the server that the sentinels name, and close the
// connections when another is named: for ten seconds after a manual failover, the old master
// accepts writes, and all of them are lost.
type sentinels struct {
	name    string
	listed  []string         // addresses of sentinels, from the URL
	watcher redisconn.Server // how to dial a sentinel, without its address
	master  redisconn.Server // how to dial the master, without its address
	within  time.Duration    // for a sentinel to dial and answer
	kick    chan struct{}    // holds a value when the watch should ask now

	changed *atomic.Pointer[func()] // called when another server becomes the master

	mu        sync.Mutex            // protects the fields below
	learned   []string              // further sentinels, learned from those listed
	first     string                // the sentinel to believe first; "" for the first one listed
	kept      map[string]redis.Conn // to sentinels, while they aren't in use
	asking    *inquiry              // in progress; nil if there is none
	current   answer                // the master that is followed; its epoch falls only in chooseLocked
	replaced  context.Context       // ends when another server becomes the master
	replace   context.CancelFunc
	followers map[*follower]bool
	users     int                // dials in progress plus open connections
	stop      context.CancelFunc // of the watch, which runs while there are users
}

// newSentinels returns the sentinels that watch the named master. It does no I/O.
func newSentinels(name string, listed []string, watcher, master redisconn.Server, changed *atomic.Pointer[func()]) *sentinels {
	within := cmp.Or(watcher.Timeout, redisconn.DialTimeout) / askShare
	watcher.Timeout = within
	s := &sentinels{
		name: name, listed: listed, watcher: watcher, master: master, within: within, changed: changed,
		kick: make(chan struct{}, 1), kept: map[string]redis.Conn{}, followers: map[*follower]bool{},
	}
	s.replaced, s.replace = context.WithCancel(context.Background())
	return s
}

// An answer is the master that a sentinel names.
type answer struct {
	address string
	by      string // the sentinel
	epoch   int64  // of the sentinel's configuration; a higher one is newer
	run     string // the server's run id; "" if it isn't known
}

// replaces reports whether the answer names another server than an earlier one.
func (a answer) replaces(b answer) bool {
	return a.address != b.address && (a.epoch > b.epoch || a.run == "" || a.run != b.run)
}

// dial connects to the master. During a failover, when there is none, it retries until ctx ends, so
// that callers get the new master as soon as it's available. It doesn't retry when that can't help.
func (s *sentinels) dial(ctx context.Context) (redis.Conn, error) {
	s.enter()
	defer s.leave()
	var last error
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		conn, err := s.try(ctx)
		if err == nil {
			return conn, nil
		}
		if last == nil || ctx.Err() == nil { // otherwise the previous error is more specific
			last = err
		}
		if final(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-time.After(redisconn.Jitter(wait)):
		}
	}
}

// try makes a connection to the current master.
func (s *sentinels) try(ctx context.Context) (redis.Conn, error) {
	a, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	replaced := s.replaced
	s.mu.Unlock()
	reaching, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(replaced, cancel)() // leaves a hanging server as soon as another is promoted
	conn, err := s.reach(reaching, a.address)
	if err != nil {
		s.mu.Lock()
		s.first = s.afterLocked(a.by) // it may be cut off together with that server
		s.mu.Unlock()
		return nil, err
	}
	return s.follow(conn, a)
}

// final reports whether retrying soon can't help: the server, or every sentinel, has refused the
// login, or no sentinel knows the name.
func final(err error) bool {
	if of, ok := errors.AsType[*nobodyError](err); ok {
		return of.final
	}
	return redisconn.Refused(err)
}

// reach makes a connection to a server that reports that it is a master.
func (s *sentinels) reach(ctx context.Context, address string) (redis.Conn, error) {
	server := s.master
	server.Address = address
	conn, err := server.Dial(ctx)
	if err != nil {
		return nil, err
	}
	said, err := redis.Values(redis.DoContext(conn, ctx, "ROLE"))
	if redisconn.Denied(err) || redisconn.UnknownCommand(err) {
		return conn, nil // a write will show whether it's the master
	}
	var role string
	if err == nil && len(said) > 0 {
		role, err = redis.String(said[0], nil)
	}
	if err == nil && role != "master" {
		err = errors.New("it isn't a master yet")
	}
	if err != nil {
		_ = conn.Close() // it can't be used
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

var (
	errOlder    = errors.New("it knows only an older master")
	errReplaced = errors.New("another master was promoted in the meantime")
)

// follow tracks a connection, so that it's closed once its server is no longer the master.
// Connections to an earlier master are closed now, and then the OnChange function is called.
func (s *sentinels) follow(conn redis.Conn, a answer) (redis.Conn, error) {
	f := &follower{ConnWithTimeout: conn.(redis.ConnWithTimeout), of: s, address: a.address} // Server.Dial makes no others
	s.mu.Lock()
	if a.epoch < s.current.epoch {
		s.mu.Unlock()
		_ = conn.Close() // another goroutine has learned of a newer master
		return nil, fmt.Errorf("connect to %s: %w", a.address, errReplaced)
	}
	var cut []*follower
	before := s.current
	if s.current.epoch = a.epoch; a.replaces(before) {
		s.current = a
		s.replace()
		s.replaced, s.replace = context.WithCancel(context.Background())
		cut = s.cutLocked(func(f *follower) bool { return f.address != a.address })
	}
	s.followers[f] = true
	s.users++
	s.mu.Unlock()
	interrupt(cut)
	if tell := s.changed.Load(); tell != nil && a.replaces(before) && before.address != "" {
		(*tell)()
	}
	return f, nil
}

// cutLocked removes the selected connections, and returns them.
func (s *sentinels) cutLocked(meant func(*follower) bool) (cut []*follower) {
	for f := range s.followers {
		if meant(f) {
			cut = append(cut, f)
			delete(s.followers, f)
		}
	}
	return cut
}

// interrupt closes connections; their pending calls fail.
func interrupt(cut []*follower) {
	for _, f := range cut {
		redisconn.Interrupt(f.ConnWithTimeout)
	}
}

// enter runs the watch until each enter has been followed by a leave.
func (s *sentinels) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	if s.stop == nil {
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		go s.watch(ctx)
	}
}

func (s *sentinels) leave() {
	var idle map[string]redis.Conn
	s.mu.Lock()
	if s.users--; s.users == 0 {
		if s.stop != nil { // otherwise the watch has ended, and this is the connection that it was making
			s.stop()
			s.stop = nil
		}
		idle, s.kept = s.kept, map[string]redis.Conn{}
	}
	s.mu.Unlock()
	for _, c := range idle {
		_ = c.Close() // not needed anymore
	}
}

// watch asks one sentinel after the other whether there is a new master. Callers wouldn't find out
// themselves while they wait for a server that hangs, or get answers from one that was replaced.
func (s *sentinels) watch(ctx context.Context) {
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(redisconn.Jitter(watchEvery)):
		case <-s.kick:
		}
		s.mu.Lock()
		all := slices.Concat(s.listed, s.learned)
		s.mu.Unlock()
		for range all {
			if a, err := s.askOne(ctx, all[turn%len(all)], false); err == nil {
				s.consider(ctx, a)
				break
			}
			turn++
		}
		select { // limits how often it can be kicked
		case <-ctx.Done():
		case <-time.After(retryFirst):
		}
	}
}

// consider switches to the master in an answer, if the answer is newer and the server reports that
// it's a master.
func (s *sentinels) consider(ctx context.Context, a answer) {
	s.mu.Lock()
	other := a.epoch >= s.current.epoch && a.replaces(s.current)
	if !other && a.address == s.current.address {
		s.current.epoch = max(s.current.epoch, a.epoch)
	}
	s.mu.Unlock()
	if !other {
		return
	}
	conn, err := s.reach(ctx, a.address)
	if err == nil {
		conn, err = s.follow(conn, a)
	}
	if err == nil { // otherwise the next turn tries again
		_ = conn.Close() // not needed anymore
	}
}

// A follower is a connection to a master.
type follower struct {
	redis.ConnWithTimeout
	of      *sentinels
	address string
	closed  sync.Once
}

// heard handles a reply. If the server reports that it's no longer a master, all connections to it
// are closed. If it reports that it lacks replicas, it may have been replaced.
func (f *follower) heard(err error) {
	if err == nil {
		return
	}
	s := f.of
	switch {
	case redisconn.Demoted(err):
		s.mu.Lock()
		cut := s.cutLocked(func(o *follower) bool { return o.address == f.address })
		s.mu.Unlock()
		interrupt(slices.DeleteFunc(cut, func(o *follower) bool { return o == f })) // its user has the reply
	case redisconn.Postponed(err) == redisconn.Alone:
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}

func (f *follower) Close() error {
	err := f.ConnWithTimeout.Close()
	f.closed.Do(func() {
		f.of.mu.Lock()
		delete(f.of.followers, f)
		f.of.mu.Unlock()
		f.of.leave()
	})
	return err
}

// ReceiveWithTimeout is how a Line gets replies.
func (f *follower) ReceiveWithTimeout(d time.Duration) (any, error) {
	v, err := f.ConnWithTimeout.ReceiveWithTimeout(d)
	f.heard(err)
	return v, err
}

// A nobodyError explains why no sentinel names a master.
type nobodyError struct {
	all   []error
	final bool
}

func (e *nobodyError) Error() string {
	said := make([]string, len(e.all))
	for i, err := range e.all {
		said[i] = err.Error()
	}
	return "no sentinel names a master: " + strings.Join(said, "; ")
}

// Unwrap returns one of the errors, preferably a failed connection: if some sentinels refuse the
// login, other sentinels may accept it.
func (e *nobodyError) Unwrap() error {
	if at := slices.IndexFunc(e.all, func(err error) bool { return !redisconn.Answered(err) }); at >= 0 {
		return e.all[at]
	}
	return e.all[0]
}

// addressOf returns the host and port in an answer of a sentinel.
func addressOf(host, port string) (string, error) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", errors.New("its answer isn't an address")
	}
	return net.JoinHostPort(host, port), nil
}
