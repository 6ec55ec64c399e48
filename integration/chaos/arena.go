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
	strict   bool          // the times that are promised are demanded
}

// A setup is what a campaign wants of an arena.
type setup struct {
	durability durability
	everywhere bool        // the server hears on all addresses
	tls        bool        // the server and the peers have certificates
	spec       load.Config // what is zero there gets a default
	// where a peer finds the server, and the command that starts it
	place   func(*arena) func(slot int) (url string, before []string)
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
	t         testing.TB
	dice      *rand.Rand
	dir       string
	server    *server
	url       string // where peers work
	authority *redistest.Authority
	fleet     *fleet
	journal   *journal
	report    *report
}

// play has faults come upon an arena, lets it come to rest, and judges what was
// written down.
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
	// The faults are over, and from here on everything must come to an end.
	pause(a.tail)
	a.fleet.quiet()
	if err := a.settle(); err != nil {
		a.report.violate("it does not come to rest: %v", err)
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
	a.t.Cleanup(func() { _ = file.Close() }) // each line is there already
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

// user is as whom peers connect: they may do what the worker of docs/security.md may, and nothing else.
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

// observer returns a peer of the driver, which may do everything.
func (a *arena) observer() *worqr.Peer {
	o := &worqr.Options{Prefix: prefix, Lease: a.lease}
	if a.authority != nil {
		o.TLSConfig = &tls.Config{RootCAs: a.authority.Pool(), Certificates: []tls.Certificate{a.authority.Client(a.t)}}
	}
	return redistest.Sure(worqr.Open(a.server.URL(), o))(a.t)
}

// settle waits until nothing waits, nothing runs, and all who died are failed. The
// time that takes is no promise; it is only not to hang.
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
		if still == 3 { // a retry may be between two places that are read one after the other
			return nil
		}
		pause(50 * time.Millisecond) // between two looks
	}
	return fmt.Errorf("after two minutes: %w", last)
}

// judge reads what was written down.
func (a *arena) judge() {
	e := &evidence{events: a.journal.all(), arena: a}
	e.confessed = redistest.Sure(a.confessed())(a.t)
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
func (a *arena) between(low, high time.Duration) time.Duration {
	return low + time.Duration(a.dice.Int64N(int64(high-low+1)))
}

// awake throws a slot whose peer serves and does not stand still; -1 if there is none.
func (a *arena) awake() int {
	for _, slot := range a.dice.Perm(len(a.fleet.members)) {
		if m := a.fleet.members[slot]; m.serves() && !m.asleep {
			return slot
		}
	}
	return -1
}
