package engines

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

const (
	peers  = 4
	prefix = "p"
	queue  = "q"
	user   = "worker-" + prefix // the peers' user on Sentinel and on one server
)

// A site is where a fleet works.
type site struct {
	url   string                     // of the user with all rights
	login string                     // what the peers' URL has in addition: user and password
	links []*redistest.Link          // one for each place in the fleet; none: peers connect directly
	nodes func() []*redistest.Server // the servers that have keys
	lease time.Duration              // 0: 3 s
	apart time.Duration              // between two kills, on average; 0: 5 s
}

// A fleet is a set of peer processes on one engine. Killed peers are replaced, and so are some that are
// asked to end. One more is stopped until it's evicted, and then goes on.
type fleet struct {
	*ledger
	site
	t     *testing.T
	kills int
	seed  uint64

	members []*member // live ones; ledger.mu protects it
	sleeper *member
	gone    []*member
	count   int
	changes sync.Mutex    // held while a peer is replaced, and by who needs the same peers for a while
	stop    chan struct{} // ends the kills
	killing sync.WaitGroup
}

// A member is one peer process.
type member struct {
	*load.Process
	ids        []string
	done, okay pulse // when Redis accepted an outcome, and a task, of this peer
	ended      bool
}

// A pulse is when something happened: for the first time after a mark, and for the last time.
type pulse struct{ mark, first, last int64 }

func (s *pulse) hear(at int64) {
	s.last = at
	if s.first == 0 && at > s.mark {
		s.first = at
	}
}

// newFleet starts peers and kills them at random times until calm is called.
func newFleet(t *testing.T, s site, d *rand.Rand) *fleet {
	t.Helper()
	s.lease, s.apart = cmp.Or(s.lease, 3*time.Second), cmp.Or(s.apart, 5*time.Second)
	f := &fleet{ledger: newLedger(), site: s, t: t, seed: d.Uint64()}
	f.stop = make(chan struct{})
	if f.links != nil {
		t.Cleanup(load.Watch(f.lease, func(e load.Event) { f.hear(nil, e) }))
	}
	for place := range peers + 1 {
		m, err := f.start(place)
		redistest.Sure(m, err)(t)
		f.members = append(f.members, m)
	}
	f.await("all work", func() bool {
		for _, m := range f.members {
			if m.done.last == 0 || m.okay.last == 0 {
				return false
			}
		}
		return true
	})
	f.members, f.sleeper = f.members[:peers], f.members[peers]
	own := rand.New(rand.NewPCG(d.Uint64(), 0)) // a source of its own, since the test's isn't safe to share
	f.killing.Go(func() { f.kill(own) })
	f.killing.Go(f.nap)
	t.Cleanup(f.calm)
	return f
}

// start starts a process and reads its reports.
func (f *fleet) start(place int) (*member, error) {
	f.count++
	m := &member{}
	url := f.url
	if f.links != nil {
		url = f.links[place].URL()
	}
	c := load.Config{
		Name: fmt.Sprint("p", f.count), URL: strings.Replace(url, "://", "://"+f.login, 1),
		Prefix: prefix, Lease: f.lease, Seed: f.seed,
		Queue: queue,
	}
	var err error
	if m.Process, err = load.Start(c, func(e load.Event) { f.hear(m, e) }); err != nil {
		return nil, err
	}
	f.t.Cleanup(m.Kill)
	return m, nil
}

// nap stops the sleeper for longer than its lease, until it was evicted. While masters change, that
// may take several tries.
func (f *fleet) nap() {
	nap := f.harm(f.sleeper.Name)
	for over := false; !over; {
		_ = f.sleeper.Signal(syscall.SIGSTOP) // if it has ended, settle notices
		f.pause(f.lease + 2*time.Second)
		_ = f.sleeper.Signal(syscall.SIGCONT)
		over = f.pause(time.Second)
		f.mu.Lock()
		over = over || len(f.sleeper.ids) > 1
		f.mu.Unlock()
	}
	nap()
}

// pause waits for a while, and reports whether the kills have ended.
func (f *fleet) pause(most time.Duration) (over bool) {
	select {
	case <-f.stop:
		return true
	case <-time.After(most):
		return false
	}
}

// kill kills one peer after the other, and asks every fourth to end instead.
func (f *fleet) kill(d *rand.Rand) {
	for n := 0; !f.pause(f.apart/2+time.Duration(d.Int64N(int64(f.apart)))) && f.replace(d.IntN(peers), n%4 == 3); n++ {
	}
}

// replace kills a peer, or asks it to end, and starts another. It reports whether that works.
func (f *fleet) replace(i int, ends bool) bool {
	f.changes.Lock()
	defer f.changes.Unlock()
	m := f.members[i]
	if ends {
		m.End()
	}
	m.Kill()
	dead := load.Mono()
	<-m.Heard
	next, err := f.start(i)
	if err != nil {
		f.blame("%v", err)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Err != nil { // it was killed, or couldn't leave
		f.kills++
		f.dead[m.Name] = dead
	}
	m.ended = true
	f.members[i] = next
	f.gone = append(f.gone, m)
	return true
}

// calm ends the kills.
func (f *fleet) calm() {
	f.mu.Lock()
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.mu.Unlock()
	f.killing.Wait()
}

// patience is the time limit for whatever takes long on a busy machine.
const patience = 2 * time.Minute

// await waits until a condition on the reports holds. It calls is with the lock held.
func (f *fleet) await(what string, is func() bool) {
	f.t.Helper()
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) { // poll
		f.mu.Lock()
		ok := is()
		f.mu.Unlock()
		if ok {
			return
		}
		if time.Since(began) > patience {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, m := range f.members {
				f.t.Logf("%s: last end %.3f, last task %.3f, now %.3f, worked as %v", m.Name, seconds(m.done.last), seconds(m.okay.last), seconds(load.Mono()), m.ids)
			}
			f.t.Fatal("timed out waiting until ", what)
		}
	}
}

// back waits until every peer that was serving at the given time, and wasn't killed since,
// has ended and enqueued a task after that time. It returns how long the slowest one took.
func (f *fleet) back(since int64) (working, producing time.Duration) {
	f.t.Helper()
	var served []*member
	f.mu.Lock()
	for _, m := range f.members {
		if m.done.last > 0 && m.okay.last > 0 {
			served = append(served, m)
			m.done.mark, m.done.first = since, 0
			m.okay.mark, m.okay.first = since, 0
			for _, s := range []*pulse{&m.done, &m.okay} {
				if s.last > since {
					s.first = s.last // or slightly earlier
				}
			}
		}
	}
	f.mu.Unlock()
	f.await("all work again", func() bool {
		for _, m := range served {
			if !m.ended && (m.done.first == 0 || m.okay.first == 0) {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range served {
		if !m.ended {
			working = max(working, time.Duration(m.done.first-since))
			producing = max(producing, time.Duration(m.okay.first-since))
		}
	}
	return working, producing
}

// goOn waits until n more tasks have ended.
func (f *fleet) goOn(n int) {
	f.t.Helper()
	was := -1
	f.await("tasks end", func() bool {
		if was < 0 {
			was = len(f.ledger.done)
		}
		return len(f.ledger.done) >= was+n
	})
}

// settle stops the producers, waits until all tasks are done, stops the peers, and judges.
func (f *fleet) settle(deaths ...int64) sum {
	f.t.Helper()
	f.await("a peer is killed, and another evicted while it is stopped", func() bool {
		return f.kills > 0 && len(f.sleeper.ids) > 1
	})
	f.calm()
	f.members = append(f.members, f.sleeper)
	var all []*load.Process
	for _, m := range f.members {
		all = append(all, m.Process)
	}
	load.Quiet(f.t, all, patience)
	observer := redistest.Sure(worqr.Open(f.url, &worqr.Options{Prefix: prefix}))(f.t)
	defer func() { redistest.Sure(0, observer.Close())(f.t) }()
	q := observer.Queue(queue)
	late := time.After(patience)
	for tokens := int64(-1); ; {
		s, err := q.Stats(f.t.Context())
		if err == nil && s.Waiting+s.Scheduled+s.Running == 0 && s.Workers == len(all) {
			if s.Tokens == tokens {
				break // a task may have moved while one was read, but without a start, not in both
			}
			tokens = s.Tokens
		} else {
			tokens = -1
		}
		select {
		case <-late:
			f.t.Fatalf("tasks or dead workers are left: %+v, %v", s, err)
		case <-time.After(10 * time.Millisecond): // poll
		}
	}
	check := func(when string) {
		if found := redistest.Sure(observer.Check(f.t.Context(), nil))(f.t); !peertest.Intact(found) {
			f.blame("Check finds, %s: %v", when, found)
		}
	}
	check("while the fleet lives")
	for _, p := range all {
		p.End()
		if p.Err != nil {
			f.blame("%s ends with %v: %s", p.Name, p.Err, p.Said())
		}
	}
	f.sound(len(deaths) > 0)
	check("once all have left")
	if len(deaths) == 0 {
		f.leftovers()
	}
	s, wrong := f.judge(deaths...)
	f.t.Logf("%d peers killed; %v", f.kills, s)
	if len(wrong) > 20 {
		wrong = append(wrong[:20], fmt.Sprintf("and %d more", len(wrong)-20))
	}
	for _, w := range wrong {
		f.t.Error(w)
	}
	return s
}

// sound checks the peers' logs and ids: without a rollback no worker is evicted.
func (f *fleet) sound(rollback bool) {
	for _, m := range append(f.gone, f.members...) {
		if len(m.ids) > 1 && !rollback && len(f.harmed[m.Name])+len(f.harmed[driver]) == 0 {
			f.blame("%s worked under the ids %v, so it was evicted", m.Name, m.ids)
		}
		for _, c := range m.Complaints() {
			if !rollback || !strings.Contains(c, "level=ERROR") {
				f.blame("%s", c)
			}
		}
	}
}

// leftovers checks that no server has keys that should be gone when all peers have left.
func (f *fleet) leftovers() {
	f.t.Helper()
	for _, s := range f.nodes() {
		for _, key := range redistest.Sure(redis.Strings(s.Call("KEYS", "*")))(f.t) {
			if key == prefix+":workers" {
				continue // killed peers are listed until their registrations expire
			}
			ttl := redistest.Sure(redis.Int(s.Call("PTTL", key)))(f.t)
			if ttl != -2 && !load.Stays(prefix, key, ttl >= 0) {
				f.blame("the key %s is left over", key)
			}
		}
	}
}
