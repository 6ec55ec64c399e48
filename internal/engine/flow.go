package engine

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// Time that Redis needs for one round.
const (
	stepTime  = 45 * time.Microsecond  // for any
	startTime = 4 * time.Microsecond   // for each start, at least
	quietTime = 100 * time.Microsecond // for one that is never held back
	thickTime = 800 * time.Microsecond // for one that is thick: little of it is for the round itself
)

const (
	queueTime   = 4 * time.Millisecond   // that Redis needs for what peers may have waiting there without a rest
	mostPeers   = 1000                   // that one of them counts
	rivalry     = 1.25                   // peers; with fewer, ours is alone
	stretch     = 2                      // by how much rests make rounds rarer than Redis needs, at most
	longestRest = 100 * time.Millisecond // unless there are masses of peers
	crowding    = 2                      // how much more each counts that doesn't fit into that
	restPower   = 0.75                   // of the crowd, by which rests grow; with more, who has much keeps it
	memory      = 4                      // rounds by which a peer counts the others; with more, who came first keeps much for long
)

// A flow limits how much a peer has Redis do for a queue at once. When many peers serve a
// busy queue, each has a round waiting at Redis, and every call to Redis waits for all of
// these. So a peer that isn't alone sends one round at a time, just large enough to be
// efficient, and rests after it: longer if there are more peers or the answer took longer.
// While Redis is idle answers come at once, and nobody rests for long.
//
// No peer knows the others. The tokens tell how many tasks all peers have started since our
// last round, and so how many peers there are if each does as much as we do. A peer that does
// less than others counts too many; its rest grows more slowly than that, so it catches up.
type flow struct {
	next time.Time // when the next round may be sent
	ours float64   // tasks that we have started; the last ones weigh most
	all  float64   // tasks that all peers have started, with the same weights
	list bool      // our last ones were all of the list: what these cost does not grow with the queue
}

// started notes how many tasks one of our rounds has started, and how many all peers have since
// the round before.
func (f *flow) started(ours, all int) {
	f.ours += float64(ours) - f.ours/memory
	f.all += float64(min(max(all, ours), mostPeers*max(ours, 1))) - f.all/memory // tokens may jump
}

// peers is how many peers share the queue.
func (f *flow) peers() float64 {
	if f.ours < 1 {
		return 1
	}
	return f.all / f.ours
}

// alone reports whether no other peer does anything that matters.
func (f *flow) alone() bool { return f.peers() < rivalry }

// budget returns how long Redis may work on a round, at such a distance. A longer way needs
// larger rounds to keep as much in flight. Tasks of the schedule don't get them: among many
// others they take longer than estimated.
func (f *flow) budget(way time.Duration) time.Duration {
	most := store.RoundBudget
	if f.list {
		most = min(most+way/2, store.FarBudget)
	}
	if f.alone() {
		return most
	}
	share := float64(2*thickTime+way) / math.Sqrt(f.peers())
	return min(max(time.Duration(share), thickTime), most)
}

// rest returns how long to wait after a round that took that long over such a way, and that kept
// Redis busy that long. A small round is that of a peer whose handlers are slow: it counts too many
// peers, and all that they start while it rests, so it rests for less. In masses peers rest for as
// long as Redis needs for a round of each: any less would pile up there.
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

// hold makes the next round wait for about the rest. Peers come back one after the other as
// Redis answered them; the less a rest varies, the less they meet there.
func (f *flow) hold(now time.Time, rest time.Duration) {
	f.next = time.Time{}
	if rest > 0 {
		f.next = now.Add(rest*9/10 + rand.N(rest)/5)
	}
}

// held is how long the next round has to wait.
func (f *flow) held(now time.Time) time.Duration {
	if f.next.IsZero() {
		return 0
	}
	return f.next.Sub(now)
}
