package engines

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A ledger is the account of all tasks, outside Redis.
type ledger struct {
	mu     sync.Mutex // protects the fields below, and those of what they hold
	tasks  map[string]*account
	runs   map[string]*attempt
	tokens map[int64]string // what was started with a token; nil if the queue is spread: parts have tokens of their own
	wrong  []string
	done   []int64 // when Redis accepted an end
	okay   []int64 // and when it accepted a task
	losses []int64 // when a peer reported that Redis lost writes
}

func newLedger(spread bool) *ledger {
	l := &ledger{tasks: map[string]*account{}, runs: map[string]*attempt{}}
	if !spread {
		l.tokens = map[int64]string{}
	}
	return l
}

// An account is the history of one task.
type account struct {
	name        string
	tried, okay int   // copies
	refused     int   // likewise
	at          int64 // when the last was accepted
	number      int   // among those of its key
	key         string
	cancel      bool // somebody wants to cancel it
	canceled    int64
	attempts    []*attempt
}

// An attempt is one call of a handler.
type attempt struct {
	by    *member
	of    *account
	key   string
	token int64
	began int64
	free  int64  // when it was told to end, after which somebody else may have the task; 0: not yet
	end   what   // the last that it said
	note  string // why it was told
	at    int64  // when it said that
}

// excused reports whether the task may start again after the attempt.
func (a *attempt) excused() bool {
	return a.end == again || a.end == told && !strings.Contains(a.note, "canceled") || a.unsure()
}

// unsure reports whether the process was killed before it knew that Redis had stored the end.
func (a *attempt) unsure() bool {
	killed := a.by.dead > 0
	return killed && (a.end == began || a.end == finishing || a.end == returned && a.by.dead-a.at < int64(10*time.Second))
}

func (a *attempt) ended() bool { return a.end == done || a.end == returned && !a.unsure() }

// until is when the attempt ceased to own its task.
func (a *attempt) until() int64 {
	if a.free == 0 {
		return a.by.dead
	}
	return a.free
}

func (l *ledger) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *ledger) ofLocked(task string) *account {
	a := l.tasks[task]
	if a == nil {
		a = &account{name: task}
		l.tasks[task] = a
	}
	return a
}

// hear records a report of a peer.
func (l *ledger) hear(m *member, r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, task := range r.Tasks {
		a := l.ofLocked(task)
		switch r.What {
		case try:
			a.tried++
			a.key = r.Key
			m.puts++
			a.number = m.puts
		case okay:
			a.okay, a.at = a.okay+1, r.At
		case refused:
			a.refused++
		}
	}
	switch r.What {
	case okay:
		l.okay = append(l.okay, r.At)
		m.okay.hear(r.At)
	case cancel:
		l.ofLocked(r.Task).cancel = true
	case canceled:
		l.ofLocked(r.Task).canceled = r.At
	case lost:
		l.losses = append(l.losses, r.At)
	case began:
		t := &attempt{by: m, of: l.ofLocked(r.Task), key: r.Key, token: r.Token, began: r.At, end: began, at: r.At}
		t.of.attempts = append(t.of.attempts, t)
		l.runs[r.Attempt] = t
		if other, used := l.tokens[r.Token]; used {
			l.wrong = append(l.wrong, fmt.Sprintf("%s and %s were started with token %d", other, r.Task, r.Token))
		} else if l.tokens != nil {
			l.tokens[r.Token] = r.Task
		}
	case told, finishing, done, stale, again, returned:
		t := l.runs[r.Attempt]
		t.end, t.note, t.at = r.What, r.Note, r.At
		if t.free == 0 {
			t.free = r.At
		}
		if r.What == done {
			l.done = append(l.done, r.At)
			m.done.hear(r.At)
		}
	}
}

// A sum is the total of the accounts.
type sum struct {
	tasks, okay, doubtful, canceled, starts, restarts int
	lost, twice                                       int // only allowed after a rollback
}

func (s sum) String() string {
	return fmt.Sprintf("%d tasks accepted, %d perhaps, %d canceled; %d starts, %d of them since a peer was killed; lost %d, done twice %d",
		s.okay, s.doubtful, s.canceled, s.starts, s.restarts, s.lost, s.twice)
}

// judge compares each account with the guarantees. A task that was accepted or done just before a
// rollback may be lost or done twice; deaths are the times when masters died before a replica had
// all their writes.
func (l *ledger) judge(deaths ...int64) (s sum, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong = slices.Clone(l.wrong)
	if len(deaths) > 0 {
		wrong = slices.DeleteFunc(wrong, func(w string) bool { return strings.Contains(w, "with token") }) // they are lost, too
	}
	blame := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	rolledBack := func(from, to int64) bool {
		return slices.ContainsFunc(deaths, func(d int64) bool { return from < d+int64(time.Second) && to > d-int64(window) })
	}
	keys := map[string][]*account{}
	for _, name := range slices.Sorted(maps.Keys(l.tasks)) {
		a := l.tasks[name]
		s.add(a)
		if a.key != "" {
			keys[a.key] = append(keys[a.key], a)
		}
		if a.tried == 0 {
			blame("%s has started, and nobody has enqueued it", name)
		}
		ended, unsure, unexcused := a.counts()
		most := a.tried - a.refused
		undone := slices.ContainsFunc(a.attempts, func(t *attempt) bool { return rolledBack(t.began, t.at) })
		switch {
		case max(ended, unexcused) > most && undone:
			s.twice++
		case ended > most:
			blame("%s was done %d times: %v", name, ended, a.attempts)
		case unexcused > most:
			blame("%s has started again without a reason: %v", name, a.attempts)
		}
		if a.key == "" && !a.cancel && ended+unsure < a.okay {
			if s.lost++; !rolledBack(a.at, a.at) && !undone {
				blame("%s is lost: %v", name, a.attempts)
			}
		}
		for _, t := range a.attempts {
			if a.canceled > 0 && t.began > a.canceled && !rolledBack(a.canceled, a.canceled) {
				blame("%s began %v after its cancel", name, time.Duration(t.began-a.canceled))
			}
		}
		if len(deaths) == 0 {
			wrong = append(wrong, owners(name, a.attempts)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var all []*attempt
		newest, ran := 0, 0
		for _, a := range keys[key] {
			all = append(all, a.attempts...)
			if a.okay > 0 && !rolledBack(a.at, a.at) {
				newest = max(newest, a.number)
			}
			if ended, unsure, _ := a.counts(); ended+unsure > 0 {
				ran = max(ran, a.number)
			}
		}
		if ran < newest {
			blame("the last task under key %s is lost: number %d was accepted, %d has run", key, newest, ran)
		}
		if len(deaths) == 0 {
			wrong = append(wrong, owners("key "+key, all)...)
		}
	}
	return s, wrong
}

// window is how long before its death a master may have accepted writes that no replica has.
const window = 2 * time.Second

func (s *sum) add(a *account) {
	s.tasks++
	s.okay += a.okay
	s.doubtful += a.tried - a.okay - a.refused
	if a.canceled > 0 {
		s.canceled++
	}
	s.starts += len(a.attempts)
	more := len(a.attempts) - (a.tried - a.refused)
	for _, t := range a.attempts {
		if t.end == again {
			more--
		}
	}
	s.restarts += max(more, 0)
}

// counts returns how many attempts have ended, how many may have, and how many don't justify
// another attempt.
func (a *account) counts() (ended, unsure, unexcused int) {
	for _, t := range a.attempts {
		if t.ended() {
			ended++
		}
		if t.unsure() {
			unsure++
		}
		if !t.excused() {
			unexcused++
		}
	}
	return ended, unsure, unexcused
}

// owners finds attempts that owned the same thing at the same time. Each attempt must begin after
// the previous one had ended, with a higher token, which is how an account detects a stale one.
func owners(what string, all []*attempt) (wrong []string) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *attempt) int { return cmp.Compare(a.began, b.began) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.token <= a.token {
			wrong = append(wrong, fmt.Sprintf("%s has token %d after %d", what, b.token, a.token))
		}
		if until := a.until(); until == 0 || until > b.began {
			wrong = append(wrong, fmt.Sprintf("%s has two owners: %v, %v", what, a, b))
		}
	}
	return wrong
}

func (a *attempt) String() string {
	s := fmt.Sprintf("%s with token %d began at %.3f and %s %s at %.3f", a.by.name, a.token, seconds(a.began), a.end, a.note, seconds(a.at))
	if a.by.dead > 0 {
		s += fmt.Sprintf(", killed at %.3f", seconds(a.by.dead))
	}
	return s
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
