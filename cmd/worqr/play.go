package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redisconn"
)

const (
	peers   = 3
	samples = 60 // along the time line

	// The lease is the library's default; in short demos, a fraction of the time.
	longest = 3 * time.Second
	shorter = 0.22

	// The same goes for the pause before a first retry, which is shorter than the default.
	longestPause = time.Second
	shorterPause = 0.05
)

// A play is one run of the demo.
type play struct {
	total   time.Duration
	broker  *broker
	peer    *worqr.Peer // enqueues, cancels and observes; serves nothing
	queue   *worqr.Queue
	tally   *tally
	crew    *crew
	journal *journal
	stage   stage
	fenced  chan struct{} // closed when the eviction was reported
	ahead   time.Duration // how far the clock of Redis is ahead
	address string        // a file that is missing until the invoice is repaired
	fail    context.CancelCauseFunc

	children []*child // by number, from 1
	comeback comeback
}

// fence is a payload that is canceled, and never enqueued: its event shows that
// all earlier events have arrived.
var fence = []byte("the end")

// show runs the demo. If it fails, it returns the notes, too.
func (c *demoCommand) show(ctx context.Context, on stage) (s summary, story []note, err error) {
	b, err := openBroker(c.Redis)
	if err != nil {
		return s, nil, err
	}
	defer b.close()
	peer, err := worqr.Open(b.url, &worqr.Options{Prefix: b.prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return s, nil, err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	dir, err := os.MkdirTemp("", "worqr-demo-")
	if err != nil {
		return s, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := &play{
		address: filepath.Join(dir, "address"),
		total:   time.Duration(c.Seconds * float64(time.Second)),
		broker:  b, peer: peer, queue: peer.Queue(demoQueue),
		tally: newTally(), crew: newCrew(peers),
		journal: &journal{began: time.Now(), tell: on.note},
		stage:   on, fenced: make(chan struct{}),
	}
	if err := p.reach(ctx); err != nil {
		return s, nil, err
	}
	defer func() { err = errors.Join(err, b.clean()) }()
	s, err = p.run(ctx)
	return s, p.journal.all(), err
}

// errUser reports which permissions the demo needs: the users of docs/security.md may use only one
// prefix.
var errUser = errors.New("this Redis user lacks permissions: the demo needs the keys worqr-demo-*, all channels and SCAN; without REDIS_URL and --redis, it uses an in-memory Redis")

// reach checks that there is a Redis that lets the demo work and clean up, before it starts.
func (p *play) reach(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err = p.queue.Len(ctx); err == nil {
		p.ahead, err = p.broker.ahead(ctx)
	}
	if err == nil {
		err = p.broker.sweeps(ctx)
	}
	if errors.Is(err, worqr.ErrDenied) || redisconn.Denied(err) {
		return errUser
	}
	if err != nil {
		return fmt.Errorf("cannot use Redis: %w", err)
	}
	return nil
}

// run plays the whole story. The observers continue until the last peer has left.
func (p *play) run(outer context.Context) (summary, error) {
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	p.fail = fail
	looking, leave := context.WithCancel(context.WithoutCancel(ctx))
	var lookers sync.WaitGroup
	defer lookers.Wait()
	defer leave()

	err := p.open(ctx, looking, &lookers)
	if err == nil {
		err = p.act(ctx)
	}
	if err != nil && outer.Err() != nil {
		p.journal.add(plain, "", "interrupted: the peers finish what they can, and leave")
		err = nil
	}
	err = errors.Join(err, p.dismiss())
	if err != nil {
		return summary{}, err
	}
	closing, cancel := context.WithTimeout(looking, patience)
	defer cancel()
	return p.settle(closing)
}

// open starts the observers and the peers.
func (p *play) open(ctx, looking context.Context, lookers *sync.WaitGroup) error {
	reach, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	listening := make(chan struct{})
	lookers.Go(func() { p.listen(looking, listening) })
	lookers.Go(func() { p.paint(looking) })
	select {
	case <-listening:
	case <-reach.Done():
		return fmt.Errorf("cannot subscribe: %w", context.Cause(reach))
	}
	as := peerCommand{
		Redis: p.broker.url, Prefix: p.broker.prefix, Address: p.address,
		Lease: min(longest, time.Duration(shorter*float64(p.total))),
		Pause: min(longestPause, time.Duration(shorterPause*float64(p.total))),
	}
	for n := range peers {
		c, err := spawn(n+1, as, p.hear, p.fail)
		if err != nil {
			return err
		}
		p.children = append(p.children, c)
	}
	return p.assemble(ctx)
}

// assemble waits until all peers serve the queue.
func (p *play) assemble(ctx context.Context) error {
	numbers := map[string]int{}
	for n := range peers {
		numbers[peerName(n+1)] = n + 1
	}
	return every(ctx, 10*time.Millisecond, func() (bool, error) {
		there := 0
		for w, err := range p.peer.Workers(ctx) {
			if err != nil {
				return false, err
			}
			if n := numbers[w.Name]; n > 0 && len(w.Queues) > 0 {
				p.crew.is(w.ID, n)
				there++
			}
		}
		if there == peers {
			p.journal.add(plain, "", "three peers serve the queue, each a process of its own")
		}
		return there == peers, nil
	})
}

// dismiss makes all peers leave at the same time.
func (p *play) dismiss() error {
	errs := make([]error, len(p.children))
	var leaving sync.WaitGroup
	for i, c := range p.children {
		leaving.Go(func() { errs[i] = c.leave() })
	}
	leaving.Wait()
	return errors.Join(errs...)
}

// settle looks for remaining tasks once all peers have left, and adds up the results.
func (p *play) settle(ctx context.Context) (summary, error) {
	if _, err := p.queue.Cancel(ctx, fence); err != nil {
		return summary{}, err
	}
	select {
	case <-p.fenced:
	case <-ctx.Done():
		p.tally.gap()
	}
	left := func(payload []byte, waits bool) {
		if j, err := readJob(payload); err == nil {
			p.tally.left(j.id, waits)
		}
	}
	for payload, err := range p.queue.Tasks(ctx) {
		if err != nil {
			return summary{}, err
		}
		left(payload, true)
	}
	for t, err := range p.queue.Running(ctx) {
		if err != nil {
			return summary{}, err
		}
		left(t.Payload, false)
	}
	for t, err := range p.queue.Failed(ctx) {
		if err != nil {
			return summary{}, err
		}
		if j, err := readJob(t.Payload); err == nil {
			p.tally.stuck(j.id)
		}
	}
	return p.tally.sum(), nil
}
