package search

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/internal/invariants"
)

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
	return all
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

// An effect is what a call may do to tasks.
type effect struct {
	ends    []string // payloads that it may end
	returns spec.Set // names, or payloads of raw tasks, that it may return, with their tokens
}

func (e *effect) end(payloads ...string) { e.ends = append(e.ends, payloads...) }

// do makes a call. What it ends must be among what it may end, and it adds nothing. Workers hear whether it wakes them.
func (s *state) do(verb string, may effect, call func()) {
	before, returning := payloadsOf(&s.q), len(s.q.Leaving) > 0
	s.q.Hears = s.wakes
	call()
	after := payloadsOf(&s.q)
	if lost := less(less(before, after), may.ends); len(lost) > 0 {
		s.wrong = fmt.Sprintf("conservation: %s loses %v", verb, lost)
	}
	if doubled := less(after, before); len(doubled) > 0 {
		s.wrong = fmt.Sprintf("conservation: %s doubles %v", verb, doubled)
	}
	s.noteReturned(may.returns, returning, verb == "finish")
}

// attempt returns what an attempt runs: a name, or a payload, which a name has, too; what may take its place or give way
// to it; and whether it was canceled.
func attempt(q *spec.Queue, m spec.Member) (item, payload string, behind []string, canceled bool) {
	item, _ = q.Process.Get(m.Name)
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
	return item, payload, behind, m.Score < 0 || is && number(last) >= m.Score
}

func number(text string) (n int64) {
	fmt.Sscan(text, &n)
	return n
}

// endable returns what a worker's finish may do: what is done and what was canceled ends.
func endable(q *spec.Queue, worker string, ends []spec.End) (may effect) {
	held, _ := q.Working.Get(worker)
	for _, e := range ends {
		token, is := held.Score(e.Attempt)
		if !is || max(token, -token) != e.Token || !q.Workers.Has(worker) {
			continue
		}
		item, payload, behind, canceled := attempt(q, spec.Member{Name: e.Attempt, Score: token})
		switch {
		case e.Verb == "" || e.Verb == "done" || e.Verb == "drop" || canceled:
			may.end(payload)
		case e.Verb == "stop":
			may.returns.Put(item, e.Token)
			fallthrough
		case e.Verb != "fail":
			may.end(behind...)
		}
	}
	return may
}

// returnable returns what an evict or a leave may do: what was canceled ends.
func returnable(q *spec.Queue) (may effect) {
	for _, e := range q.Working {
		for _, m := range e.Value {
			item, payload, behind, canceled := attempt(q, m)
			if may.end(behind...); canceled {
				may.end(payload)
			} else {
				may.returns.Put(item, max(m.Score, -m.Score))
			}
		}
	}
	return may
}

// waitingOf returns the copies of a payload that a cancel may remove.
func waitingOf(q *spec.Queue, payload string) (waiting []string) {
	for _, p := range q.Queues {
		if p == payload {
			waiting = append(waiting, p)
		}
	}
	for _, e := range q.Tasks {
		if strings.HasSuffix(e.Value, ":"+payload) && !strings.HasPrefix(e.Name, "k:") && !runs(q, e.Name) {
			waiting = append(waiting, payload)
		}
	}
	return waiting
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
	if s.failedOver {
		return ""
	}
	return cmp.Or(s.checkReceipts(), s.checkCancel(), s.checkRemoved(), s.checkCrashes(), s.checkOrder(), s.checkIdle())
}

// checkReceipts compares what workers run with what Redis says about them.
func (s *state) checkReceipts() string {
	for w, p := range s.peers {
		held, _ := s.q.Working.Get(ids[w])
		if p.phase != member || len(p.flight) > 0 || !s.q.Workers.Has(ids[w]) {
			continue
		}
		if len(held) != len(p.held) || slices.ContainsFunc(p.held, func(h holds) bool { return !held.Has(h.id) }) {
			return fmt.Sprintf("receipts: %s runs %v, and Redis has %v", ids[w], p.held, held)
		}
		if wrong := s.checkStops(&p, held); wrong != "" {
			return wrong
		}
	}
	return ""
}

// checkCancel: once a cancel has returned, only what was added since it began waits, or runs without having to stop.
func (s *state) checkCancel() string {
	c := s.cancel
	for _, e := range s.q.Working {
		if len(e.Value) > 0 && c.phase >= 2 && -e.Value[0].Score > c.token {
			return fmt.Sprintf("cancels: %v must stop, and the cancel covers those up to %d", e.Value[0], c.token)
		}
	}
	if c.phase != 3 {
		return ""
	}
	later := 0
	for _, t := range s.sc.tasks[c.made:s.made] {
		if t.payload == s.sc.cancel {
			later++
		}
	}
	if left := uncanceled(&s.q, s.sc.cancel); left > later {
		return fmt.Sprintf("cancels: %d copies wait or run, and %d were added since it began", left, later)
	}
	return ""
}

// checkRemoved: what was canceled by its name neither waits, nor runs without having to stop.
func (s *state) checkRemoved() string {
	for _, payload := range s.removed {
		if uncanceled(&s.q, payload) > 0 || slices.Contains(payloadsOf(&s.failed), payload) {
			return fmt.Sprintf("cancels: %s was canceled, and waits or runs", payload)
		}
	}
	return ""
}

// checkCrashes: while nobody has been evicted, no crash is counted.
func (s *state) checkCrashes() string {
	if b := s.sc.budget; s.sc.crashes > 0 || s.left.Evictions < b.Evictions || s.left.Lapses < b.Lapses || len(s.q.Crashes) == 0 {
		return ""
	}
	return fmt.Sprintf("crashes: %v", s.q.Crashes)
}

// checkRedis returns the invariant that Redis doesn't hold, now or after a new worker has completed the work.
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
	for _, e := range q.Next {
		if payloadBehind(e.Value) == payload {
			n++
		}
	}
	for _, e := range q.Working {
		for _, m := range e.Value {
			if _, of, _, _ := attempt(q, m); of == payload && m.Score > 0 {
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
