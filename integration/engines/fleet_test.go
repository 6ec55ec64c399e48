package engines

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

const peers = 4

// A fleet is a set of peer processes on one engine. Killed peers are replaced.
type fleet struct {
	*ledger
	t     *testing.T
	url   string
	parts int
	kills int

	members []*member // that live; ledger.mu protects it
	gone    []*member
	count   int
	stop    chan struct{} // ends the kills
	killing sync.WaitGroup
}

// A member is one peer process.
type member struct {
	*child.Process[report]
	name       string
	ids        []string
	puts       int
	dead       int64 // when it was killed
	done, okay pulse // when Redis accepted an end, and a task, of this peer
	quiet      chan struct{}
	heard      chan struct{} // closed when all its reports were read
}

// A pulse is when something has happened: for the first time after a mark, and for the last time.
type pulse struct{ mark, first, last int64 }

func (s *pulse) hear(at int64) {
	s.last = at
	if s.first == 0 && at > s.mark {
		s.first = at
	}
}

// newFleet starts peers and kills them at random times until calm is called.
func newFleet(t *testing.T, url string, parts int, d *rand.Rand) *fleet {
	t.Helper()
	f := &fleet{ledger: newLedger(parts > 0), t: t, url: url, parts: parts, stop: make(chan struct{})}
	for range peers {
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
	own := rand.New(rand.NewPCG(d.Uint64(), 0)) // the dice of the test are not shared
	f.killing.Go(func() { f.kill(own) })
	t.Cleanup(f.calm)
	return f
}

// start starts a process and reads its reports.
func (f *fleet) start() (*member, error) {
	f.count++
	m := &member{name: fmt.Sprint("p", f.count), quiet: make(chan struct{}), heard: make(chan struct{})}
	var err error
	m.Process, err = child.Start[report](context.Background(), child.Options{
		Config: config{URL: f.url, Name: m.name, Parts: f.parts}, Env: []string{"GOMAXPROCS=2"},
	})
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(m.Kill)
	go func() {
		defer close(m.heard)
		for r := range m.Reports {
			switch r.What {
			case quiet:
				close(m.quiet)
			case up:
				f.mu.Lock()
				if m.done.last == 0 {
					m.ids = nil // a start that fails takes another id the next time
				}
				m.ids = append(m.ids, r.Note)
				f.mu.Unlock()
			default:
				f.hear(m, r)
			}
		}
	}()
	return m, nil
}

// kill kills one peer after the other.
func (f *fleet) kill(d *rand.Rand) {
	for {
		select {
		case <-f.stop:
			return
		case <-time.After(3*time.Second + time.Duration(d.Int64N(int64(4*time.Second)))):
		}
		i := d.IntN(peers)
		m := f.members[i] // only this goroutine changes them
		m.Kill()
		dead := mono()
		<-m.heard
		next, err := f.start()
		if err != nil {
			f.blame("%v", err)
			return
		}
		f.mu.Lock()
		f.kills++
		m.dead = dead
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

// await waits until a condition on the reports holds. is is called with the lock held.
func (f *fleet) await(what string, is func() bool) {
	f.t.Helper()
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) { // between two looks
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
				f.t.Logf("%s: last end %.3f, last task %.3f, now %.3f, worked as %v", m.name, seconds(m.done.last), seconds(m.okay.last), seconds(mono()), m.ids)
			}
			f.t.Fatal("in vain: ", what)
		}
	}
}

// back waits until every peer that served at a moment, and wasn't killed since, has ended and
// enqueued a task after it. It returns how long the slowest one took.
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
					s.first = s.last // or a little before
				}
			}
		}
	}
	f.mu.Unlock()
	f.await("all work again", func() bool {
		for _, m := range served {
			if m.dead == 0 && (m.done.first == 0 || m.okay.first == 0) {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range served {
		if m.dead == 0 {
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
	f.await("a peer is killed", func() bool { return f.kills > 0 })
	f.calm()
	late := time.After(patience)
	for _, m := range f.members {
		redistest.Sure(0, m.Tell("quiet"))(f.t)
		select {
		case <-m.quiet:
		case <-m.Exited:
			f.t.Fatalf("%s has ended: %v\n%s", m.name, m.Err, m.Said())
		case <-late:
			f.t.Fatalf("%s goes on adding tasks", m.name)
		}
	}
	observer := redistest.Sure(worqr.Open(f.url, &worqr.Options{Prefix: prefix}))(f.t)
	defer func() { redistest.Sure(0, observer.Close())(f.t) }()
	q := observer.Queue(queue)
	if f.parts > 0 {
		q = q.Spread(f.parts)
	}
	for {
		s, err := q.Stats(f.t.Context())
		if err == nil && s.Waiting+s.Scheduled+s.Running == 0 {
			break
		}
		select {
		case <-late:
			f.t.Fatalf("tasks are left: %+v, %v", s, err)
		case <-time.After(10 * time.Millisecond): // between two looks
		}
	}
	for _, m := range f.members {
		_ = m.Signal(syscall.SIGTERM) // it may have ended
		<-m.Exited
		<-m.heard
		if m.Err != nil {
			f.blame("%s ends with %v: %s", m.name, m.Err, m.Said())
		}
	}
	f.sound(len(deaths) > 0)
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

// sound checks the peers' logs and ids: without a rollback nobody is evicted.
func (f *fleet) sound(rollback bool) {
	for _, m := range append(f.gone, f.members...) {
		if len(m.ids) > 1 && !rollback {
			f.blame("%s worked under the ids %v, so it was evicted", m.name, m.ids)
		}
		for line := range strings.Lines(m.Said()) {
			if !strings.HasPrefix(line, "time=") || !rollback && strings.Contains(line, "level=ERROR") {
				f.blame("%s says: %s", m.name, strings.TrimSpace(line))
			}
		}
	}
}
