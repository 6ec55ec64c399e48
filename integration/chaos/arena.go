package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

const prefix = "chaos"

// options are the flags of a run.
type options struct {
	campaign string
	seed     uint64
	dir      string // for histories
	peers    int
	lease    time.Duration
	kills    int
	zombies  int
	stalls   int
	cuts     int
	restarts int
	fsync    durability
	span     time.Duration // for campaigns without a number of faults
	strict   bool          // check the guaranteed times without an allowance for a busy machine
}

// A setup is the arena that a campaign needs.
type setup struct {
	durability durability
	everywhere bool        // the server listens on all addresses
	tls        bool        // the server and the peers have certificates
	spec       load.Config // zero fields get a default
	// returns the URL for a peer, and the command that starts it
	place   func(*arena) func(slot int) (url string, before []string)
	alive   bool // no peer is harmed: none may be evicted
	cut     bool // peers are cut off, so they may be evicted at any time
	forgets bool // Redis may lose acknowledged writes
	tail    time.Duration
}

// An arena is one Redis server and one fleet, to which a campaign applies its faults. Arenas share
// nothing, so several can run at the same time.
type arena struct {
	options
	setup
	t         testing.TB
	dice      *rand.Rand
	dir       string
	server    *server
	url       string // for peers
	authority *redistest.Authority
	fleet     *fleet
	journal   *journal
	report    *report
}

// play applies faults to an arena, waits until it is idle, and judges the record.
func play(o options, number int, s setup, faults func(*arena)) *report {
	a := &arena{options: o, setup: s, report: &report{}, dice: rand.New(rand.NewPCG(o.seed, uint64(number)))}
	a.dir = filepath.Join(o.dir, fmt.Sprintf("%s-%d", o.campaign, number))
	err := redistest.Outside(func(t testing.TB) {
		a.t = t
		a.play(faults)
	})
	if err != nil {
		a.report.violate("arena %s: %v", a.dir, err)
	}
	return a.report
}

func (a *arena) play(faults func(*arena)) {
	a.open()
	faults(a)
	// The faults have ended; from here on all tasks must end.
	pause(a.tail)
	a.fleet.quiet()
	if err := a.settle(); err != nil {
		a.report.violate("the fleet does not become idle: %v", err)
	}
	a.health("while the fleet lives")
	for _, c := range a.fleet.end() {
		a.report.violate("%s", c)
	}
	a.health("once all have left")
	a.leftovers()
	a.server.note()
	a.report.Slowest = a.server.slowest
	a.server.end()
	a.judge()
}

// open starts the server and the fleet.
func (a *arena) open() {
	peertest.Must(a.t, os.MkdirAll(a.dir, 0o700))
	args := durable[a.durability]
	if a.everywhere {
		args = slices.Concat(args, []string{"--bind", "0.0.0.0"})
	}
	var env []string
	if a.tls {
		a.authority = redistest.NewAuthority(a.t)
		env = append(env, a.authority.Env(a.t))
	}
	a.server = startServer(a.t, filepath.Join(a.dir, "redis"), a.authority, args)
	a.admit()
	file := redistest.Sure(os.Create(filepath.Join(a.dir, "history.jsonl")))(a.t)
	a.t.Cleanup(func() { _ = file.Close() }) // each line is already written
	a.journal = &journal{file: file}
	a.t.Cleanup(load.Watch(a.lease, a.journal.say))
	spec := a.spec
	spec.Prefix, spec.Seed, spec.Lease, spec.Added = prefix, a.seed, a.lease, true
	if spec.Concurrency == 0 {
		spec.Concurrency = 8
	}
	if spec.Queues == nil {
		spec.Queues = []string{"slow", "fast"}
	}
	if spec.Nap == 0 {
		spec.Nap = 300 * time.Millisecond
	}
	if spec.Every == 0 {
		spec.Every, spec.Batch = 150*time.Millisecond, 3
	}
	a.spec = spec
	place := func(int) (string, []string) { return a.url, nil }
	if a.setup.place != nil {
		place = a.setup.place(a)
	}
	a.fleet = &fleet{t: a.t, dir: a.dir, spec: spec, journal: a.journal, env: env, place: place}
	a.fleet.start(a.peers)
}

// user is the ACL user of the peers. It has the rights of the worker in docs/security.md, and no
// others.
const user = "worker-" + prefix

func (a *arena) admit() {
	a.url = a.server.URL()
	if os.Getenv(redistest.ACLEnv) == "0" {
		return
	}
	rule := redis.Args{"ACL", "SETUSER", user}.AddFlat(redistest.Rule(a.t, "worker", prefix))
	a.server.do(rule, []any{"ACL", "SAVE"})
	a.url = strings.Replace(a.url, "://", "://"+user+":SECRET@", 1)
}

// observer returns a peer of the driver, with all rights.
func (a *arena) observer() *worqr.Peer {
	o := &worqr.Options{Prefix: prefix, Lease: a.lease}
	if a.authority != nil {
		o.TLSConfig = &tls.Config{RootCAs: a.authority.Pool(), Certificates: []tls.Certificate{a.authority.Client(a.t)}}
	}
	return redistest.Sure(worqr.Open(a.server.URL(), o))(a.t)
}

// settle waits until no task waits or runs, and all dead workers are evicted. Its time limit isn't
// a guarantee; it only detects hangs.
func (a *arena) settle() error {
	observer := a.observer()
	defer func() { _ = observer.Close() }() // it has nothing to lose
	var last error
	for end, still := time.Now().Add(2*time.Minute), 0; time.Now().Before(end); {
		busy := false
		for _, name := range a.spec.Queues {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
		if still == 3 { // one reading may miss a retry that moves between two keys
			return nil
		}
		pause(50 * time.Millisecond) // poll
	}
	return fmt.Errorf("after two minutes: %w", last)
}

// judge reads the record and checks it.
func (a *arena) judge() {
	e := &evidence{events: a.journal.all(), arena: a}
	e.lossTimes = redistest.Sure(a.lossTimes())(a.t)
	if a.durability.ordered() {
		paths := a.server.history()
		if len(paths) == 0 {
			a.t.Fatal("the server has written no history")
		}
		e.order = newReplay(prefix)
		peertest.Must(a.t, readCommits(paths, e.order.apply))
	}
	e.judge(a.report)
}

// several plays arenas concurrently, and adds up their reports.
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

// pause sleeps between two faults. Nothing relies on what happens in the meantime.
func pause(d time.Duration) { time.Sleep(d) }

// between returns a random time.
func (a *arena) between(low, high time.Duration) time.Duration {
	return low + time.Duration(a.dice.Int64N(int64(high-low+1)))
}

// awake returns a random slot whose peer serves and isn't stopped; -1 if there is none.
func (a *arena) awake() int {
	for _, slot := range a.dice.Perm(len(a.fleet.members)) {
		if m := a.fleet.members[slot]; m.serves() && !m.asleep {
			return slot
		}
	}
	return -1
}
