package engine

import (
	"math"
	"math/rand/v2"
	"time"
)

// An estimate of Redis's time for one round.
const (
	roundTime = 45 * time.Microsecond  // for any round
	unitTime  = 4 * time.Microsecond   // for each start, and each unit of what the outcomes weigh
	quietTime = 100 * time.Microsecond // for a round that is never delayed
	thickTime = 800 * time.Microsecond // for a large round: little of it is overhead
)

const (
	queueTime   = 4 * time.Millisecond   // how much work, in Redis's time, may wait there before peers rest
	mostPeers   = 1000                   // upper bound of the estimate
	rivalry     = 1.25                   // peers; below this, we count as alone
	stretch     = 2                      // with rests, the interval between rounds is at most this many times what Redis needs
	longestRest = 100 * time.Millisecond // unless there are very many peers
	crowding    = 2                      // the weight of peers beyond queueTime
	restPower   = 0.75                   // exponent by which rests grow; more would favor peers with a large share
	memory      = 4                      // rounds over which a peer counts; more would favor early peers for too long
)

// A flow limits how much of Redis's time a peer uses for a queue at a time. When many peers serve a
// busy queue, each has a round waiting at Redis, and every call to Redis waits for all of these.
// Therefore a peer that isn't alone sends one round at a time, and then rests: longer if there are more
// peers or the answer took longer. While Redis is idle, answers come immediately, and rests are short.
//
// Peers don't know each other. The tokens show how many tasks all peers have started since our last
// round, and so how many peers there are, assuming that each does as much as we do. A peer that
// does less than others overestimates their number; its rest grows more slowly than the estimate,
// so it catches up.
type flow struct {
	next time.Time // when the next round may be sent
	ours float64   // tasks that we have started; recent ones weigh most
	all  float64   // tasks that all peers have started, with the same weights
}

// started records how many tasks a round of ours has started, and how many all peers have started
// since our previous round.
func (f *flow) started(ours, all int) {
	f.ours += float64(ours) - f.ours/memory
	f.all += float64(min(max(all, ours), mostPeers*max(ours, 1))) - f.all/memory // tokens may jump
}

// peers returns the estimated number of peers that share the queue.
func (f *flow) peers() float64 {
	if f.ours < 1 {
		return 1
	}
	return f.all / f.ours
}

// alone reports whether the activity of other peers is negligible.
func (f *flow) alone() bool { return f.peers() < rivalry }

// rest returns the pause after a round. took is how long the round lasted, way the part spent on
// the network, and work Redis's share. A small round comes from a peer with slow handlers. It
// overestimates the number of peers, since it counts everything they start while it rests, so it
// rests for less. If there are very many peers, each rests for as long as Redis needs for a round
// of each: otherwise rounds would pile up there.
func (f *flow) rest(took, way, work time.Duration) time.Duration {
	if f.alone() || work <= quietTime {
		return 0
	}
	waiting := f.peers() * float64(work)
	crowd := 1 + crowding*(waiting/float64(queueTime+way)-1)
	if crowd <= 1 {
		return 0
	}
	small := math.Sqrt(min(1, float64(work)/float64(thickTime)))
	rest := time.Duration(float64(took-way) * (math.Pow(crowd, restPower) - 1) * small)
	return max(min(rest, time.Duration(stretch*waiting)-took, max(longestRest, time.Duration(waiting))), 0)
}

// hold delays the next round by about rest. Peers return one after the other, as Redis answered
// them, so a rest varies by only ±10 %: the more it varied, the more their rounds would collide.
func (f *flow) hold(now time.Time, rest time.Duration) {
	f.next = time.Time{}
	if rest > 0 {
		f.next = now.Add(rest*9/10 + rand.N(rest)/5)
	}
}

func (f *flow) held(now time.Time) time.Duration {
	if f.next.IsZero() {
		return 0
	}
	return f.next.Sub(now)
}
