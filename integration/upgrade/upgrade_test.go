// Package upgrade runs peers built from an older commit of this repository next to current ones, in
// one fleet, while they are killed and replaced.
package upgrade

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	seed  = flag.Uint64("upgrade.seed", 0, "seed of who is killed and when; 0 is a new one")
	storm = flag.Duration("upgrade.storm", 6*time.Second, "for how long each fleet is under kills")
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// history names the environment variable that, set to 1, makes the tests fail if the older commit
// is missing. .ci/run sets it if the clone is complete.
const history = "WORQR_TEST_HISTORY"

// What peer/main.go has.
type (
	config struct {
		URL, Prefix, Name string
		Lease             time.Duration
		Added, Check      bool
	}
	report struct {
		What, Payload string
		Token         int64
	}
)

// programs builds the peer of both versions.
func programs(t *testing.T) (older, newer string) {
	t.Helper()
	text := redistest.Sure(os.ReadFile("base"))(t)
	base := strings.TrimSpace(string(text))
	dir := t.TempDir()
	if err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", base+"^{commit}").Run(); err != nil {
		if os.Getenv(history) == "1" {
			t.Fatalf("commit %s isn't there (%v); fetch the whole history", base, err)
		}
		t.Skipf("needs commit %s, and this clone has no such history", base)
	}
	tree := filepath.Join(dir, "older")
	redistest.Sure(0, os.MkdirAll(tree, 0o700))(t)
	top := strings.TrimSpace(run(t, ".", "git", "rev-parse", "--show-toplevel"))
	run(t, top, "sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", base, tree)
	source := filepath.Join("integration", "upgrade", "peer")
	redistest.Sure(0, os.MkdirAll(filepath.Join(tree, source), 0o700))(t)
	main := redistest.Sure(os.ReadFile(filepath.Join("peer", "main.go")))(t)
	redistest.Sure(0, os.WriteFile(filepath.Join(tree, source, "main.go"), main, 0o600))(t)
	older, newer = filepath.Join(dir, "peer-older"), filepath.Join(dir, "peer-newer")
	run(t, tree, "go", "build", "-o", older, "./integration/upgrade/peer")
	run(t, top, "go", "build", "-o", newer, "./integration/upgrade/peer")
	return older, newer
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// Peers of both versions serve a queue, while they are killed and replaced by peers of the other
// version: nothing is lost, nothing is done twice, and no peer finds damaged keys.
func TestSideBySide(t *testing.T) {
	older, newer := programs(t)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	const peers = 4
	for name, next := range map[string]func(over float64) (ofNewer bool){ // what is started, in the course of the storm
		"upgrade":   func(over float64) bool { return over > 0.3 },
		"downgrade": func(over float64) bool { return over < 0.3 },
		"mixed":     nil,
		"added":     nil, // the newer ones also add tasks, which the older ones don't know
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(*seed, uint64(len(name))))
			if next == nil {
				next = func(float64) bool { return random.IntN(2) == 0 }
			}
			t.Logf("to repeat: go test ./integration/upgrade -run 'TestSideBySide/%s' -upgrade.seed %d", name, *seed)
			f := newFleet(t)
			f.added = name == "added"
			start := func(over float64) *member {
				if next(over) {
					return f.start(newer, "newer")
				}
				return f.start(older, "older")
			}
			var all []*member
			for range peers {
				all = append(all, start(0))
			}
			kills := 0
			for began := time.Now(); time.Since(began) < *storm; {
				time.Sleep(100*time.Millisecond + time.Duration(random.Int64N(int64(500*time.Millisecond))))
				i := random.IntN(peers)
				if random.IntN(3) == 0 {
					all[i].end() // as a rolling update does
				} else {
					kills++
					all[i].kill()
				}
				all[i] = start(float64(time.Since(began)) / float64(*storm))
				f.look()
			}
			f.settle(all)
			if f.added {
				f.mend()
			}
			f.judge(older, newer)
			t.Logf("%d kills; %d tasks, of which %d ran more than once", kills, len(f.tasks), f.repeated())
		})
	}
}

// A fleet has peers of both versions, and a record of its tasks.
type fleet struct {
	t      *testing.T
	url    string
	prefix string
	peer   *worqr.Peer // looks on
	added  bool        // the newer ones add tasks
	beside bool        // peers of both versions were registered at the same time

	mu    sync.Mutex // protects the fields below
	tasks map[string]*account
	names map[string]string // payloads by digest
	runs  map[int64]string  // what was started with a token
	wrong []string
}

// An account is the history of one task.
type account struct {
	okay, doubt, dropped bool // it was accepted; it may be removed or canceled; it was
	done                 int
	starts               int
}

// A member is a process of the fleet.
type member struct {
	*child.Process[report]
	f     *fleet
	name  string
	quiet chan struct{} // closed when it adds nothing more
	heard chan struct{} // closed when all that it said was taken in
}

const lease = time.Second

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, url: redistest.URL(), prefix: redistest.Prefix(t), tasks: map[string]*account{}, names: map[string]string{}, runs: map[int64]string{}}
	f.peer = redistest.Sure(worqr.Open(f.url, &worqr.Options{Prefix: f.prefix}))(t)
	t.Cleanup(func() { redistest.Sure(0, f.peer.Close())(t) })
	synced := make(chan struct{})
	go func() {
		syncs := 0
		for e, err := range f.peer.Events(context.Background(), "q") {
			switch {
			case errors.Is(err, worqr.ErrShutdown):
				return
			case err != nil:
				f.blame("the observer: %v", err)
			case e.Kind == inspect.EventSync:
				if syncs++; syncs > 1 {
					f.blame("the observer has missed events")
				} else {
					close(synced)
				}
			case e.Kind == inspect.EventDone:
				digest := e.PayloadDigest
				if e.Payload != nil {
					digest = digestOf(string(e.Payload))
				}
				f.mu.Lock()
				f.ofLocked(digest).done++
				f.mu.Unlock()
			}
		}
	}()
	<-synced
	return f
}

func digestOf(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

func (f *fleet) blame(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// ofLocked is the account of a digest. f.mu is held.
func (f *fleet) ofLocked(digest string) *account {
	a := f.tasks[digest]
	if a == nil {
		a = &account{}
		f.tasks[digest] = a
	}
	return a
}

// start starts a process and reads its reports.
func (f *fleet) start(program, name string) *member {
	f.t.Helper()
	c := config{URL: redistest.Worker(f.t, f.url, f.prefix), Prefix: f.prefix, Name: name, Lease: lease, Added: f.added}
	p := redistest.Sure(child.Start[report](context.Background(), child.Options{Program: program, Config: c, Env: []string{"GOMAXPROCS=2"}}))(f.t)
	m := &member{Process: p, f: f, name: name, quiet: make(chan struct{}), heard: make(chan struct{})}
	f.t.Cleanup(p.Kill)
	go func() {
		defer close(m.heard)
		for r := range p.Reports {
			f.hear(m, r)
		}
	}()
	return m
}

func (f *fleet) hear(m *member, r report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.What == "quiet" {
		close(m.quiet)
		return
	}
	digest := digestOf(r.Payload)
	f.names[digest] = r.Payload
	switch a := f.ofLocked(digest); r.What {
	case "okay":
		a.okay = true
	case "doubt":
		a.doubt = true
	case "kept":
		a.doubt = false
	case "removed", "canceled":
		a.doubt, a.dropped = false, true
	case "start":
		if other, used := f.runs[r.Token]; used {
			f.wrong = append(f.wrong, fmt.Sprintf("%s and %s were started with token %d", other, r.Payload, r.Token))
		}
		f.runs[r.Token] = r.Payload
		a.starts++
	}
}

// kill kills the process.
func (m *member) kill() {
	m.Kill()
	<-m.heard
	m.sound(true)
}

// end has it leave.
func (m *member) end() {
	_ = m.Signal(syscall.SIGTERM) // it may have ended
	<-m.Exited
	<-m.heard
	m.sound(false)
}

// sound looks at how it has ended, and what it has logged.
func (m *member) sound(killed bool) {
	exit, _ := errors.AsType[*exec.ExitError](m.Err)
	early := m.Said() == "" && exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM // before it listened for signals
	if !killed && m.Err != nil && !early {
		m.f.blame("a peer of the %s state: %v", m.name, m.Err)
	}
	for line := range strings.Lines(m.Said()) {
		if strings.Contains(line, "level=ERROR") || !strings.HasPrefix(line, "time=") {
			m.f.blame("a peer of the %s state says: %s", m.name, strings.TrimSpace(line))
		}
	}
}

// look records whether peers of both versions are registered.
func (f *fleet) look() {
	f.t.Helper()
	there := map[string]bool{}
	for w := range redistest.Each(f.t, f.peer.Workers(f.t.Context())) {
		there[w.Name] = true
	}
	f.beside = f.beside || there["older"] && there["newer"]
}

// patience is the time limit for whatever takes long on a busy machine.
const patience = 2 * time.Minute

// settle stops the producers, waits until all tasks are done, and stops the fleet.
func (f *fleet) settle(all []*member) {
	f.t.Helper()
	late := time.After(patience)
	for _, m := range all {
		redistest.Sure(0, m.Tell("quiet"))(f.t)
		select {
		case <-m.quiet:
		case <-m.Exited:
			f.t.Fatalf("a peer of the %s state has ended: %v\n%s", m.name, m.Err, m.Said())
		case <-late:
			f.t.Fatal("a peer goes on adding tasks")
		}
	}
	q := f.peer.Queue("q")
	for looks := 1; ; looks++ {
		if f.added && looks%100 == 0 {
			f.mend() // what an older peer leaves of an added task is counted
		}
		s := redistest.Sure(q.Stats(f.t.Context()))(f.t)
		if s.Waiting+s.Scheduled+s.Running == 0 && f.told() {
			break
		}
		select {
		case <-late:
			f.judgeTasks()
			f.t.Fatalf("tasks are left: %+v\n%s", s, strings.Join(f.wrong, "\n"))
		case <-time.After(10 * time.Millisecond): // between two looks
		}
	}
	for _, m := range all {
		m.end()
	}
}

// mend repairs what an older peer leaves that returns an added task of a newer one, which has died.
// It takes the task's name and card for an entry, and doesn't know the other field of it. So the task
// runs, without its key and its properties, and what names it may stay. Anything else is wrong.
func (f *fleet) mend() {
	f.t.Helper()
	report := redistest.Sure(f.peer.Repair(f.t.Context(), nil))(f.t)
	for _, found := range report.Findings {
		if found.Severity == inspect.SeverityError && !(found.Kind == "schedule" && found.Repaired) {
			f.blame("it is to repair: %s", found)
		}
	}
}

// told reports whether the observer has received an event for each finished task: the last ones may
// be in flight. judge finds those that never come.
func (f *fleet) told() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.tasks {
		if a.okay && !a.doubt && !a.dropped && a.done == 0 {
			return false
		}
	}
	return true
}

// judge looks for violations.
func (f *fleet) judge(programs ...string) {
	f.t.Helper()
	f.judgeTasks()
	for _, program := range programs {
		c := config{URL: redistest.Doctor(f.t, f.url, f.prefix), Prefix: f.prefix, Check: true}
		p := redistest.Sure(child.Start[report](f.t.Context(), child.Options{Program: program, Config: c}))(f.t)
		for r := range p.Reports {
			f.blame("%s finds: %s", filepath.Base(program), r.Payload)
		}
		if p.Err != nil {
			f.blame("%s can't check: %v %s", filepath.Base(program), p.Err, p.Said())
		}
	}
	if !f.beside {
		f.blame("peers of both states were never there at one time")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrong) > 20 {
		f.wrong = append(f.wrong[:20], fmt.Sprintf("and %d more", len(f.wrong)-20))
	}
	for _, w := range f.wrong {
		f.t.Error(w)
	}
}

// judgeTasks compares each account with the guarantees: an accepted task is done once, unless it
// was removed or canceled; a task that may have been accepted is done at most once.
func (f *fleet) judgeTasks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, digest := range slices.Sorted(maps.Keys(f.tasks)) {
		a, name := f.tasks[digest], f.names[digest]
		switch {
		case name == "":
			f.wrong = append(f.wrong, "done, and never added: "+digest)
		case a.done > 1:
			f.wrong = append(f.wrong, fmt.Sprintf("%s was done %d times", name, a.done))
		case a.dropped && a.done > 0:
			f.wrong = append(f.wrong, name+" was removed or canceled, and is done")
		case a.okay && !a.dropped && !a.doubt && a.done == 0:
			f.wrong = append(f.wrong, name+" is lost")
		}
	}
}

// The judge finds every violation, and nothing else.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said  []report
		done  int
		wrong string
	}{
		"done":               {said: []report{{What: "try"}, {What: "okay"}, {What: "start", Token: 1}, {What: "start", Token: 2}}, done: 1},
		"lost":               {said: []report{{What: "try"}, {What: "okay"}}, wrong: "is lost"},
		"killed in between":  {said: []report{{What: "try"}}},
		"it was there":       {said: []report{{What: "try"}}, done: 1},
		"twice":              {said: []report{{What: "try"}, {What: "okay"}}, done: 2, wrong: "done 2 times"},
		"removed":            {said: []report{{What: "try"}, {What: "okay"}, {What: "doubt"}, {What: "removed"}}},
		"removed, and done":  {said: []report{{What: "try"}, {What: "okay"}, {What: "doubt"}, {What: "canceled"}}, done: 1, wrong: "and is done"},
		"kept":               {said: []report{{What: "try"}, {What: "okay"}, {What: "doubt"}, {What: "kept"}}, done: 1},
		"kept, and lost":     {said: []report{{What: "try"}, {What: "okay"}, {What: "doubt"}, {What: "kept"}}, wrong: "is lost"},
		"killed at a cancel": {said: []report{{What: "try"}, {What: "okay"}, {What: "doubt"}}},
		"two with one token": {said: []report{{What: "try"}, {What: "start", Token: 7}, {What: "start", Token: 7}}, wrong: "with token 7"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{t: t, tasks: map[string]*account{}, names: map[string]string{}, runs: map[int64]string{}}
			for _, r := range c.said {
				r.Payload = "p"
				f.hear(nil, r)
			}
			f.ofLocked(digestOf("p")).done = c.done
			f.judgeTasks()
			if got := strings.Join(f.wrong, "; "); (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
				t.Errorf("it says %q, want %q", got, c.wrong)
			}
		})
	}
}

// repeated returns how many tasks have run more than once.
func (f *fleet) repeated() (n int) {
	for _, a := range f.tasks {
		if a.starts > 1 {
			n++
		}
	}
	return n
}
