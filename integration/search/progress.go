package search

import (
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr/integration/spec"
)

// hears returns which of the workers hears that it's woken; -1: none.
func (s *state) hears(worker string) int {
	w := slices.Index(ids, worker)
	if w >= 0 && s.peers[w].phase != member && s.peers[w].phase != leaving {
		return -1
	}
	return w
}

// wakes has a worker hear that it's woken, and reports whether it does.
func (s *state) wakes(worker string) bool {
	w := s.hears(worker)
	if w >= 0 {
		s.peers[w].woken = true
	}
	return w >= 0
}

// mute: a worker is gone, maybe with a wake-up or a claim. Then the next heartbeat of another one helps.
func (s *state) mute(w int) {
	s.unheard = s.unheard || s.peers[w].woken || s.claims == ids[w]
	s.peers[w] = peer{phase: dead}
}

// checkIdle checks that no live worker is idle while something can start, unless one is on its way; and that one of
// them has claimed the next time.
func (s *state) checkIdle() string {
	q, idle := &s.q, false
	if q.State.Has("paused") || len(q.Leaving) > 0 || s.unheard {
		return ""
	}
	for w, p := range s.peers {
		if p.woken {
			return ""
		}
		idle = idle || p.phase == member && q.Idle.Has(ids[w])
	}
	if !idle {
		return ""
	}
	if n := len(q.Queues) + len(q.Ready); n > 0 {
		return fmt.Sprintf("progress: %d can start, %v are idle, and nobody is woken", n, q.Idle)
	}
	if len(q.Schedule) == 0 || q.Schedule[0].Score <= now {
		return ""
	}
	if at := q.Number("claimed"); at <= now || at > q.Schedule[0].Score || !q.Workers.Has(s.claims) {
		return fmt.Sprintf("progress: %v are idle, and nobody has claimed %v, but %s %d", q.Idle, q.Schedule[0], s.claims, at)
	}
	return ""
}

// starts makes a call of start, and checks that those start that are in front.
func (s *state) starts(r spec.Start) (a spec.Started, err error) {
	before := s.q
	s.do("start", effect{}, func() { a, err = s.q.Start(r) })
	last, is := before.Rounds.Get(r.Worker)
	if !is {
		return a, err
	}
	if w := slices.Index(ids, r.Worker); r.Round <= number(last) {
		s.unheard = s.unheard || s.claims == r.Worker // it doesn't know of its claim: the next heartbeat helps
		return a, err
	} else if w >= 0 && r.Wanted > 0 {
		s.peers[w].woken = false
	}
	if a.Due >= 0 {
		s.claims = r.Worker
	}
	if len(a.Tasks) > 0 && (before.State.Has("paused") || len(before.Leaving) > 0) {
		s.wrong = "a task starts in a pause or a return"
	}
	list, ready := slices.Clone(before.Queues), slices.Concat(before.Ready, before.Schedule.UpTo(s.q.Now))
	slices.Reverse(list)
	for _, t := range a.Tasks {
		first := ""
		if t.Name == "" {
			first, list = list[0], list[1:]
		} else if len(ready) > 0 {
			first, ready = ready[0].Name, ready[1:]
		}
		if s.sc.ordered() && first != t.Name && first != t.Record {
			s.wrong = fmt.Sprintf("order: %s%s starts, and %s is first", t.Name, t.Record, first)
		}
	}
	return a, err
}

// ordered reports whether tasks can be told apart, and none loses its place since it's risky.
func (sc *scope) ordered() bool {
	for i, t := range sc.tasks {
		if t.name == "" && slices.Contains(sc.tasks[:i], t) {
			return false
		}
	}
	return sc.crashes == 0
}

// Raw tasks that weren't returned together aren't compared: who is returned later comes first.
const longAgo = 1 << 30

// noteReturned notes what was returned, as long as it can start. A call of finish returns tasks together, and so do all
// calls from one that fences workers to the last that returns their tasks.
func (s *state) noteReturned(back spec.Set, returning, finish bool) {
	for _, m := range s.back {
		if s.back.Remove(m.Name); slices.Contains(s.q.Queues, m.Name) && len(back) > 0 && (finish || !returning) {
			s.back.Put(m.Name, longAgo)
		} else if slices.Contains(s.q.Queues, m.Name) || s.q.Ready.Has(m.Name) {
			s.back.Put(m.Name, m.Score)
		}
	}
	for _, m := range back {
		if slices.Contains(s.q.Queues, m.Name) && finish && returning {
			s.back.Put(m.Name, longAgo)
		} else if slices.Contains(s.q.Queues, m.Name) || s.q.Ready.Has(m.Name) {
			s.back.Put(m.Name, m.Score)
		}
	}
}

// checkOrder checks that returned tasks are before others, in the order of their starts, and raw ones that haven't
// started are in the order in which they were added.
func (s *state) checkOrder() string {
	if !s.sc.ordered() {
		return ""
	}
	list := slices.Clone(s.q.Queues)
	slices.Reverse(list)
	var ready []string
	for _, m := range s.q.Ready {
		ready = append(ready, m.Name)
	}
	const fresh = 1 << 40
	for _, items := range [][]string{list, ready} {
		last := int64(0)
		for _, item := range items {
			at, is := s.back.Score(item)
			if !is {
				at = fresh + int64(slices.Index(s.sc.tasks, task{"", item}))
			}
			if at < last {
				return fmt.Sprintf("order: %v, of which were returned %v", items, s.back)
			}
			last = at
		}
	}
	return ""
}

// drain has all fall silent, and what is late arrive. Heartbeats of a new worker must be enough to find and complete
// what is left, and then nothing is left.
func (s *state) drain() string {
	s = s.clone()
	q, z, round := &s.q, "z", int64(1)
	for w := range s.peers {
		s.mute(w)
	}
	for _, m := range q.Workers {
		q.Workers.Put(m.Name, min(m.Score, now-1))
	}
	q.State.Delete("paused")
	for range 60 {
		if !q.Workers.Has(z) {
			q.Join(z, lease, q.Number("token"), round)
		}
		var p spec.Pulse
		s.do("heartbeat", effect{}, func() { p, _ = q.Heartbeat(z, lease, true) })
		if p.Asks > 0 {
			s.evict("", q.Now+grace)
		}
		if p.More > 0 {
			round++
			a, _ := s.starts(spec.Start{Worker: z, Round: round, Stamp: 9, Lease: lease, Wanted: 9, Solo: true, MaxCrashes: s.sc.crashes})
			var ends []spec.End
			for _, t := range a.Tasks {
				ends = append(ends, end(holds{id: t.ID, name: t.Name, payload: t.Record, token: t.Token}, "done"))
			}
			s.do("finish", endable(q, z, ends), func() { _, _ = q.Finish(z, ends) })
		}
		if s.wrong != "" {
			return s.wrong + ", after all have fallen silent"
		}
		if len(q.Workers) == 1 && len(q.Leaving)+len(q.Tasks)+len(q.Queues) == 0 {
			if len(s.late) == 0 {
				break
			}
			for _, c := range s.late {
				c.make(s)
			}
			s.late = nil
		}
		q.Now += lease / 3
	}
	q.Leave(z, 99)
	rest := len(q.Tasks) + len(q.Queues) + len(q.Next) + len(q.Runs) + len(q.Ready) + len(q.Schedule) + len(q.Risky) + len(q.Copies) +
		len(q.Process) + len(q.Working) + len(q.Workers) + len(q.Suspects) + len(q.Leaving) + len(q.Rounds) + len(q.Idle) + len(q.Crashes)
	if rest > 0 {
		return "nothing left: after all have fallen silent and a new worker has worked: " + strings.Join(q.Lines(), ", ")
	}
	return ""
}
