package worqrtest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
)

// A Peer is a peer on an in-memory Redis, with methods that break its connections. It's closed when
// the test ends.
type Peer struct {
	*worqr.Peer
	t     testing.TB
	redis *Redis
	link  link
}

// Peer returns a peer. Opts may be nil. Several peers of one Redis are a fleet, unless their options
// have different prefixes. Without a Logger, warnings and errors go to the test's log.
func (r *Redis) Peer(opts *worqr.Options) *Peer {
	r.t.Helper()
	var o worqr.Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	o.Lease = cmp.Or(o.Lease, r.lease)
	p := &Peer{t: r.t, redis: r, link: link{dial: r.dial, conns: map[*conn]bool{}}}
	p.Peer = worqr.New(&redis.Pool{DialContext: p.dial}, &o)
	r.t.Cleanup(func() {
		p.link.repair() // otherwise Close would have to wait for Redis
		if err := p.Close(); err != nil {
			r.t.Log(err) // a test need not undo every fault
		}
	})
	return p
}

// A steady connection needs no pings, since it never fails silently: what a Pause holds back arrives later.
type steady struct{ redis.ConnWithTimeout }

func (steady) Steady() {}

func (p *Peer) dial(ctx context.Context) (redis.Conn, error) {
	conn, err := over(p.link.connect)(ctx)
	if err != nil {
		return nil, err
	}
	return steady{conn.(redis.ConnWithTimeout)}, nil // the driver's are
}

// Serve runs the peer until the test ends or stop is called; then it drains. The test fails if Run
// does, but not if the peer only had no time to leave its queues: the machine is slow, or the peer paused.
func (p *Peer) Serve() (stop func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		switch err := <-ran; {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded) && p.Stats().StuckHandlers == 0:
			p.t.Logf("Run: %v", err)
		default:
			p.t.Errorf("Run: %v", err)
		}
	})
	p.t.Cleanup(func() {
		p.link.repair()
		stop()
	})
	return stop
}

// Crash cuts the peer off for good, as if its process had been killed: nothing that it does reaches
// Redis anymore. Once its lease has expired, or FailWorker is called, others take over its tasks.
// Its handlers keep running, since a goroutine can't be killed.
func (p *Peer) Crash() { p.link.crash() }

// Pause holds back everything the peer sends and receives until Resume, as if its process had
// stopped or the network was down. Its handlers keep running.
func (p *Peer) Pause() { p.link.setPaused(true) }

// Resume ends a Pause, and delivers what was held back.
func (p *Peer) Resume() { p.link.setPaused(false) }

// LoseReply loses the reply to the next call that contains text, such as a payload or a worker's
// id; "" is any call, even a heartbeat. Redis carries out the call, and the connection breaks. A
// call that isn't safe to repeat then fails with worqr.ErrUnknownOutcome.
func (p *Peer) LoseReply(text string) {
	p.t.Helper()
	p.redis.load()
	p.link.lose(text)
}
