package engines

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

const (
	peers  = 4
	prefix = "p"
	queue  = "q"
	user   = "worker-" + prefix // the peers' user on Sentinel
	lease  = 3 * time.Second
)

// A fleet is a set of peer processes on one engine. Killed peers are replaced. One more is stopped until
// it's evicted, and then goes on.
type fleet struct {
	*ledger
	t     *testing.T
	url   string                     // of the user with all rights
	login string                     // URL of the peers
	nodes func() []*redistest.Server // the servers that have keys
	kills int
	seed  uint64

	members []*member // live ones; ledger.mu protects it
	sleeper *member
	gone    []*member
	count   int
	stop    chan struct{} // ends the kills
	killing sync.WaitGroup
}

// A member is one peer process.
type member struct {
	*load.Process
	ids        []string
	done, okay pulse // when Redis accepted an outcome, and a task, of this peer
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
func newFleet(t *testing.T, url, login string, nodes func() []*redistest.Server, d *rand.Rand) *fleet {
	t.Helper()
	f := &fleet{ledger: newLedger(), t: t, url: url, login: login, nodes: nodes, seed: d.Uint64()}
	f.stop = make(chan struct{})
	for range peers + 1 {
		m, err := f.start()
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
func (f *fleet) start() (*member, error) {
	f.count++
	m := &member{}
	c := load.Config{
		Name: fmt.Sprint("p", f.count), URL: strings.Replace(f.url, "://", "://"+f.login, 1),
		Prefix: prefix, Lease: lease, Seed: f.seed,
		Queues: []string{queue}, Concurrency: 8, Nap: 60 * time.Millisecond,
		Every: 60 * time.Millisecond, Batch: 3, Cancels: 12, Faults: true, Added: true, Varied: true, Listens: true,
	}
	var err error
	if m.Process, err = load.Start(c, child.Options{}, func(e load.Event) { f.hear(m, e) }); err != nil {
		return nil, err
	}
	f.t.Cleanup(m.Kill)
	return m, nil
}

// nap stops the sleeper for longer than its lease, until it was evicted. While masters change, that
// may take several tries.
func (f *fleet) nap() {
	f.mu.Lock()
	nap := &span{from: load.Mono(), to: math.MaxInt64}
	f.slept[f.sleeper.Name] = nap
	f.mu.Unlock()
	for over := false; !over; {
		_ = f.sleeper.Signal(syscall.SIGSTOP) // if it has ended, settle notices
		f.pause(lease + 2*time.Second)
		_ = f.sleeper.Signal(syscall.SIGCONT)
		over = f.pause(time.Second)
		f.mu.Lock()
		if over = over || len(f.sleeper.ids) > 1; over {
			nap.to = load.Mono()
		}
		f.mu.Unlock()
	}
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

// kill kills one peer after the other.
func (f *fleet) kill(d *rand.Rand) {
	for !f.pause(3*time.Second + time.Duration(d.Int64N(int64(4*time.Second)))) {
		i := d.IntN(peers)
		m := f.members[i] // only this goroutine changes them
		m.Kill()
		dead := load.Mono()
		<-m.Heard
		next, err := f.start()
		if err != nil {
			f.blame("%v", err)
			return
		}
		f.mu.Lock()
		f.kills++
		f.dead[m.Name] = dead
		f.members[i] = next
		f.gone = append(f.gone, m)
		f.mu.Unlock()
	}
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
			if f.dead[m.Name] == 0 && (m.done.first == 0 || m.okay.first == 0) {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range served {
		if f.dead[m.Name] == 0 {
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
	for {
		s, err := q.Stats(f.t.Context())
		if err == nil && s.Waiting+s.Scheduled+s.Running == 0 && s.Workers == len(all) {
			break
		}
		select {
		case <-late:
			f.t.Fatalf("tasks or dead workers are left: %+v, %v", s, err)
		case <-time.After(10 * time.Millisecond): // poll
		}
	}
	for _, p := range all {
		p.End()
		if p.Err != nil {
			f.blame("%s ends with %v: %s", p.Name, p.Err, p.Said())
		}
	}
	f.sound(len(deaths) > 0)
	if found := redistest.Sure(observer.Check(f.t.Context(), nil))(f.t); !found.OK() {
		f.blame("Check finds: %v", found)
	}
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
		if len(m.ids) > 1 && !rollback && m != f.sleeper {
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
