package search

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/worqr/worqr/integration/spec"
)

// Which peers are dead, and which peers may judge that, depends on time, so it is searched separately from the
// tasks. Time passes in ticks of a beat, a third of the lease. Between two ticks the beat of each live peer
// arrives at some point; so a beat may be nearly two ticks after the last. To allow for that, the grace is two
// ticks here and one in the library. Faults break the rule: Redis stalls for some ticks, or its clock jumps. A
// beat of every peer has arrived before the next such fault: the protocol makes no promise if Redis answers one
// peer between two stalls and never another.
type leases struct {
	name                 string
	peers                int
	flickers             bool // a fault may follow another before a beat of each peer has arrived
	stalls, jumps, falls uint8
	without              spec.Guard
	looked               map[looking]looking
}

var clockworks = []leases{
	{name: "Redis stalls", peers: 2, stalls: 6, falls: 1},
	{name: "Redis stalls, its clock jumps, and a peer dies", peers: 2, stalls: 2, jumps: 2, falls: 1},
	{name: "Redis stalls, and its clock jumps", peers: 2, stalls: 3, jumps: 2, flickers: true},
}

const (
	deadline = 2 // ticks from a beat to the end of its lease
	grace    = 2 // from suspicion to eviction
	steady   = 3 // how long a peer must have beaten before it may judge
	unseen   = -1
)

// A clockwork is a state of leases. Times are in ticks, from now on or before now.
type clockwork struct {
	member   [maxWorkers]bool
	deadline [maxWorkers]int8
	suspect  [maxWorkers]int8 // when to evict it; unseen if it isn't a suspect
	peers    [maxWorkers]heart
	silent   bool  // Redis has not answered since the last fault
	stalls   uint8 // faults that are left
	jumps    uint8
	falls    uint8
	wrong    wrong
}

// A heart is a peer's view, and its beats.
type heart struct {
	dead   bool
	beaten bool // since the last tick
	heard  bool // since the last fault
	last   int8 // how long ago the last answered beat was sent
	steady int8 // how long its beats have succeeded without a gap; unseen before
	ahead  int8 // how far its estimate of the time of Redis is ahead
	beat   beat // it waits for the answer
	copy   beat // it doesn't wait anymore
}

// A beat is one in flight.
type beat struct {
	there bool
	judge bool
	until int8 // when the right to judge expires
	age   int8
}

func (l *leases) has(g spec.Guard) bool { return g != l.without }

func (l *leases) start() clockwork {
	c := clockwork{stalls: l.stalls, jumps: l.jumps, falls: l.falls}
	for w := range c.suspect {
		c.suspect[w], c.peers[w].steady = unseen, unseen
		c.peers[w].heard = true
	}
	for w := range l.peers {
		c.member[w], c.deadline[w] = true, deadline
	}
	return c
}

func (l *leases) next(c clockwork, give func(move[clockwork])) {
	try := func(format string, w int, fault bool, change func(*clockwork, *heart)) {
		c.try(give, format, w, fault, change)
	}
	all, sent, heard := true, true, true
	for w := range l.peers {
		p := &c.peers[w]
		all = all && (p.dead || p.beaten)
		heard = heard && (p.dead || p.heard)
		sent = sent && (p.dead || p.beaten || p.beat.there)
		if !p.dead && !p.beat.there && !p.beaten {
			try("W%d sends a beat", w, false, func(_ *clockwork, p *heart) { l.send(p) })
		}
		if p.beat.there {
			try("W%d: its beat arrives, and the answer", w, false, func(c *clockwork, p *heart) {
				l.arrive(c, w)
			})
		}
		if p.beat.there && p.beat.age >= 2 && !p.copy.there {
			try("W%d gives up waiting for its beat", w, true, func(_ *clockwork, p *heart) {
				p.copy, p.beat = p.beat, beat{}
			})
		}
		if p.copy.there {
			try("W%d: a beat that it no longer waits for arrives", w, false, func(c *clockwork, p *heart) {
				b := p.copy
				p.copy = beat{}
				l.beats(c, w, b)
			})
		}
		if !p.dead && c.falls > 0 {
			try("W%d dies", w, true, func(c *clockwork, p *heart) {
				c.falls--
				*p = heart{dead: true, copy: p.beat, steady: unseen, heard: true}
			})
		}
	}
	if all {
		try("a tick", 0, false, func(c *clockwork, _ *heart) { c.tick() })
	}
	l.faults(c, give, sent && (c.silent || heard))
}

// try yields the move for a change.
func (c clockwork) try(give func(move[clockwork]), format string, w int, fault bool, change func(*clockwork, *heart)) {
	change(&c, &c.peers[w])
	give(move[clockwork]{label{format, [3]int{w + 1}, strings.Count(format, "%"), nil}, c, fault})
}

// faults yields the faults of Redis; none until a beat of each peer has arrived or is in flight.
func (l *leases) faults(c clockwork, give func(move[clockwork]), rested bool) {
	if c.stalls > 0 && rested {
		c.try(give, "a tick, while Redis stalls", 0, true, func(c *clockwork, _ *heart) {
			c.stalls--
			c.tick()
			c.fault()
		})
	}
	if c.jumps > 0 && (rested || l.flickers) {
		c.try(give, "the clock of Redis jumps by a tick", 0, true, func(c *clockwork, _ *heart) {
			c.jumps--
			c.pass()
			c.fault()
			for w := range c.peers {
				c.peers[w].ahead = max(c.peers[w].ahead-1, -4)
			}
		})
	}
}

// send models the first half of worker.beat.
func (l *leases) send(p *heart) {
	if p.last > 2 && p.steady != unseen && l.has(spec.GapEndsSteady) {
		p.steady = 0
	}
	judge := p.steady >= steady || !l.has(spec.JudgeSteady)
	p.beat = beat{there: true, judge: judge, until: p.ahead + 1}
}

// arrive makes a beat arrive, and its peer process the answer.
func (l *leases) arrive(c *clockwork, w int) {
	p := &c.peers[w]
	b := p.beat
	lapsed := l.beats(c, w, b)
	p.beat, p.beaten, p.heard, p.last, p.ahead = beat{}, true, true, b.age, b.age
	if lapsed && l.has(spec.LapseEndsSteady) || p.steady == unseen {
		p.steady = b.age
	}
}

// A looking is a beat, and everything that its effect depends on.
type looking struct {
	member            [maxWorkers]bool
	deadline, suspect [maxWorkers]int8
	worker            int
	judge             bool
	until             int8
}

// beats makes a beat arrive: a tick is a millisecond there.
func (l *leases) beats(c *clockwork, w int, b beat) (lapsed bool) {
	c.silent = false
	before := looking{c.member, c.deadline, c.suspect, w, b.judge, b.until}
	after, known := l.looked[before]
	if !known {
		after = l.look(before)
		l.looked[before] = after
	}
	for v := range l.peers {
		if c.member[v] && !after.member[v] && !c.peers[v].dead {
			c.wrong = falseDeath
		}
	}
	lapsed = c.member[w] && c.deadline[w] == 0
	c.member, c.deadline, c.suspect = after.member, after.deadline, after.suspect
	return lapsed
}

// look returns what Redis has after a beat.
func (l *leases) look(is looking) looking {
	s, workers, suspects := spec.New(), zset{}, zset{}
	s.Without(l.without)
	for v := range l.peers {
		switch at := ms + float64(is.deadline[v]); {
		case !is.member[v]:
		case at == ms:
			workers[workerID(v)] = ms - 1 // it has expired
		default:
			workers[workerID(v)] = at
		}
		if is.suspect[v] != unseen {
			suspects[workerID(v)] = ms + float64(is.suspect[v])
		}
	}
	put(s, queue.Workers(), workers)
	put(s, queue.Suspects(), suspects)
	args := values{"worker": {workerID(is.worker)}, "lease": {strconv.Itoa(deadline)}, "grace": {strconv.Itoa(grace)}}
	if is.judge {
		args["judge"] = []string{strconv.Itoa(int(ms) + int(is.until))}
	}
	s.Call("beat", spec.KeysOf("beat", queue, ""), argsOf("beat", args), now)
	workers, _ = s.Get(queue.Workers()).(zset)
	suspects, _ = s.Get(queue.Suspects()).(zset)
	for v := range l.peers {
		at, member := workers[workerID(v)]
		is.member[v], is.deadline[v] = member, int8(max(at-ms, 0))
		mark, suspected := suspects[workerID(v)]
		is.suspect[v] = unseen
		if suspected {
			is.suspect[v] = int8(mark - ms)
		}
	}
	return is
}

// tick advances the time of all.
func (c *clockwork) tick() {
	c.pass()
	for w := range c.peers {
		p := &c.peers[w]
		p.beaten, p.last = false, min(p.last+1, 4)
		if p.steady != unseen {
			p.steady = min(p.steady+1, steady)
		}
		for _, b := range []*beat{&p.beat, &p.copy} {
			if b.there {
				b.age = min(b.age+1, 4)
			}
		}
	}
}

// fault records that Redis was away, or its clock wrong.
func (c *clockwork) fault() {
	c.silent = true
	for w := range c.peers {
		c.peers[w].heard = false
	}
}

// pass advances the clock of Redis.
func (c *clockwork) pass() {
	for w := range c.deadline {
		c.deadline[w] = max(c.deadline[w]-1, 0)
		if c.suspect[w] != unseen {
			c.suspect[w] = max(c.suspect[w]-1, 0)
		}
		for _, b := range []*beat{&c.peers[w].beat, &c.peers[w].copy} {
			if b.there {
				b.until = max(b.until-1, -1)
			}
		}
	}
}

func (l *leases) wrong(c clockwork) string {
	if c.wrong == falseDeath {
		return "liveness: a live worker was evicted though its beats got through whenever Redis answered"
	}
	return ""
}

// done: the dead peers were evicted.
func (l *leases) done(c clockwork) bool {
	for w, p := range c.peers {
		if p.dead && c.member[w] {
			return false
		}
	}
	return true
}

func (l *leases) show(c clockwork) string {
	var all []string
	for w := range l.peers {
		p := &c.peers[w]
		b := &strings.Builder{}
		fmt.Fprintf(b, "W%d", w+1)
		switch {
		case !c.member[w]:
			b.WriteString(" isn't a member")
		case c.deadline[w] == 0:
			b.WriteString(" has lapsed")
		default:
			fmt.Fprintf(b, " lapses in %d", c.deadline[w])
		}
		if c.suspect[w] != unseen {
			fmt.Fprintf(b, ", evicted in %d", c.suspect[w])
		}
		fmt.Fprintf(b, "; steady for %d, last beat %d ago", p.steady, p.last)
		if p.dead {
			b.WriteString("; dead")
		}
		for i, beat := range []beat{p.beat, p.copy} {
			if beat.there {
				fmt.Fprintf(b, "; %s under way, sent %d ago", [2]string{"beat", "old beat"}[i], beat.age)
				if beat.judge {
					fmt.Fprintf(b, ", may judge for %d", beat.until)
				}
			}
		}
		all = append(all, b.String())
	}
	return strings.Join(all, "\n")
}
