package store

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

// ErrClosed is the error of calls after the connections were closed.
var ErrClosed = redisconn.ErrClosed

// DefaultTimeout is that of calls where none is given.
const DefaultTimeout = redisconn.DefaultTimeout

// MaxName is the longest allowed name of a queue, or prefix, in bytes.
const MaxName = keys.MaxName

// CheckName reports why name cannot be the name of a queue.
func CheckName(name string) error { return keys.CheckName(name) }

// CheckPrefix reports why prefix cannot be a namespace.
func CheckPrefix(prefix string) error { return keys.CheckPrefix(prefix) }

// A Dial makes a connection.
type Dial = redisconn.Dial

// DialURL returns a Dial for the Redis at a URL, with TLS as configured.
func DialURL(url string, config *tls.Config) (Dial, error) {
	return redisconn.FromURLWithTLS(url, config)
}

// Address is where the Redis at a URL is, for people.
func Address(url string) string { return redisconn.Address(url) }

// DialPool returns one for the connections of a pool, and for how many of them there may be
// rounds.
func DialPool(pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}) (dial Dial, lanes int) {
	if _, dials := pool.(*redis.Pool); dials {
		return redisconn.FromPool(pool), Lanes
	}
	return redisconn.FromPool(pool), pooledLanes
}

// How many rounds of a queue may be under way at once where Redis is far away, each on a
// connection of its own. Those of a Pool may be few, and others wait for them.
const (
	Lanes       = 4
	pooledLanes = 2
)

// Lines are the connections of a peer.
type Lines struct {
	Calls   *redisconn.Line        // what producers and read-outs send
	Work    [Lanes]*redisconn.Line // rounds: the others, while one is under way on the first
	Control *redisconn.Line        // beats, joins, leaves: never behind payloads
	Sub     *redisconn.Subscriber
	Lanes   int // of Work, that may be used
}

// Lane is the connection for a round beside which no other of the queue is under way: the
// one on which it does not have to wait for those of other queues.
func (l *Lines) Lane() int {
	if !l.Work[0].Free() && l.Work[1].Ready() && l.Work[1].Free() {
		return 1
	}
	return 0
}

// Ready reports whether the connection for rounds is there. If it isn't, it is made in the
// background.
func (l *Lines) Ready(lane int) bool { return l.Work[lane].Ready() }

// Silent reports whether Redis has given no sign of life on the connections for rounds.
func (l *Lines) Silent() bool {
	return !slices.ContainsFunc(l.Work[:], func(w *redisconn.Line) bool { return !w.Silent() })
}

// NewLines returns the connections, which are made when they are first used. Calls wait
// for timeout, and those of control for a heartbeat. From then on the log knows by an error
// that Redis is away.
func NewLines(dial Dial, lanes int, log *logs.Log, timeout, beat time.Duration) *Lines {
	log.Away, log.Answered, dial = redisconn.Away, redisconn.Answered, redisconn.Marked(dial)
	l := &Lines{
		Calls:   redisconn.NewLine(dial, timeout).Verified(),
		Control: redisconn.NewLine(dial, beat),
		Sub:     redisconn.NewSubscriber(dial, log),
		Lanes:   lanes,
	}
	for lane := range l.Work {
		l.Work[lane] = redisconn.NewLine(dial, timeout)
	}
	return l
}

// Abort ends what is under way for who serves queues.
func (l *Lines) Abort() {
	var all sync.WaitGroup
	defer all.Wait()
	for _, w := range l.Work {
		all.Go(w.Abort)
	}
	all.Go(l.Control.Abort)
}

// Close closes the connections. It waits until what is under way has ended.
func (l *Lines) Close() {
	l.Sub.Close()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(l.Calls.Close)
	for _, w := range l.Work {
		all.Go(w.Close)
	}
	all.Go(l.Control.Close)
}
