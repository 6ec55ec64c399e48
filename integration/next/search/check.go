package search

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr/integration/next/spec"
	"github.com/worqr/worqr/internal/next/invariants"
)

// ofSchedule is the payload of occurrences: recur makes them again, so they may come and go.
const ofSchedule = "R"

// payloadsOf returns the payloads of all tasks that haven't ended.
func payloadsOf(q *spec.Queue) (all []string) {
	all = append(all, q.Queues...)
	for _, e := range q.Process {
		if !isNamed(e.Name) {
			all = append(all, e.Value)
		}
	}
	for _, e := range q.Tasks {
		all = append(all, spec.ReadRecord(e.Value).Payload)
	}
	for _, e := range q.Next {
		all = append(all, payloadBehind(e.Value))
	}
	if q.Failed != nil {
		all = append(all, payloadsOf(q.Failed)...)
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == ofSchedule })
}

func isNamed(attempt string) bool { return strings.HasSuffix(attempt, "n") }

func payloadBehind(next string) string {
	return spec.ReadRecord(strings.SplitN(next, ":", 5)[4]).Payload
}

// less returns what is in one list and not in the other.
func less(all, other []string) []string {
	all = slices.Clone(all)
	for _, p := range other {
		if i := slices.Index(all, p); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

// do makes a call. What it ends must be among what it may end, and it adds nothing.
func (s *state) do(what string, may []string, call func()) {
	before := payloadsOf(&s.q)
	call()
	after := payloadsOf(&s.q)
	if lost := less(less(before, after), may); len(lost) > 0 {
		s.wrong = fmt.Sprintf("conservation: %s loses %v", what, lost)
	}
	if doubled := less(after, before); len(doubled) > 0 {
		s.wrong = fmt.Sprintf("conservation: %s doubles %v", what, doubled)
	}
}

// attempt returns the payload of an attempt, what may take its place or give way to it, and whether it was canceled.
func attempt(q *spec.Queue, m spec.Member) (payload string, behind []string, canceled bool) {
	item, _ := q.Process.Get(m.Name)
	digest := spec.Digest(item)
	if payload = item; isNamed(m.Name) {
		record, _ := q.Tasks.Get(item)
		payload = spec.ReadRecord(record).Payload
		if next, is := q.Next.Get(item); is {
			behind = []string{payload, payloadBehind(next)}
		}
		if digest = spec.Digest(payload); !strings.HasPrefix(item, "r:") && !strings.HasPrefix(item, "u:") {
			digest = ""
		}
	}
	last, is := q.Canceled.Get(digest)
	return payload, behind, m.Score < 0 || is && number(last) >= m.Score
}

func number(text string) (n int64) {
	fmt.Sscan(text, &n)
	return n
}

// endable returns what a worker's finish may end: what is done, and what was canceled.
func endable(q *spec.Queue, worker string, ends []spec.End) (may []string) {
	held, _ := q.Working.Get(worker)
	for _, e := range ends {
		token, is := held.Score(e.Attempt)
		if !is || max(token, -token) != e.Token || !q.Workers.Has(worker) {
			continue
		}
		payload, behind, canceled := attempt(q, spec.Member{Name: e.Attempt, Score: token})
		if e.Verb == "" || e.Verb == "done" || e.Verb == "drop" || canceled {
			may = append(may, payload)
		} else if e.Verb != "fail" {
			may = append(may, behind...)
		}
	}
	return may
}

// returnable returns what an evict or a leave may end: what was canceled.
func returnable(q *spec.Queue, leaving string) (may []string) {
	for _, e := range q.Working {
		for _, m := range e.Value {
			payload, behind, canceled := attempt(q, m)
			if may = append(may, behind...); canceled {
				may = append(may, payload)
			}
		}
	}
	return may
}

// waitingOf returns the copies of a payload that a cancel may remove.
func waitingOf(q *spec.Queue, payload string) (may []string) {
	for _, p := range q.Queues {
		if p == payload {
			may = append(may, p)
		}
	}
	for _, e := range q.Tasks {
		if strings.HasSuffix(e.Value, ":"+payload) && !strings.HasPrefix(e.Name, "k:") && !runs(q, e.Name) {
			may = append(may, payload)
		}
	}
	return may
}

func runs(q *spec.Queue, name string) bool {
	run, is := q.Runs.Get(name)
	return is && run[0] != ':'
}

func waitingUnder(q *spec.Queue, name string) []string {
	if next, is := q.Next.Get(name); is {
		return []string{payloadBehind(next)}
	}
	if record, is := q.Tasks.Get(name); is && !runs(q, name) {
		return []string{spec.ReadRecord(record).Payload}
	}
	return nil
}

// check returns the invariant between Redis and those outside that doesn't hold; "" if all do.
func (s *state) check() string {
	q := &s.q
	for w, p := range s.peers {
		held, _ := q.Working.Get(ids[w])
		if p.phase != member || len(p.flight) > 0 || !q.Workers.Has(ids[w]) || s.failedOver {
			continue
		}
		if len(held) != len(p.held) || slices.ContainsFunc(p.held, func(h holds) bool { return !held.Has(h.id) }) {
			return fmt.Sprintf("receipts: %s runs %v, and Redis has %v", ids[w], p.held, held)
		}
		if wrong := s.checkStops(&p, held); wrong != "" {
			return wrong
		}
	}
	if c := s.cancel; c.phase == 3 {
		later := 0
		for _, t := range s.sc.tasks[c.made:s.made] {
			if t.payload == s.sc.cancel {
				later++
			}
		}
		if left := uncanceled(q, s.sc.cancel); left > later {
			return fmt.Sprintf("cancels: %d copies wait or run, and %d were added since it began", left, later)
		}
	}
	return ""
}

// checkRedis returns the invariant that Redis doesn't hold, now or after all have died and a new worker has completed
// the work.
func (s *state) checkRedis() string { return cmp.Or(judged(&s.q), s.drain()) }

// checkStops checks that a worker that has heard of a cancel stops what that covers, and that risky tasks run alone.
func (s *state) checkStops(p *peer, held spec.Set) string {
	risky := 0
	for _, h := range p.held {
		token, _ := held.Score(h.id)
		if covered := token < 0 || h.payload == s.sc.cancel && h.token <= s.cancel.token; p.heard > 0 && covered != h.stop {
			return fmt.Sprintf("cancels: a worker that has heard of it runs %s, covered %v, stopped %v", h.id, covered, h.stop)
		}
		if h.risky {
			risky++
		}
	}
	if s.sc.crashes == 2 && risky > 1 {
		return "risky tasks run one at a time"
	}
	return ""
}

// uncanceled returns how many copies of a payload wait, or run and needn't stop.
func uncanceled(q *spec.Queue, payload string) int {
	n := len(waitingOf(q, payload))
	for _, e := range q.Working {
		for _, m := range e.Value {
			if of, _, _ := attempt(q, m); of == payload && m.Score > 0 {
				n++
			}
		}
	}
	return n
}

// judged returns the first flaw of what Redis holds, but for work that is left to others.
func judged(q *spec.Queue) string {
	of := invariants.State{Queue: invariants.Queue{Now: now, Token: q.Number("token"), Fence: q.Number("fence"), Place: q.Number("place"), Lease: lease}}
	names, attempts, workers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, h := range []spec.Hash{q.Tasks, q.Next, q.Runs} {
		for _, e := range h {
			names[e.Name] = true
		}
	}
	for _, s := range []spec.Set{q.Ready, q.Risky, q.Aside, q.Schedule, q.Copies} {
		for _, m := range s {
			names[m.Name] = true
		}
	}
	for _, m := range slices.Concat(q.Ready, q.Risky, q.Aside) {
		of.Queue.LastPlace = max(of.Queue.LastPlace, m.Score)
	}
	for name := range names {
		of.Names = append(of.Names, nameOf(q, name))
	}
	for _, m := range slices.Concat(q.Workers, q.Suspects, q.Leaving, q.Idle) {
		workers[m.Name] = true
	}
	for _, e := range q.Process {
		attempts[e.Name] = true
	}
	for _, e := range q.Working {
		workers[e.Name] = true
		for _, m := range e.Value {
			attempts[m.Name] = true
		}
	}
	for id := range attempts {
		of.Attempts = append(of.Attempts, attemptOf(q, id))
	}
	for id := range workers {
		of.Workers = append(of.Workers, workerOf(q, id))
	}
	for _, f := range append(of.Queue.Judge(), of.Judge()...) {
		if invariants.Flaws[f.Flaw].Breaks != invariants.Progress {
			return fmt.Sprintf("%s: %s: %s", invariants.Flaws[f.Flaw].Breaks.ID, invariants.Flaws[f.Flaw].Says, f.Name)
		}
	}
	return ""
}

// nameOf, attemptOf and workerOf return what the keys say about each.
func nameOf(q *spec.Queue, name string) invariants.Name {
	run, _ := q.Runs.Get(name)
	id, _, _ := strings.Cut(run, ":")
	_, held := holder(q, id)
	return invariants.Name{
		Name: name, HasRecord: q.Tasks.Has(name), HasRun: run != "", HasBehind: q.Next.Has(name), Ready: q.Ready.Has(name),
		Scheduled: q.Schedule.Has(name), Risky: q.Risky.Has(name), Aside: q.Aside.Has(name), Copy: q.Copies.Has(name),
		Attempt: id, Held: held, Listed: q.Process.Has(id),
	}
}

func attemptOf(q *spec.Queue, id string) invariants.Attempt {
	a := invariants.Attempt{ID: id, HasList: q.Process.Has(id), Worker: id[:1], Named: isNamed(id)}
	a.Holder, a.Held = holder(q, id)
	a.Name, _ = q.Process.Get(id)
	run, _ := q.Runs.Get(a.Name)
	a.Runs, _, _ = strings.Cut(run, ":")
	return a
}

func holder(q *spec.Queue, attempt string) (worker string, is bool) {
	for _, e := range q.Working {
		if e.Value.Has(attempt) {
			return e.Name, true
		}
	}
	return "", false
}

func workerOf(q *spec.Queue, id string) invariants.Worker {
	w := invariants.Worker{ID: id, HasRound: q.Rounds.Has(id), Leaving: q.Leaving.Has(id), Idle: q.Idle.Has(id), Highest: -1}
	if deadline, is := q.Workers.Score(id); is {
		w.Deadline = fmt.Sprint(deadline)
	}
	if until, is := q.Suspects.Score(id); is {
		w.Suspect = fmt.Sprint(until)
	}
	held, _ := q.Working.Get(id)
	for _, m := range held {
		w.Highest = max(w.Highest, m.Score, -m.Score)
	}
	return w
}

// drain has everybody die, and what is late arrive. Then a new worker completes what is left, and nothing is left.
func (s *state) drain() string {
	s = s.clone()
	q := &s.q
	s.evictAll()
	for _, c := range s.late {
		c.make(s)
	}
	s.evictAll()
	q.State.Delete("paused")
	token := q.Number("token")
	q.Join("z", lease, token, 1)
	for round := int64(2); len(q.Tasks)+len(q.Queues) > 0; round++ {
		for _, m := range q.Schedule {
			q.Schedule.Put(m.Name, now)
		}
		a, err := q.Start(spec.Start{Worker: "z", Round: round, Stamp: 9, Lease: lease, Wanted: 9, Solo: true, MaxCrashes: s.sc.crashes})
		var ends []spec.End
		for _, t := range a.Tasks {
			ends = append(ends, end(holds{id: t.ID, name: t.Name, payload: t.Record, token: t.Token}, "done"))
		}
		s.do("finish", endable(q, "z", ends), func() { q.Finish("z", 0, ends) })
		if s.wrong == "" && round > 30 {
			s.wrong = fmt.Sprint("progress: a new worker can't complete the work: ", err)
		}
		if s.wrong != "" {
			return s.wrong + ", after all have died"
		}
	}
	q.Leave("z", 99)
	rest := len(q.Next) + len(q.Runs) + len(q.Ready) + len(q.Schedule) + len(q.Risky) + len(q.Copies) + len(q.Process) + len(q.Working) +
		len(q.Workers) + len(q.Suspects) + len(q.Leaving) + len(q.Rounds) + len(q.Idle) + len(q.Crashes)
	if rest > 0 {
		return "nothing left: " + strings.Join(q.Lines(), ", ")
	}
	return ""
}

func (s *state) evictAll() {
	for _, m := range s.q.Workers {
		s.evict(m.Name, 0)
	}
	for range 30 {
		if len(s.q.Leaving) > 0 {
			s.evict("", 0)
		}
	}
}
