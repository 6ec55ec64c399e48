package engines

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/redistest"
)

// A sharded is a cluster, and the peers that use it.
type sharded struct {
	*redistest.Cluster
	*fleet
	t *testing.T
	d *rand.Rand

	stops, handovers, working figures

	elections map[*redistest.Server]time.Time // when servers last took over

	// noticed: from a master's death until its replica knows; elected: until the replica is a
	// master; deaths: until all peers work again.
	noticed, elected, deaths figures
}

func startCluster(t *testing.T, replicas int) *sharded {
	t.Helper()
	s := &sharded{t: t, d: dice(t), elections: map[*redistest.Server]time.Time{}}
	s.Cluster = redistest.StartCluster(t, 3, replicas, "--appendonly", "yes", "--appendfsync", "everysec", "--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no")
	s.fleet = newFleet(t, site{url: s.Cluster.URL(), nodes: s.Masters}, s.d)
	return s
}

// slot returns the slot of the queue.
func (s *sharded) slot() int { return s.Slot(s.t, "{"+queue+"}") }

// move moves a slot to another node under load, and measures for how long the queue stops.
func (s *sharded) move(slot int) {
	s.t.Helper()
	from := s.Owner(s.t, slot)
	to := from
	for all := s.Masters(); to == from; {
		to = all[s.d.IntN(len(all))]
	}
	began := load.Mono()
	s.Move(s.t, slot, to)
	over := load.Mono()
	work, _ := s.back(over)
	s.working = append(s.working, work)
	s.stops = append(s.stops, stop(s.ledgerDone(), began, over))
}

// promote kills the owner of a slot when its replica has all its writes or, with a rollback, has
// missed some. It returns when the owner died, and measures how long the slots of that node were
// unavailable.
func (s *sharded) promote(slot int, rollback bool) (died int64) {
	s.t.Helper()
	old, next := s.OwnerAndReplica(s.t, slot)
	if rollback {
		redistest.Apart(s.t, old, func() { s.Kill(old) }, next)
	} else {
		redistest.Agreed(s.t, old, next)
		s.Kill(old)
	}
	died = load.Mono()
	s.Failed(s.t, next)
	noticed := load.Mono()
	s.Promoted(s.t, next)
	elected := load.Mono()
	work, produce := s.back(elected)
	s.noticed = append(s.noticed, time.Duration(noticed-died))
	s.elected = append(s.elected, time.Duration(elected-died))
	s.deaths = append(s.deaths, time.Duration(elected-died)+max(work, produce))
	old.Restart(s.t)
	s.OwnerAndReplica(s.t, slot)
	return died
}

// holdDeaths logs where the time went when masters died, and checks that the peers were back soon
// after each promotion. The time before a promotion depends on the servers, and may exceed the
// guarantee on a busy machine.
func (s *sharded) holdDeaths() {
	s.t.Helper()
	var elections, own figures
	slow := 0
	for i, all := range s.deaths {
		elections = append(elections, s.elected[i]-s.noticed[i])
		own = append(own, all-s.elected[i])
		if s.elected[i] >= afterDeath {
			slow++
		}
	}
	s.t.Logf("from the death of a master until all work again: %v", s.deaths)
	s.t.Logf("of that, the servers: until they agreed that it had failed: %v; then until its replica was a master: %v; together: %v; %d of these took longer than %v",
		s.noticed, elections, s.elected, slow, afterDeath)
	s.t.Logf("of that, the peers: from then until all work again: %v", own)
	for i, d := range own {
		if d >= afterElection { // even on a busy machine
			s.t.Errorf("after promotion %d the peers took %v; %v is promised", i+1, d.Round(time.Millisecond), afterElection)
		}
	}
}

// handOver makes the replica of a slot's owner take over (CLUSTER FAILOVER). It waits until the replica's last election
// is four node timeouts old. During the first two, Redis counts the old votes again: the replica becomes a master and
// gives in a moment later, but its master lets writes wait for five seconds. During the next two, it can't be elected.
func (s *sharded) handOver(slot int) {
	s.t.Helper()
	_, next := s.OwnerAndReplica(s.t, slot)
	s.await("the replica can stand for election again", func() bool { return time.Since(s.elections[next]) > 4*nodeTimeout })
	began := load.Mono()
	s.TakeOver(s.t, next)
	s.elections[next] = time.Now()
	work, produce := s.back(load.Mono())
	s.working = append(s.working, max(work, produce))
	s.handovers = append(s.handovers, stop(s.ledgerDone(), began, load.Mono()))
	if owner, _ := s.OwnerAndReplica(s.t, slot); owner != next {
		s.t.Errorf("%s took over and gave in again, so Redis stopped the queue", next.Addr())
	}
}

func (s *sharded) ledgerDone() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.done[:len(s.ledger.done):len(s.ledger.done)]
}

// The slot of a queue moves back and forth, with its keys, while peers work and are killed. Nothing
// is lost, no task has two owners, and no move stops the queue for long.
func TestMigrations(t *testing.T) {
	s := startCluster(t, 0)
	slot := s.slot()
	for range *rounds {
		s.goOn(20 + s.d.IntN(50))
		s.move(slot)
	}
	s.settle()
	t.Logf("%d moves of the queue's slot; until all work again: %v", *rounds, s.working)
	s.stops.hold(t, "a move stops the queue", duringMove)
}

// Masters of the cluster are killed when their replicas have all their writes: nothing is lost, and
// the queue goes on soon.
func TestPromotions(t *testing.T) {
	s := startCluster(t, 3)
	slot := s.slot()
	for range *rounds {
		s.goOn(20 + s.d.IntN(50))
		s.promote(slot, false)
	}
	s.settle()
	t.Logf("%d masters killed", *rounds)
	s.holdDeaths()
}

// Masters of the cluster are killed when they have accepted writes that no replica has: peers
// report the loss, and every other task is done.
func TestClusterRollbacks(t *testing.T) {
	s := startCluster(t, 3)
	slot := s.slot()
	var deaths []int64
	for range *rounds {
		s.goOn(20 + s.d.IntN(50))
		deaths = append(deaths, s.promote(slot, true))
	}
	sum := s.settle(deaths...)
	t.Logf("%d masters killed with writes that no replica had: %d tasks lost, %d done twice", *rounds, sum.lost, sum.twice)
	s.holdDeaths()
	s.lossesReported(deaths)
}

// Replicas take over from their masters while both work: nothing is lost, and the queue goes on soon.
func TestTakeovers(t *testing.T) {
	s := startCluster(t, 3)
	slot := s.slot()
	for range *rounds {
		s.goOn(20 + s.d.IntN(50))
		s.handOver(slot)
	}
	s.settle()
	t.Logf("%d takeovers; until all work again: %v", *rounds, s.working)
	s.handovers.hold(t, "a takeover stops the queue", duringMove)
}
