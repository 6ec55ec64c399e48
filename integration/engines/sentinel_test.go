package engines

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/redistest"
)

// A watched is a master with two replicas and sentinels, and the peers that use it.
type watched struct {
	*redistest.Sentinels
	t *testing.T
}

func startSentinels(t *testing.T, setup redistest.SentinelSetup) *watched {
	t.Helper()
	setup.Args = append([]string{"--appendonly", "yes", "--appendfsync", "everysec"}, setup.Args...)
	w := &watched{redistest.StartSentinels(t, setup), t}
	for _, s := range w.Servers {
		w.admit(s)
	}
	w.Ready(t)
	return w
}

// all returns the servers that have keys of their own.
func (w *watched) all() []*redistest.Server { return []*redistest.Server{w.Master(w.t)} }

func (w *watched) site() site { return site{url: w.URL(), login: user + ":SECRET@", nodes: w.all} }

func (w *watched) admit(s *redistest.Server) { admit(w.t, s) }

// admit creates the peers' user on a server, with the rights in docs/security.md and no others.
func admit(t *testing.T, s *redistest.Server) {
	t.Helper()
	rule := redis.Args{"SETUSER", user}.AddFlat(redistest.Rule(t, "worker", prefix))
	redistest.Sure(s.Call("ACL", rule...))(t)
}

// Masters are replaced by hand, without a rollback, while peers work and are killed: the old one
// accepts no writes until the replicas have caught up. Nothing is lost, no task has two owners, and
// every peer works again soon after each promotion.
func TestFailovers(t *testing.T) {
	d := dice(t)
	w := startSentinels(t, redistest.SentinelSetup{Args: []string{
		"--min-replicas-to-write", "1", "--min-replicas-max-lag", "3",
		"--repl-diskless-sync-delay", "0"}}) // else a new master refuses writes for 5 s if its replicas need a full copy
	f := newFleet(t, w.site(), d)
	var waiting, working, producing, stops figures
	for range *rounds {
		old := w.Ready(t)
		f.goOn(20 + d.IntN(100))
		paused := load.Mono()
		w.Replace(t, old, w.Watch[d.IntN(len(w.Watch))], func() {
			at := load.Mono()
			work, produce := f.back(at)
			waiting = append(waiting, time.Duration(at-paused))
			working, producing = append(working, work), append(producing, produce)
			f.mu.Lock()
			defer f.mu.Unlock()
			stops = append(stops, stop(f.ledger.done, paused, load.Mono()))
		})
	}
	s := f.settle()
	t.Logf("%d failovers by hand; from the pause to the promotion: %v", *rounds, waiting)
	t.Logf("no task ended anywhere, with the pause: %v", stops)
	working.hold(t, "after the promotion, until the last peer has ended a task", afterPromotion)
	producing.hold(t, "after the promotion, until the last peer has enqueued one", afterPromotion)
	if s.lost+s.twice > 0 {
		t.Error("nothing may be lost or done twice")
	}
}

// Masters are killed when they have accepted writes for a while that no replica has. Peers report
// the loss, and every other task is done.
func TestRollbacks(t *testing.T) {
	d := dice(t)
	w := startSentinels(t, redistest.SentinelSetup{Hurried: true})
	f := newFleet(t, w.site(), d)
	var deaths []int64
	var working figures
	for range *rounds {
		old := w.Ready(t)
		f.goOn(20 + d.IntN(100))
		redistest.Apart(t, old, old.Kill, w.Others(old)...)
		deaths = append(deaths, load.Mono())
		w.Follow(t, old, func() {})
		work, produce := f.back(load.Mono())
		working = append(working, max(work, produce))
		old.Restart(t)
		w.admit(old)
		w.Demoted(t, old)
	}
	s := f.settle(deaths...)
	t.Logf("%d masters killed with writes that no replica had: %d tasks lost, %d done twice", *rounds, s.lost, s.twice)
	working.hold(t, "after the promotion, until all work again", afterPromotion)
	f.lossesReported(deaths)
}

// lossesReported checks that some peer reported lost writes after each death of a master.
func (f *fleet) lossesReported(deaths []int64) {
	f.t.Helper()
	for i, d := range deaths {
		said := 0
		for _, at := range f.losses {
			if at > d && (i+1 == len(deaths) || at < deaths[i+1]) {
				said++
			}
		}
		f.t.Logf("after death %d of a master, EventLost came %d times", i+1, said)
		if said == 0 {
			f.t.Errorf("after death %d of a master, no peer has reported lost writes", i+1)
		}
	}
}
