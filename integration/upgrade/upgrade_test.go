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
	"github.com/worqr/worqr/integration/load"
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
	for _, file := range []string{"load/event.go", "load/peer.go", "upgrade/peer/main.go"} {
		to := filepath.Join(tree, "integration", file)
		redistest.Sure(0, os.MkdirAll(filepath.Dir(to), 0o700))(t)
		redistest.Sure(0, os.WriteFile(to, redistest.Sure(os.ReadFile(filepath.Join("..", file)))(t), 0o600))(t)
	}
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
	for name, next := range map[string]func(over float64) (ofNewer bool){ // what starts next, as the storm goes on
		"upgrade":   func(over float64) bool { return over > 0.3 },
		"downgrade": func(over float64) bool { return over < 0.3 },
		"mixed":     nil,
		"added":     nil, // the newer peers also add tasks, which the older ones don't know
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
			start := func(over float64) *load.Process {
				if next(over) {
					return f.start(newer, "newer")
				}
				return f.start(older, "older")
			}
			var all []*load.Process
			for range peers {
				all = append(all, start(0))
			}
			kills := 0
			for began := time.Now(); time.Since(began) < *storm; {
				time.Sleep(100*time.Millisecond + time.Duration(random.Int64N(int64(500*time.Millisecond))))
				i := random.IntN(peers)
				if random.IntN(3) == 0 {
					f.end(all[i]) // as a rolling update does
				} else {
					kills++
					all[i].Kill()
					<-all[i].Heard
					f.sound(all[i], true)
				}
				all[i] = start(float64(time.Since(began)) / float64(*storm))
				f.look()
			}
			f.settle(all)
			if f.added {
				f.mend()
				f.judge(newer) // older peers can't check what is kept of added tasks that failed
			} else {
				f.judge(older, newer)
			}
			t.Logf("%d kills; %d tasks, of which %d ran more than once", kills, len(f.tasks), f.repeated())
		})
	}
}

// A fleet has peers of both versions, and a record of its tasks.
type fleet struct {
	t      *testing.T
	url    string
	prefix string
	peer   *worqr.Peer // an observer
	added  bool        // the newer peers add tasks
	beside bool        // peers of both versions were registered at the same time
	count  int         // of processes

	mu     sync.Mutex // protects the fields below
	tasks  load.Accounts
	done   map[string]int   // name → how often the task was done; the name is the digest of the payload
	tokens map[int64]string // token → the task started with it
	wrong  []string
}

const lease = time.Second

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, url: redistest.URL(), prefix: redistest.Prefix(t), tasks: load.Accounts{}, done: map[string]int{}, tokens: map[int64]string{}}
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
				f.done[digest]++
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

// start starts a process and reads its reports.
func (f *fleet) start(program, state string) *load.Process {
	f.t.Helper()
	f.count++
	c := load.Config{
		Name: fmt.Sprintf("%s-%d", state, f.count), URL: redistest.Worker(f.t, f.url, f.prefix), Prefix: f.prefix, Lease: lease, Seed: *seed,
		Queues: []string{"q"}, Concurrency: 8, Nap: 30 * time.Millisecond, Every: 5 * time.Millisecond,
		Cancels: 8, Faults: true, Added: f.added, Varied: true,
	}
	p := redistest.Sure(load.Start(c, child.Options{Program: program}, f.hear))(f.t)
	f.t.Cleanup(p.Kill)
	return p
}

func (f *fleet) hear(e load.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks.Take(&e)
	if e.Op == load.OpRun && e.Phase == load.Invoke {
		if other, used := f.tokens[e.Token]; used {
			f.wrong = append(f.wrong, fmt.Sprintf("%s and %s were started with token %d", other, e.Tasks[0], e.Token))
		}
		f.tokens[e.Token] = e.Tasks[0]
		if e.Note != "" {
			f.wrong = append(f.wrong, fmt.Sprintf("a handler of %s was given %s", e.Tasks[0], e.Note))
		}
	}
}

// end makes a process leave.
func (f *fleet) end(p *load.Process) {
	p.End()
	f.sound(p, false)
}

// sound checks how a process has ended, and what it has logged.
func (f *fleet) sound(p *load.Process, killed bool) {
	exit, _ := errors.AsType[*exec.ExitError](p.Err)
	early := p.Said() == "" && exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM // before it handled signals
	if !killed && p.Err != nil && !early {
		f.blame("%s: %v", p.Name, p.Err)
	}
	for _, c := range p.Complaints() {
		f.blame("%s", c)
	}
}

// look records whether peers of both versions are registered.
func (f *fleet) look() {
	f.t.Helper()
	there := map[string]bool{}
	for w := range redistest.Each(f.t, f.peer.Workers(f.t.Context())) {
		state, _, _ := strings.Cut(w.Name, "-")
		there[state] = true
	}
	f.beside = f.beside || there["older"] && there["newer"]
}

// patience is the time limit for whatever takes long on a busy machine.
const patience = 2 * time.Minute

// settle stops the producers, waits until all tasks are done, and stops the fleet.
func (f *fleet) settle(all []*load.Process) {
	f.t.Helper()
	load.Quiet(f.t, all, patience)
	late := time.After(patience)
	q := f.peer.Queue("q")
	for looks := 1; ; looks++ {
		if f.added && looks%100 == 0 {
			f.mend() // counts what an older peer leaves of an added task
		}
		s := redistest.Sure(q.Stats(f.t.Context()))(f.t)
		if s.Waiting+s.Scheduled+s.Running == 0 && f.told() {
			break
		}
		select {
		case <-late:
			f.judgeTasks()
			f.t.Fatalf("tasks are left: %+v\n%s", s, strings.Join(f.wrong, "\n"))
		case <-time.After(10 * time.Millisecond): // poll
		}
	}
	for _, p := range all {
		f.end(p)
	}
}

// mend repairs what an older peer leaves when it returns an added task of a dead newer peer: it
// mistakes the task's name and card for an entry, and ignores the task's other field. The task
// then runs without its key and its properties, and its name may remain. Any other damage is a
// violation.
func (f *fleet) mend() {
	f.t.Helper()
	report := redistest.Sure(f.peer.Repair(f.t.Context(), nil))(f.t)
	for _, found := range report.Findings {
		if found.Severity == inspect.SeverityError && !(found.Kind == "schedule" && found.Repaired) {
			f.blame("it is to repair: %s", found)
		}
	}
}

// told reports whether the observer has received an event for each finished task. The last ones
// may be in flight; judge finds those that never arrive.
func (f *fleet) told() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.tasks {
		if f.lacksLocked(a) {
			return false
		}
	}
	return true
}

// lacksLocked reports whether a task isn't done but must be: it was accepted, wasn't removed or
// replaced, and no handler failed it permanently.
func (f *fleet) lacksLocked(a *load.Account) bool {
	failed := slices.ContainsFunc(a.Runs, func(r *load.Run) bool { return r.Note == load.NoteFail })
	return a.Key == "" && a.Cancel == "" && !failed && f.done[digestOf(a.Name)] < a.Okay
}

// judge checks for violations.
func (f *fleet) judge(programs ...string) {
	f.t.Helper()
	f.judgeTasks()
	for _, program := range programs {
		c := load.Config{URL: redistest.Doctor(f.t, f.url, f.prefix), Prefix: f.prefix, Check: true}
		p := redistest.Sure(child.Start[load.Event](f.t.Context(), child.Options{Program: program, Config: c}))(f.t)
		for e := range p.Reports {
			f.blame("%s finds: %s", filepath.Base(program), e.Note)
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
	strange := maps.Clone(f.done)
	for _, name := range slices.Sorted(maps.Keys(f.tasks)) {
		a, done := f.tasks[name], f.done[digestOf(name)]
		delete(strange, digestOf(name))
		switch {
		case done > a.Tried-a.Refused:
			f.wrong = append(f.wrong, fmt.Sprintf("%s was done %d times", name, done))
		case a.Gone > 0 && done > 0:
			f.wrong = append(f.wrong, name+" was removed or canceled, and is done")
		case f.lacksLocked(a):
			f.wrong = append(f.wrong, name+" is lost")
		}
	}
	for digest := range strange {
		f.wrong = append(f.wrong, "done, and never added: "+digest)
	}
}

// TestJudge checks that the judge finds every violation, and nothing else.
func TestJudge(t *testing.T) {
	t.Parallel()
	type says []load.Event
	var (
		try, okay             = load.Event{Op: load.OpEnqueue, Phase: load.Invoke}, load.Event{Op: load.OpEnqueue, Phase: load.Okay}
		doubt, canceled, kept = load.Event{Op: load.OpCancel, Phase: load.Okay}, load.Event{Op: load.OpGone}, load.Event{Op: load.OpGone, Note: load.NoteKept}
		failed                = load.Event{Op: load.OpRun, Phase: load.Okay, Process: "1", Note: load.NoteFail}
	)
	start := func(token int64) load.Event {
		return load.Event{Op: load.OpRun, Phase: load.Invoke, Process: fmt.Sprint(token), Token: token}
	}
	for name, c := range map[string]struct {
		said  says
		done  int
		wrong string
	}{
		"done":               {said: says{try, okay, start(1), start(2)}, done: 1},
		"lost":               {said: says{try, okay}, wrong: "is lost"},
		"failed":             {said: says{try, okay, start(1), failed}},
		"killed in between":  {said: says{try}},
		"it was there":       {said: says{try}, done: 1},
		"never added":        {done: 1, wrong: "never added"},
		"twice":              {said: says{try, okay}, done: 2, wrong: "done 2 times"},
		"canceled":           {said: says{try, okay, doubt, canceled}},
		"canceled, and done": {said: says{try, okay, doubt, canceled}, done: 1, wrong: "and is done"},
		"kept":               {said: says{try, okay, doubt, kept}, done: 1},
		"kept, and lost":     {said: says{try, okay, doubt, kept}, wrong: "is lost"},
		"killed at a cancel": {said: says{try, okay, doubt}},
		"two with one token": {said: says{try, start(7), start(7)}, wrong: "with token 7"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{t: t, tasks: load.Accounts{}, done: map[string]int{digestOf("p"): c.done}, tokens: map[int64]string{}}
			for i, e := range c.said {
				e.Tasks, e.Mono = []string{"p"}, int64(i+1)
				f.hear(e)
			}
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
		if len(a.Runs) > 1 {
			n++
		}
	}
	return n
}
