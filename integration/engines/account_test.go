package engines

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
)

// A ledger has the accounts of all tasks, outside Redis.
type ledger struct {
	mu     sync.Mutex // protects the fields below, and what they refer to
	tasks  load.Accounts
	tokens map[int64]string   // token → task
	dead   map[string]int64   // when peers were killed
	harmed map[string][]*span // when peers were stopped, cut off or starved
	wrong  []string
	done   []int64 // when Redis accepted an outcome
	losses []int64 // when a peer reported that Redis lost writes
}

func newLedger() *ledger {
	return &ledger{tasks: load.Accounts{}, tokens: map[int64]string{}, dead: map[string]int64{}, harmed: map[string][]*span{}}
}

type span struct{ from, to int64 }

// driver is the process of the test, in what has been starved: links stand still then.
const driver = ""

// harm notes that from now on a peer can be evicted, until over is called.
func (l *ledger) harm(name string) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &span{from: load.Mono(), to: math.MaxInt64}
	l.harmed[name] = append(l.harmed[name], s)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.to = load.Mono()
	}
}

// surely is the longest a peer may take to store an outcome, or to learn that it was evicted.
const surely = int64(10 * time.Second)

// stale reports whether another peer may have the task because this one was stopped or cut off.
func (l *ledger) stale(r *load.Run) bool {
	return r.Finish != load.Okay && slices.ContainsFunc(slices.Concat(l.harmed[r.Peer], l.harmed[driver]), func(s *span) bool {
		return s.from-r.Began < surely && r.Began-s.to < surely
	})
}

// unsure reports whether the process was killed or stopped before it knew that Redis had stored the
// end.
func (l *ledger) unsure(r *load.Run) bool {
	dead := l.dead[r.Peer]
	killed := dead > 0 && r.Cause == "" && r.Note != load.NoteRetry && r.Finish != load.Okay && r.Finish != load.Refused &&
		(r.Over == 0 || dead-r.Over < surely)
	return killed || l.stale(r)
}

// excused reports whether the task may start again after the attempt.
func (l *ledger) excused(r *load.Run) bool {
	return r.Note == load.NoteRetry || r.Cause != "" && r.Cause != load.NoteCanceled || l.unsure(r)
}

func (l *ledger) ended(r *load.Run) bool {
	returned := r.Over > 0 && r.Cause == "" && r.Note != load.NoteRetry && r.Finish != load.Refused
	return r.Finish == load.Okay || returned && !l.unsure(r)
}

// until returns when the attempt stopped owning its task.
func (l *ledger) until(r *load.Run) int64 {
	for _, at := range []int64{r.Told, r.Finishing, r.Over} {
		if at > 0 {
			return at // the earliest
		}
	}
	return l.dead[r.Peer]
}

func (l *ledger) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// hear records what a peer reports.
func (l *ledger) hear(m *member, e load.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks.Take(&e)
	switch {
	case e.Op == load.OpUp:
		if m.done.last == 0 {
			m.ids = nil // if a start fails, the next one uses another id
		}
		m.ids = append(m.ids, e.Worker)
	case e.Op == load.OpLate:
		l.harmed[e.Peer] = append(l.harmed[e.Peer], &span{e.Mono - e.Waited, e.Mono})
	case e.Op == load.OpLost:
		l.losses = append(l.losses, e.Mono)
	case e.Op == load.OpEnqueue && e.Phase == load.Okay:
		m.okay.hear(e.Mono)
	case e.Op == load.OpFinish && e.Phase == load.Okay:
		l.done = append(l.done, e.Mono)
		m.done.hear(e.Mono)
	case e.Op == load.OpRun && e.Phase == load.Invoke:
		if other, used := l.tokens[e.Token]; used {
			l.wrong = append(l.wrong, fmt.Sprintf("%s and %s were started with token %d", other, e.Tasks[0], e.Token))
		} else {
			l.tokens[e.Token] = e.Tasks[0]
		}
		if e.Note != "" {
			l.wrong = append(l.wrong, fmt.Sprintf("a handler of %s was given %s", e.Tasks[0], e.Note))
		}
	}
}

// A sum is the total of the accounts.
type sum struct {
	okay, doubtful, canceled, starts, restarts int
	lost, twice                                int // only allowed after a rollback
}

func (s sum) String() string {
	return fmt.Sprintf("%d tasks accepted, %d perhaps, %d canceled; "+
		"%d starts, %d of them since a peer was killed or stopped; lost %d, done twice %d",
		s.okay, s.doubtful, s.canceled, s.starts, s.restarts, s.lost, s.twice)
}

// judge compares each account with the guarantees. A task that was accepted or done just before a
// rollback may be lost or done twice. deaths are the times at which masters died before a replica
// had all their writes.
func (l *ledger) judge(deaths ...int64) (s sum, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong = slices.Clone(l.wrong)
	if len(deaths) > 0 {
		wrong = slices.DeleteFunc(wrong, func(w string) bool { return strings.Contains(w, "with token") }) // lost, too
	}
	blame := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	rolledBack := func(from, to int64) bool {
		return slices.ContainsFunc(deaths, func(d int64) bool { return from < d+int64(time.Second) && to > d-int64(window) })
	}
	keys := map[string][]*load.Account{}
	for _, name := range slices.Sorted(maps.Keys(l.tasks)) {
		a := l.tasks[name]
		s.add(a)
		if a.Key != "" {
			keys[a.Key] = append(keys[a.Key], a)
		}
		if a.Tried == 0 {
			blame("%s has started, but nobody enqueued it", name)
		}
		ended, unsure, unexcused := l.counts(a)
		most := a.Tried - a.Refused
		undone := slices.ContainsFunc(a.Runs, func(r *load.Run) bool {
			return rolledBack(r.Began, max(r.Began, r.Told, r.Finishing, r.Over))
		})
		switch {
		case max(ended, unexcused) > most && undone:
			s.twice++
		case ended > most:
			blame("%s was done %d times: %v", name, ended, l.tell(a.Runs))
		case unexcused > most:
			blame("%s has started again without a reason: %v", name, l.tell(a.Runs))
		}
		if a.Key == "" && a.Cancel == "" && ended+unsure < a.Okay {
			if s.lost++; !rolledBack(a.Answered, a.Answered) && !undone {
				blame("%s is lost: %v", name, l.tell(a.Runs))
			}
		}
		for _, r := range a.Runs {
			if a.Gone > 0 && (!a.Stopped || a.Okay == a.Tried) && r.Began > a.Gone && !rolledBack(a.Gone, a.Gone) && !l.stale(r) {
				blame("%s began %v after its cancel", name, time.Duration(r.Began-a.Gone))
			}
		}
		if len(deaths) > 0 {
			continue
		}
		wrong = append(wrong, l.owners(name, a.Runs)...)
		for _, w := range a.Waits {
			failed := slices.ContainsFunc(a.Runs, func(r *load.Run) bool { return r.Note == load.NoteFail })
			may := map[worqr.Outcome]bool{worqr.OutcomeFinished: ended+unsure > 0, worqr.OutcomeFailed: failed,
				worqr.OutcomeCanceled: a.Cancel != "", worqr.OutcomeRemoved: a.Cancel != ""}
			if w.Phase == load.Refused || w.Phase == load.Okay && !may[worqr.Outcome(w.Note)] {
				blame("Wait for %s returned %q, which is wrong: %v", name, w.Note, l.tell(a.Runs))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var all []*load.Run
		newest, ran := int64(0), int64(0) // when they were enqueued
		for _, a := range keys[key] {
			all = append(all, a.Runs...)
			if a.Okay > 0 && !rolledBack(a.Answered, a.Answered) {
				newest = max(newest, a.Invoked)
			}
			if ended, unsure, _ := l.counts(a); ended+unsure > 0 {
				ran = max(ran, a.Invoked)
			}
		}
		if ran < newest {
			blame("the last task under key %s is lost: that of %.3f was accepted, that of %.3f has run", key, seconds(newest), seconds(ran))
		}
		if len(deaths) == 0 {
			wrong = append(wrong, l.owners("key "+key, all)...)
		}
	}
	return s, wrong
}

// window is how long before its death a master may have accepted writes that no replica has.
const window = 2 * time.Second

func (s *sum) add(a *load.Account) {
	s.okay += a.Okay
	s.doubtful += a.Tried - a.Okay - a.Refused
	if a.Gone > 0 && !a.Stopped {
		s.canceled++
	}
	s.starts += len(a.Runs)
	more := len(a.Runs) - (a.Tried - a.Refused)
	for _, r := range a.Runs {
		if r.Note == load.NoteRetry {
			more--
		}
	}
	s.restarts += max(more, 0)
}

// counts returns how many attempts have ended, how many may have, and how many don't justify
// another attempt.
func (l *ledger) counts(a *load.Account) (ended, unsure, unexcused int) {
	for _, r := range a.Runs {
		if l.ended(r) {
			ended++
		}
		if l.unsure(r) {
			unsure++
		}
		if !l.excused(r) {
			unexcused++
		}
	}
	return ended, unsure, unexcused
}

// owners finds attempts that owned the same thing at the same time. Each attempt must begin after
// the previous one has ended, and have a higher token, so that stale attempts can be told apart.
func (l *ledger) owners(what string, all []*load.Run) (wrong []string) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *load.Run) int { return cmp.Compare(a.Began, b.Began) })
	all = slices.DeleteFunc(all, l.stale)
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.Token <= a.Token {
			wrong = append(wrong, fmt.Sprintf("%s has token %d after %d", what, b.Token, a.Token))
		}
		if until := l.until(a); until == 0 || until > b.Began {
			wrong = append(wrong, fmt.Sprintf("%s has two owners: %v", what, l.tell([]*load.Run{a, b})))
		}
	}
	return wrong
}

func (l *ledger) tell(runs []*load.Run) (all []string) {
	for _, r := range runs {
		s := fmt.Sprintf("%s with token %d began at %.3f", r.Peer, r.Token, seconds(r.Began))
		for _, e := range []struct {
			what string
			at   int64
		}{
			{"was told " + r.Cause, r.Told}, {"finished it " + string(r.Finish), r.Finishing}, {"returned " + r.Note, r.Over},
			{"was killed", l.dead[r.Peer]},
		} {
			if e.at > 0 {
				s += fmt.Sprintf(", %s at %.3f", e.what, seconds(e.at))
			}
		}
		all = append(all, s)
	}
	return all
}

// recoveries returns how long the tasks that killed peers held waited for their next start.
func (l *ledger) recoveries() (all figures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.tasks {
		for i := 1; i < len(a.Runs); i++ {
			was, is := a.Runs[i-1], a.Runs[i]
			if dead := l.dead[was.Peer]; was.Over == 0 && was.Told == 0 && was.Began < dead && dead < is.Began {
				all = append(all, time.Duration(is.Began-dead))
			}
		}
	}
	return all
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// stop is the longest time without an event that touches a span.
func stop(events []int64, from, to int64) time.Duration {
	all := slices.Sorted(slices.Values(events))
	longest := int64(0)
	for i := 1; i < len(all); i++ {
		if all[i] > from && all[i-1] <= to {
			longest = max(longest, all[i]-all[i-1])
		}
	}
	return time.Duration(longest)
}
