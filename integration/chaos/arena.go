package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

const prefix = "chaos"

// options are what a run is told.
type options struct {
	campaign string
	seed     uint64
	dir      string // of histories
	peers    int
	lease    time.Duration
	kills    int
	zombies  int
	stalls   int
	cuts     int
	restarts int
	fsync    durability
	span     time.Duration // of what has no number
	engine   engine
	strict   bool // the times that are promised are demanded
}

// A setup is what a campaign wants of an arena.
type setup struct {
	durability durability
	everywhere bool     // the server hears on all addresses
	users      []string // that the server knows, as arguments
	spec       peerSpec // what is zero there gets a default
	// where a peer finds the server, and the command that starts it
	place   func(*arena) (func(slot int) (url string, before []string), error)
	alive   bool // no peer is touched: none may be failed
	cut     bool // peers are cut off, so they may be failed at any time
	forgets bool // Redis may forget what it has acknowledged
	tail    time.Duration
}

// An arena is one Redis and one fleet, upon which the faults of a campaign come.
// Arenas share nothing, so that several may be had at once.
type arena struct {
	options
	setup
	dice    *rand.Rand
	dir     string
	server  *server
	stand   *redistest.Stand
	site    site // instead of the server; nil if there is one
	tls     files
	fleet   *fleet
	journal *journal
	report  *report
	cleanup []func()
}

// play has faults come upon an arena, lets it come to rest, and judges what was
// written down.
func play(o options, number int, s setup, faults func(*arena) error) *report {
	a := &arena{options: o, setup: s, report: &report{}, dice: rand.New(rand.NewPCG(o.seed, uint64(number)))}
	a.dir = filepath.Join(o.dir, fmt.Sprintf("%s-%d", o.campaign, number))
	a.stand = &redistest.Stand{Dir: a.dir}
	defer func() {
		for _, f := range a.cleanup {
			f()
		}
		if err := a.stand.End(); err != nil {
			a.report.violate("arena %s: %v", a.dir, err)
		}
	}()
	if err := a.play(faults); err != nil {
		a.report.violate("arena %s: %v", a.dir, err)
	}
	return a.report
}

func (a *arena) play(faults func(*arena) error) error {
	if err := a.open(); err != nil {
		return err
	}
	if err := faults(a); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	// The faults are over, and from here on everything must come to an end.
	pause(a.tail)
	if err := a.fleet.quiet(); err != nil {
		return err
	}
	if err := a.settle(); err != nil {
		a.report.violate("it does not come to rest: %v", err)
	}
	if err := a.health("while the fleet lives"); err != nil {
		return err
	}
	for _, c := range a.fleet.end() {
		a.report.violate("%s", c)
	}
	if err := a.health("once all have left"); err != nil {
		return err
	}
	if err := a.leftovers(); err != nil {
		return err
	}
	if err := a.denials(); err != nil {
		return err
	}
	if a.server != nil {
		if err := a.server.note(); err != nil {
			return err
		}
		a.report.Slowest = a.server.slowest
		a.server.stop()
	}
	return a.judge()
}

// queues are those of the peers.
func (a *arena) queues() []string {
	if a.spec.Queues == nil {
		return []string{"slow", "fast"}
	}
	return a.spec.Queues
}

// open starts the servers and the fleet.
func (a *arena) open() (err error) {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	if err := a.begin(); err != nil {
		return err
	}
	if a.journal, err = openJournal(filepath.Join(a.dir, "driver"+journalEnding)); err != nil {
		return err
	}
	a.cleanup = append(a.cleanup, watch(a.lease, a.journal.say), a.journal.close)
	spec := a.spec
	spec.Prefix, spec.Dir, spec.Seed, spec.Lease, spec.TLS = prefix, a.dir, a.seed, a.lease, a.tls
	if spec.Concurrency == 0 {
		spec.Concurrency = 8
	}
	spec.Queues = a.queues()
	if spec.Nap == 0 {
		spec.Nap = 300 * time.Millisecond
	}
	if spec.Every == 0 {
		spec.Every, spec.Batch = 150*time.Millisecond, 3
	}
	a.spec = spec
	place := func(int) (string, []string) { return a.peerURL(), nil }
	if a.setup.place != nil {
		if place, err = a.place(a); err != nil {
			return err
		}
	}
	a.fleet, err = newFleet(spec, a.peers, a.journal, place)
	a.cleanup = append([]func(){a.fleet.destroy}, a.cleanup...)
	return err
}

// settle waits until nothing waits, nothing runs, and all who died are failed. The
// time that takes is no promise; it is only not to hang.
func (a *arena) settle() error {
	observer, err := a.observer()
	if err != nil {
		return err
	}
	defer func() { _ = observer.Close() }() // it has nothing to lose
	var last error
	for end, still := time.Now().Add(2*time.Minute), 0; time.Now().Before(end); {
		busy := false
		for _, name := range a.spec.Queues {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			s, err := observer.Queue(name).Stats(ctx)
			cancel()
			if err == nil && (s.Waiting+s.Scheduled+s.Running > 0 || s.Workers != len(a.fleet.members)) {
				err = fmt.Errorf("queue %s: %+v", name, s)
			}
			if err != nil {
				busy, last = true, err
			}
		}
		if still++; busy {
			still = 0
		}
		if still == 3 { // a retry may be between two places that are read one after the other
			return nil
		}
		pause(50 * time.Millisecond) // between two looks
	}
	return fmt.Errorf("after two minutes: %w", last)
}

// judge reads what was written down.
func (a *arena) judge() error {
	events, err := readJournals(a.dir)
	if err != nil {
		return err
	}
	e := &evidence{events: events, arena: a}
	if e.confessed, err = a.confessed(); err != nil {
		return err
	}
	if a.durability.ordered() && a.server != nil {
		paths, err := a.server.history()
		if err != nil {
			return err
		}
		if len(paths) == 0 {
			return errors.New("the server has written no history")
		}
		e.order = newReplay(prefix)
		if err := readCommits(paths, e.order.apply); err != nil {
			return err
		}
	}
	e.judge(a.report)
	return nil
}

// several plays arenas at once, and adds up their reports.
func several(n int, one func(number int) *report) *report {
	sum := &report{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r := one(i)
			mu.Lock()
			defer mu.Unlock()
			sum.add(r)
		})
	}
	all.Wait()
	return sum
}

// pause is time between two faults; nothing is expected to have happened after it.
func pause(d time.Duration) { time.Sleep(d) }

// between throws a time.
func (a *arena) between(low, high time.Duration) time.Duration { return low + upTo(a.dice, high-low+1) }

// awake throws a slot whose peer serves and does not stand still; -1 if there is none.
func (a *arena) awake() int {
	for _, slot := range a.dice.Perm(len(a.fleet.members)) {
		if m := a.fleet.members[slot]; m.serves() && !m.asleep {
			return slot
		}
	}
	return -1
}
