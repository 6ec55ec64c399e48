package recurring

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	schedules = flag.Int("recurring.schedules", 40, "how many schedules there are")
	kills     = flag.Int("recurring.kills", 3, "how many peers are killed, in three phases")
	gap       = flag.Duration("recurring.gap", 400*time.Millisecond, "how long to wait between kills, on average")
	lease     = flag.Duration("recurring.lease", time.Second, "of the peers")
)

func TestMain(m *testing.M) {
	if c, given := child.Given[config](); given {
		os.Exit(peerMain(c))
	}
	os.Exit(redistest.Main(m.Run))
}

const peers = 5

// slack is how late a start may be: dead workers delay it by 1.5 leases each, and the machine is
// busy.
func slack() time.Duration { return 6**lease + 3*time.Second }

// lapse is how long a schedule may still occur once no peer asserts it, plus one beat.
func lapse() time.Duration { return 11 * *lease / 3 }

// A fleet has the live peers, and all reports.
type fleet struct {
	t   *testing.T
	url string

	mu   sync.Mutex // protects the field below
	said []report

	live  []*child.Process[report]
	heard sync.WaitGroup
	died  int
}

// start starts a peer of a deploy. It kills the peer in that place, if there is one.
func (f *fleet) start(place, deploy int) {
	f.t.Helper()
	if old := f.live[place]; old != nil {
		old.Kill()
		f.died++
	}
	p, err := child.Start[report](context.Background(), child.Options{
		Config: config{f.url, *lease, deploy, *schedules}, Env: []string{"GOMAXPROCS=1"}})
	redistest.Sure(p, err)(f.t)
	f.t.Cleanup(func() {
		if p.Kill(); f.t.Failed() {
			f.t.Logf("a peer said:\n%s", p.Said())
		}
	})
	f.live[place] = p
	f.heard.Go(func() {
		for r := range p.Reports {
			f.mu.Lock()
			f.said = append(f.said, r)
			f.mu.Unlock()
		}
	})
}

// occurred waits until all schedules of a kind have started since a time.
func (f *fleet) occurred(what string, since int64, of func(r report, i int) bool) {
	f.t.Helper()
	want := map[string]bool{}
	for i := range *schedules {
		if of(report{}, i) {
			want[strconv.Itoa(i)] = true
		}
	}
	peertest.Eventually(f.t, what, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		seen := map[string]bool{}
		for _, r := range f.said {
			if i, _ := strconv.Atoi(r.Key); r.At > since && of(r, i) {
				seen[r.Key] = true
			}
		}
		return len(seen) == len(want)
	})
}

// TestKills kills peers while schedules occur, while a second deploy replaces the first, and then
// peers of the second.
func TestKills(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d; to run longer: go test ./integration/recurring -v -recurring.schedules 1000 -recurring.kills 500 -recurring.lease 3s", seed)
	d := rand.New(rand.NewPCG(seed, 0))
	f := &fleet{t: t, url: redistest.Start(t).URL(), live: make([]*child.Process[report], peers)}
	rest := func() { time.Sleep(*gap/2 + time.Duration(d.Int64N(int64(*gap)))) } // between kills
	for i := range peers {
		f.start(i, 1)
	}
	f.occurred("all occur", 0, func(report, int) bool { return true })
	begun := time.Now().UnixMilli()
	for range *kills / 3 {
		rest()
		f.start(d.IntN(peers), 1)
	}
	// A peer of the second deploy starts and stays, while those of the first are killed and
	// restarted.
	f.start(0, 2)
	newer := time.Now().UnixMilli()
	f.occurred("what has changed occurs", newer, func(r report, i int) bool { return changes(i) && (r.Key == "" || r.Payload == "2") })
	settled := time.Now().UnixMilli()
	for range *kills / 3 {
		rest()
		f.start(1+d.IntN(peers-1), 1)
	}
	mixed := time.Now().UnixMilli()
	for i := 1; i < peers; i++ {
		f.start(i, 2)
	}
	last := time.Now() // when the first deploy ended
	for range *kills - 2*(*kills/3) {
		rest()
		f.start(d.IntN(peers), 2)
	}
	over := last.Add(lapse()).UnixMilli()
	f.occurred("the others go on", over+3000, func(_ report, i int) bool { return !retires(i) })
	ended := time.Now().UnixMilli()
	for _, p := range f.live {
		p.Kill()
	}
	f.heard.Wait()

	j := judge{t: t, said: map[string][]report{}}
	for _, r := range f.said {
		j.said[r.Key] = append(j.said[r.Key], r)
	}
	for i := range *schedules {
		j.twice(i)
		switch {
		case retires(i):
			j.occurs(i, 1, begun, mixed)
			j.never(i, "", over)
		case changes(i):
			j.occurs(i, 1, begun, newer)
			j.occurs(i, 2, settled, ended)
			j.never(i, "1", settled)
		default:
			j.occurs(i, 1, begun, ended)
		}
	}
	t.Logf("%d schedules on %d peers, %d kills: %d occurrences, %d late, %d not of their own since one before was late, %d started again after a death or a retry",
		*schedules, peers, f.died, j.occurrences, j.late, j.joined, j.again)
}

// A judge has the reports about each key, and checks them.
type judge struct {
	t                                *testing.T
	said                             map[string][]report
	occurrences, late, joined, again int
}

// occurs checks that each occurrence between two times has started, unless an earlier one started
// after it was due and so stands for it.
func (j *judge) occurs(i, deploy int, from, to int64) {
	each := period(i, *schedules)
	if deploy == 2 {
		each += time.Second
	}
	said := slices.Clone(j.said[strconv.Itoa(i)])
	slices.SortFunc(said, func(a, b report) int { return cmp.Compare(a.Due, b.Due) })
	for at := time.UnixMilli(from).Truncate(each).Add(each); at.UnixMilli() < to-slack().Milliseconds(); at = at.Add(each) {
		due := at.UnixMilli()
		j.occurrences++
		place := slices.IndexFunc(said, func(r report) bool { return r.Due == due })
		late := slices.IndexFunc(said, func(r report) bool { return r.Due < due && r.At >= due && r.At < due+slack().Milliseconds() })
		switch {
		case place >= 0 && said[place].At > due+1500:
			j.late++
		case place >= 0:
		case late >= 0:
			j.joined++
		default:
			j.t.Errorf("schedule %d, every %v: nothing has started for %v (%d)", i, each, at.UTC().Format(time.TimeOnly), due)
		}
	}
}

// twice checks that each start of an occurrence after the first follows a death or a failure.
func (j *judge) twice(i int) {
	starts := map[int64]map[string]int{}
	for _, r := range j.said[strconv.Itoa(i)] {
		if starts[r.Due] == nil {
			starts[r.Due] = map[string]int{}
		}
		if r.At < r.Due {
			j.t.Errorf("schedule %d: the occurrence of %d has started at %d", i, r.Due, r.At)
		}
		starts[r.Due][fmt.Sprint(r.Retries, r.Crashes)]++
	}
	for _, due := range slices.Sorted(maps.Keys(starts)) {
		j.again += len(starts[due]) - 1
		for counts, n := range starts[due] {
			if n > 1 {
				j.t.Errorf("schedule %d: the occurrence of %d has started %d times with %s retries and crashes", i, due, n, counts)
			}
		}
	}
}

// never checks that no occurrence started after a time, or none with a payload.
func (j *judge) never(i int, payload string, after int64) {
	for _, r := range j.said[strconv.Itoa(i)] {
		if (payload == "" || r.Payload == payload) && r.Retries+r.Crashes == 0 && r.At > after {
			j.t.Errorf("schedule %d: the occurrence of %d has started %d ms too late, with payload %s", i, r.Due, r.At-after, r.Payload)
		}
	}
}
