package lane

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/store"
)

// A Wrong is called for each violation.
type Wrong func(format string, args ...any)

// of returns a function that reports violations of an invariant.
func (w Wrong) of(i invariants.Invariant) Wrong {
	return func(format string, args ...any) { w(i.ID+": "+format, args...) }
}

// passing are flaws that time makes, and that the fleet mends.
var passing = []invariants.Flaw{invariants.Dead, invariants.Unreturned, invariants.Ahead}

// Flaws reports what is wrong with the queue, as internal/invariants judges it.
func (l *Lane) Flaws(now int64, wrong Wrong) {
	s := l.state(now)
	for _, f := range append(s.Judge(), s.Queue.Judge()...) {
		if !slices.Contains(passing, f.Flaw) {
			about := invariants.Flaws[f.Flaw]
			wrong.of(about.Breaks)("%s of %s, %s: %s", f.Name, l.Queue, f.Flaw, about.Says)
		}
	}
}

// state returns what invariants judge.
func (l *Lane) state(now int64) invariants.State {
	s := invariants.State{Queue: invariants.Queue{Now: now, Token: l.Number("token"), Fence: l.Number("fence"), Place: l.Number("place"),
		Lease: l.Number("lease"), Members: len(l.Workers), Alive: len(l.Workers), Leaving: len(l.Leaving), Idle: len(l.Idle)}}
	for _, places := range []ZSet{l.Ready, l.Risky, l.Aside} {
		for _, place := range places {
			s.Queue.LastPlace = max(s.Queue.LastPlace, place)
		}
	}
	for name := range keysOf(l.Tasks, l.Runs, l.Next) {
		s.Names = append(s.Names, l.about(name))
	}
	for name := range keysOf(l.Ready, l.Schedule, l.Risky, l.Aside, l.Copies) {
		if _, known := keysOf(l.Tasks, l.Runs, l.Next)[name]; !known {
			s.Names = append(s.Names, l.about(name))
		}
	}
	for id := range keysOf(l.Process, l.Owner) {
		_, listed := l.Process[id]
		worker := store.WorkerOf(id)
		_, held := l.Working[worker][id]
		name := l.Name(id)
		s.Attempts = append(s.Attempts, invariants.Attempt{ID: id, HasList: listed, Held: held, Holder: l.Owner[id], Worker: worker,
			Named: IsNamed(id), Name: name, Runs: l.Run(name).Attempt})
	}
	workers := keysOf(l.Workers, l.Suspects, l.Leaving, l.Idle)
	maps.Copy(workers, keysOf(l.Rounds))
	maps.Copy(workers, keysOf(l.Working))
	for worker := range workers {
		s.Workers = append(s.Workers, l.worker(worker))
	}
	return s
}

func keysOf[M ~map[string]V, V any](all ...M) map[string]bool {
	names := map[string]bool{}
	for _, m := range all {
		for name := range m {
			names[name] = true
		}
	}
	return names
}

func (l *Lane) about(name string) invariants.Name {
	n := invariants.Name{Name: name}
	var record, run, behind string
	record, n.HasRecord = l.Tasks[name]
	run, n.HasRun = l.Runs[name]
	behind, n.HasBehind = l.Next[name]
	_, n.Ready = l.Ready[name]
	_, n.Scheduled = l.Schedule[name]
	_, n.Risky = l.Risky[name]
	_, n.Aside = l.Aside[name]
	_, n.Copy = l.Copies[name]
	n.BadRecord = n.HasRecord && spec.ReadRecord(record).String() != record
	n.BadRun = n.HasRun && spec.ReadRun(run).String() != run
	n.BadBehind = n.HasBehind && spec.ReadBehind(behind) == nil
	if n.Attempt = l.Run(name).Attempt; n.Attempt != "" {
		_, n.Held = l.Working[store.WorkerOf(n.Attempt)][n.Attempt]
		_, n.Listed = l.Process[n.Attempt]
	}
	return n
}

func (l *Lane) worker(id string) invariants.Worker {
	w := invariants.Worker{ID: id, Highest: -1}
	text := func(z ZSet) string {
		if score, is := z[id]; is {
			return strconv.FormatInt(score, 10)
		}
		return ""
	}
	w.Deadline, w.Suspect = text(l.Workers), text(l.Suspects)
	_, w.HasRound = l.Rounds[id]
	_, w.Leaving = l.Leaving[id]
	_, w.Idle = l.Idle[id]
	for attempt := range l.Working[id] {
		w.Highest = max(w.Highest, l.Token(attempt))
	}
	return w
}

// Tokens checks that tokens rise: each started attempt has one above all earlier ones. Began has the attempts
// that a request started, in the order of their tokens.
func Tokens(was, is *Lane, began []string, wrong Wrong) {
	if is.Number("token") < was.Number("token") {
		wrong.of(invariants.Fenced)("the token of %s falls from %d to %d", is.Queue, was.Number("token"), is.Number("token"))
	}
	for _, id := range began {
		token, last := is.Token(id), max(is.Given, was.Number("token"))
		if token <= last {
			wrong.of(invariants.Fenced)("%s of %s starts with token %d, but %d was issued before", is.Payload(id), is.Queue, token, last)
		}
		is.Given = max(token, is.Given)
	}
}

// Marks checks that an attempt that must stop is never told to go on.
func Marks(was, is *Lane, wrong Wrong) {
	for worker, held := range was.Working {
		for id, token := range held {
			if now, still := is.Working[worker][id]; still && now != token && now != -token {
				wrong.of(invariants.Fenced)("the token of %s changes from %d to %d", id, token, now)
			} else if still && token < 0 && now > 0 {
				wrong.of(invariants.Cancels)("%s of %s, which must stop, is to go on", fmt.Sprint(id), is.Queue)
			}
		}
	}
}
