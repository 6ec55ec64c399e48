package search

import (
	"fmt"
	"slices"

	"github.com/worqr/worqr/integration/spec"
)

// A scope is the bounds of a search.
type scope struct {
	name    string
	workers int
	members int // how many of them are members at the start
	tasks   []task
	first   int // how many of these were added at the start
	verbs   []string
	wanted  []int
	crashes int64 // after how many a task fails
	solo    bool
	cancel  string // the payload that is canceled: "", or that one
	remove  string // the name that is canceled
	prepare func(q *spec.Queue)
	budget
}

// A task is raw, or has a name.
type task struct{ name, payload string }

const canceled = "x" // what a scope cancels, if it does

const (
	now   = 1000
	lease = 300
	grace = 100
)

var ids = []string{"a", "b", "c"}

// start returns the state before the first event.
func (sc *scope) start() state {
	s := state{sc: sc, left: sc.budget}
	limits := &spec.Limits{Return: 1, Copies: 1, Mark: 1}
	s.q = spec.Queue{Now: now, Limits: limits, Failed: &s.failed}
	s.failed = spec.Queue{Now: now, Limits: limits}
	t := s.clone()
	for range sc.first {
		sc.produce(t)
	}
	for w := range sc.members {
		t.q.Join(ids[w], lease, 0, 1)
		t.peers[w] = peer{phase: member, number: 1}
	}
	if sc.prepare != nil {
		sc.prepare(&t.q)
	}
	return *t
}

// produce adds the next task. It's what add and enqueue do, as far as the other verbs are concerned.
func (sc *scope) produce(s *state) {
	t, q := sc.tasks[s.made], &s.q
	s.made++
	q.Hears = s.wakes
	record := spec.Record{Payload: t.payload}.String()
	running, _ := q.Runs.Get(t.name)
	switch {
	case t.name == "":
		q.Queues = append(spec.List{t.payload}, q.Queues...)
		q.Wake(1)
	case !q.Tasks.Has(t.name):
		q.Tasks.Put(t.name, record)
		q.State.Put("place", fmt.Sprint(q.Number("place")+1))
		q.Ready.Put(t.name, q.Number("place"))
		if !q.State.Has("paused") {
			q.Wake(1)
		}
	case running != "" && running[0] != ':':
		q.Next.Put(t.name, "0:always:0:0:"+record)
	default:
		q.Tasks.Put(t.name, record)
	}
}

// next gives every event that may come next, and the state after it, always in the same order.
func (sc *scope) next(from *state, give func(what string, to state)) {
	try := func(may bool, what string, change func(s *state)) {
		if may {
			to := from.clone()
			change(to)
			give(what, *to)
		}
	}
	for w := range sc.workers {
		sc.worker(from, w, func(may bool, what string, change func(s *state, p *peer)) {
			try(may, ids[w]+" "+what, func(s *state) { change(s, &s.peers[w]) })
		})
	}
	sc.redis(from, try)
	if sc.cancel != "" {
		sc.canceler(from, try)
	}
	try(sc.remove != "" && from.left.Removes > 0, "the name is canceled", func(s *state) {
		s.left.Removes--
		payloads := waitingUnder(&s.q, sc.remove)
		if record, is := s.q.Tasks.Get(sc.remove); is {
			s.removed = append(slices.Clip(s.removed), spec.ReadRecord(record).Payload)
		}
		s.removed = append(slices.Clip(s.removed), payloads...)
		s.do("remove", effect{ends: payloads}, func() { s.q.Remove(sc.remove, "canceled") })
	})
}

// redis gives what doesn't depend on one worker.
func (sc *scope) redis(from *state, try func(bool, string, func(s *state))) {
	try(from.made < len(sc.tasks), "a task is added", sc.produce)
	for i, c := range from.late {
		first := !slices.ContainsFunc(from.late[:i], func(o call) bool { return o.worker == c.worker })
		try(first, "late: "+c.what, func(s *state) {
			s.late = without(s.late, i)
			c.make(s)
		})
	}
	for _, judge := range []int64{0, now + 1, now + 2*grace} {
		try(len(from.q.Suspects)+len(from.q.Leaving) > 0 || from.hasExpired(), fmt.Sprint("evict, judge until ", judge), func(s *state) {
			s.evict("", judge)
		})
	}
	for _, m := range from.q.Suspects {
		try(m.Score > now, "the grace of "+m.Name+" is over", func(s *state) { s.q.Suspects.Put(m.Name, now) })
	}
	for _, m := range from.q.Schedule {
		try(m.Score > now, "the time of "+m.Name+" comes", func(s *state) {
			s.q.Schedule.Put(m.Name, now)
			if at := s.q.Number("claimed"); at >= m.Score {
				s.q.State.Put("claimed", fmt.Sprint(now))
				s.wakes(s.claims) // it sends a start
			}
		})
	}
	try(from.left.Pauses > 0, "a pause, or its end", func(s *state) {
		s.left.Pauses--
		s.q.Hears = s.wakes
		s.q.Pause(map[bool]string{false: "me"}[s.q.State.Has("paused")])
	})
	try(from.left.Failovers > 0 && from.saved == nil, "a replica has got all until here", func(s *state) {
		s.saved = &backup{s.q, s.failed}
	})
	try(from.left.Failovers > 0 && from.saved != nil, "a failover to the replica", func(s *state) {
		s.left.Failovers--
		s.q, s.failed, s.saved, s.failedOver, s.back = s.saved.q, s.saved.failed, nil, true, nil
		s.q.Failed = &s.failed
	})
}

func (s *state) hasExpired() bool { return len(s.q.Workers.UpTo(now-1)) > 0 }

// evict makes a call of evict. Unless it names a worker, only who is silent is evicted, and only by who may judge.
func (s *state) evict(target string, judge int64) {
	members := s.q.Workers
	s.do("evict", returnable(&s.q), func() { s.q.Evict(target, judge, grace) })
	for _, m := range members {
		if fair := judge >= s.q.Now && judge < s.q.Now+2*grace && m.Score < s.q.Now; target == "" && !fair && !s.q.Workers.Has(m.Name) {
			s.wrong = fmt.Sprintf("alive: %v is evicted, judged until %d", m, judge)
		}
	}
}

// worker gives what may happen to a worker.
func (sc *scope) worker(from *state, w int, try func(bool, string, func(s *state, p *peer))) {
	id, p := ids[w], &from.peers[w]
	sc.membership(from, w, try)
	if p.phase == member {
		sc.compose(from, w, try)
	}
	sc.rounds(from, w, try)
	alive := p.phase != away && p.phase != dead
	try(alive && from.left.Deaths > 0, "dies; what it has sent is lost", func(s *state, p *peer) {
		s.left.Deaths--
		s.mute(w)
	})
	try(alive && from.left.Deaths > 0 && from.left.Late > 0 && len(p.flight) > 0, "dies; what it has sent is late", func(s *state, p *peer) {
		s.left.Deaths--
		s.left.Late--
		sc.sendLate(s, w, p.flight)
		s.mute(w)
	})
	hears := p.phase == member && sc.cancel != "" && p.heard == 0
	try(hears && from.cancel.phase == 3, "sends a heartbeat, and learns what must stop", func(s *state, p *peer) {
		pulse, err := s.q.Heartbeat(id, lease, true)
		if p.hears(byHeartbeat, stops{ids: pulse.Stops}); err != nil {
			s.mute(w)
		}
	})
	try(hears && from.cancel.phase >= 2 && len(from.q.Canceled) > 0, "gets the message that the payload was canceled", func(s *state, p *peer) {
		token, _ := s.q.Canceled.Get(spec.Digest(sc.cancel))
		p.hears(byMessage, stops{upTo: number(token)})
	})
	deadline, is := from.q.Workers.Score(id)
	try(is && deadline >= now && from.left.Lapses > 0, "is silent until its lease expires", func(s *state, _ *peer) {
		s.left.Lapses--
		s.q.Workers.Put(id, now-1)
	})
	try(is && deadline < now && (p.phase == member || p.phase == leaving), "sends a heartbeat", func(s *state, _ *peer) {
		s.do("heartbeat", effect{}, func() { s.q.Heartbeat(id, lease, true) })
	})
	try(is && from.left.Evictions > 0, "is evicted by its name", func(s *state, _ *peer) {
		s.left.Evictions--
		s.evict(id, 0)
	})
}

// membership gives how a worker joins and leaves.
func (sc *scope) membership(from *state, w int, try func(bool, string, func(s *state, p *peer))) {
	id, p := ids[w], &from.peers[w]
	try(p.phase == away && from.left.Joins > 0, "asks for the token", func(s *state, p *peer) {
		s.left.Joins--
		p.phase, p.asked = asked, s.q.Number("token")
		p.number++
	})
	asks, number := p.asked, p.number
	joins := func(s *state) (answer int) {
		s.do("join", effect{}, func() { answer = s.q.Join(id, lease, asks, number) })
		return answer
	}
	answered := func(s *state, p *peer) {
		switch joins(s) {
		case spec.Joined:
			p.phase = member
		case spec.Late:
			p.phase = away
		}
	}
	try(p.phase == asked, "joins", answered)
	try(p.phase == asked && from.left.Late > 0, "joins, and a copy of the call is late", func(s *state, p *peer) {
		s.left.Late--
		answered(s, p)
		s.late = append(slices.Clip(s.late), call{w, fmt.Sprintf("%s joins, round %d, token %d", id, number, asks), func(s *state) { joins(s) }})
	})
	try(p.phase == member && from.left.Leaves > 0 && len(p.flight) == 0, "begins to leave", func(s *state, p *peer) {
		s.left.Leaves--
		p.phase = leaving
	})
	leaves := func(s *state) (more bool) {
		later := s.q.Workers.Has(id) && s.peers[w].phase == member && s.peers[w].number > number
		s.do("leave", returnable(&s.q), func() { _, more = s.q.Leave(id, number) })
		if later && !s.q.Workers.Has(id) {
			s.wrong = "alive: a late leave ends a later membership of " + id
		}
		return more
	}
	left := func(s *state, p *peer) {
		if !leaves(s) {
			*p = peer{number: p.number, rounds: p.rounds}
		}
	}
	try(p.phase == leaving && from.left.Joins > 0 && from.q.Leaving.Has(id), "gives up its leave, and may join again", func(s *state, p *peer) {
		*p = peer{number: p.number, rounds: p.rounds}
	})
	try(p.phase == leaving, "leaves", left)
	try(p.phase == leaving && from.left.Late > 0, "leaves, and a copy of the call is late", func(s *state, p *peer) {
		s.left.Late--
		left(s, p)
		s.late = append(slices.Clip(s.late), call{w, fmt.Sprintf("%s leaves, round %d", id, number), func(s *state) { leaves(s) }})
	})
}

// compose gives the rounds that a member may send.
func (sc *scope) compose(from *state, w int, try func(bool, string, func(s *state, p *peer))) {
	p := &from.peers[w]
	if p.rounds >= from.left.Rounds || len(p.flight) == 2 {
		return
	}
	for _, wanted := range sc.wanted {
		for few := range len(p.held) + 1 { // it ends so many, those with the lowest tokens
			for _, verb := range sc.verbs[:max(min(few, 1)*len(sc.verbs), 1)] {
				if wanted == 0 && few == 0 {
					continue
				}
				try(true, fmt.Sprintf("sends a round: %d end with %s, %d wanted", few, verb, wanted), func(s *state, p *peer) {
					r := round{number: p.number + 1, wanted: wanted, solo: sc.solo}
					for _, f := range p.flight {
						r.solo = r.solo && !f.solo
					}
					for i, h := range p.held {
						r.solo = r.solo && !(h.risky && i >= few)
					}
					for _, h := range p.held[:few] {
						r.ends = append(r.ends, end(h, verb))
					}
					p.held = p.held[few:]
					r.done = r.begins()
					p.number++
					p.rounds++
					p.flight = append(slices.Clip(p.flight), r)
				})
			}
		}
	}
}

// end returns how an attempt ends. A raw one that is done ends plainly.
func end(h holds, verb string) spec.End {
	e := spec.End{Attempt: h.id, Token: h.token}
	if e.Identity = h.name; h.name == "" {
		e.Identity = "d:" + spec.Digest(h.payload)
	}
	switch {
	case verb == "done" && h.name == "":
		e.Identity = ""
	case verb == "fail":
		e.Verb, e.Text = verb, "failed:why"
	case verb == "later":
		e.Verb, e.Delay = "retry", 5
	default:
		e.Verb = verb
	}
	return e
}

// rounds gives what may happen to the rounds of a worker that are in flight.
func (sc *scope) rounds(from *state, w int, try func(bool, string, func(s *state, p *peer))) {
	p := &from.peers[w]
	if len(p.flight) == 0 {
		return
	}
	first := p.flight[0]
	try(true, fmt.Sprintf("round %d: Redis gets its %s, and answers", first.number, callNames[first.done]), func(s *state, p *peer) {
		r := first
		sc.carryOut(s, w, &r)
		if p.flight = replace(p.flight, 0, r); r.done == 2 {
			s.answered(w)
		}
	})
	if from.left.Lost == 0 {
		return
	}
	calls := 0
	for _, r := range p.flight {
		calls += 2 - r.done
	}
	for n := range calls + 1 { // Redis gets so many before the connection breaks
		again := func(s *state, p *peer) (lost []round) {
			s.left.Lost--
			flight := slices.Clone(p.flight)
			for range n {
				i := slices.IndexFunc(flight, func(r round) bool { return r.done < 2 })
				sc.carryOut(s, w, &flight[i])
			}
			lost, p.flight = flight, slices.Clone(p.flight)
			for i := range p.flight {
				p.flight[i].done = p.flight[i].begins()
			}
			return lost
		}
		try(true, fmt.Sprintf("loses its connection after %d calls, and sends its rounds again", n), func(s *state, p *peer) { again(s, p) })
		try(from.left.Late > 0 && n < calls,
			fmt.Sprintf("loses its connection after %d calls, and sends its rounds again; the rest of the first copies is late", n),
			func(s *state, p *peer) {
				s.left.Late--
				sc.sendLate(s, w, again(s, p))
			})
	}
}

// begins returns the first call of a round: it has no finish if nothing ends.
func (r *round) begins() int {
	if len(r.ends) == 0 {
		return 1
	}
	return 0
}

var callNames = []string{"finish", "start"}

// answered: a worker has the answer to its first round.
func (s *state) answered(w int) {
	p := &s.peers[w]
	r := p.flight[0]
	if r.evicted {
		s.mute(w) // a new worker takes its place
		return
	}
	for _, t := range r.tasks {
		if !t.Over {
			h := holds{id: t.ID, name: t.Name, payload: spec.ReadRecord(t.Record).Payload, token: t.Token, risky: t.Crashes > 0}
			h.stop = p.stops.cover(h)
			p.held = append(slices.Clip(p.held), h)
		}
	}
	p.flight = p.flight[1:]
	if p.stops.rounds--; p.stops.rounds <= 0 {
		p.stops = stops{}
	}
}

func (s stops) cover(h holds) bool {
	return slices.Contains(s.ids, h.id) || h.payload == canceled && h.token <= s.upTo
}

// How a worker hears of a cancel.
const (
	byHeartbeat = 1 + iota // after the cancel has returned
	byMessage
)

// hears: a worker hears what must stop.
func (p *peer) hears(how int, s stops) {
	s.rounds = len(p.flight)
	p.heard, p.held = how, slices.Clone(p.held)
	for i := range p.held {
		p.held[i].stop = p.held[i].stop || s.cover(p.held[i])
	}
	if p.stops = s; s.rounds == 0 {
		p.stops = stops{}
	}
}

// sendLate has the calls that Redis hasn't received yet arrive later.
func (sc *scope) sendLate(s *state, w int, flight []round) {
	for _, r := range flight {
		for r.done < 2 {
			calls := r
			s.late = append(slices.Clip(s.late), call{w, fmt.Sprintf("%s %s %v %v", ids[w], callNames[r.done], r.ends, r.number),
				func(s *state) {
					c := calls
					sc.carryOut(s, w, &c)
				}})
			r.done++
		}
	}
}

// carryOut carries out the next call of a round. A worker that learns that it's no member stops.
func (sc *scope) carryOut(s *state, w int, r *round) {
	var err error
	if r.done == 0 {
		s.do("finish", endable(&s.q, ids[w], r.ends), func() { _, err = s.q.Finish(ids[w], r.ends) })
	} else {
		var a spec.Started
		a, err = s.starts(spec.Start{Worker: ids[w], Round: r.number, Stamp: 9, Lease: lease, Wanted: r.wanted, Idle: r.wanted > 0,
			Solo: r.solo, MaxCrashes: sc.crashes})
		r.tasks = a.Tasks
	}
	if r.done++; err != nil {
		r.evicted = true
	}
}

// canceler gives the steps of the one who cancels a payload.
func (sc *scope) canceler(from *state, try func(bool, string, func(s *state))) {
	c := from.cancel
	pages := func(s *state, after string) (p spec.Page) {
		s.do("cancel", effect{ends: waitingOf(&s.q, sc.cancel)}, func() { p = s.q.Cancel(sc.cancel, after) })
		return p
	}
	page := func(s *state) {
		if s.cancel.phase == 0 {
			s.left.Cancels--
			s.cancel = canceler{phase: 1, made: s.made}
		}
		p := pages(s, s.cancel.after)
		if s.cancel.after, s.cancel.token = p.After, p.Token; p.Last {
			s.cancel.phase, s.cancel.workers = 2, p.Workers
			s.returned()
		}
	}
	try(c.phase == 1 || c.phase == 0 && from.left.Cancels > 0, "a page of the cancel", page)
	mark := func(s *state, worker string, after int64) (upTo int64) {
		s.do("mark", effect{}, func() { upTo, _, _ = s.q.Mark(sc.cancel, c.token, worker, after) })
		return upTo
	}
	marks := func(s *state) {
		c := &s.cancel
		if c.stopped = mark(s, c.workers[0], c.stopped); c.stopped >= c.token {
			c.workers, c.stopped = c.workers[1:], 0
		}
		s.returned()
	}
	try(c.phase == 2, "a page of a mark", marks)
	try(c.phase == 3 && from.left.Minutes > 0, "a minute after the cancel, its token expires", func(s *state) {
		s.left.Minutes--
		s.q.Canceled = nil
	})
	try(c.phase == 2 && from.left.Late > 0, "a page of a mark, and a copy of the call is late", func(s *state) {
		s.left.Late--
		worker := c.workers[0]
		marks(s)
		s.late = append(slices.Clip(s.late), call{-1, "mark of " + worker, func(s *state) { mark(s, worker, c.stopped) }})
	})
}

// returned: the call of the one who cancels returns when all workers have been asked.
func (s *state) returned() {
	if s.cancel.phase == 2 && len(s.cancel.workers) == 0 {
		s.cancel.phase, s.cancel.returned = 3, s.made
	}
}
