package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/recur"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A every is a schedule with a period, some time after its multiples.
type every struct{ period, after time.Duration }

func (e every) Next(t time.Time) time.Time {
	return t.Add(-e.after).Truncate(e.period).Add(e.period + e.after)
}

// A daily is a schedule each day at a local time.
type daily struct {
	hour, minute int
	zone         *time.Location
}

func (d daily) Next(t time.Time) time.Time {
	y, m, day := t.In(d.zone).Date()
	for ; ; day++ {
		if at := time.Date(y, m, day, d.hour, d.minute, 0, 0, d.zone); at.After(t) {
			return at
		}
	}
}

// A recurringJob is one of the week, as one deploy has it.
type recurringJob struct {
	recur.Schedule
	payload string
	late    time.Duration // SkipLate
}

func (j recurringJob) spec() recur.Spec {
	record := store.Record{Payload: []byte(j.payload), Expires: j.late.Milliseconds()}
	return recur.Spec{Schedule: j.Schedule, Record: record.Append(nil)}
}

// jobsOf returns the jobs of a deploy: the first has ten. The second moves one, retires one, adds one, and changes
// the payload of one; the third changes that back.
func jobsOf(t *testing.T, deploy int) map[string]recurringJob {
	berlin := redistest.Sure(time.LoadLocation("Europe/Berlin"))(t)
	newYork := redistest.Sure(time.LoadLocation("America/New_York"))(t)
	all := map[string]recurringJob{
		"quarter": {every{15 * time.Minute, 0}, "1", 0},
		"hour":    {every{time.Hour, 0}, "1", 0},
		"half":    {every{30 * time.Minute, 7 * time.Minute}, "1", 0},
		"night":   {daily{2, 30, berlin}, "1", 0},
		"evening": {daily{19, 15, newYork}, "1", 0},
		"prompt":  {every{3 * time.Hour, time.Minute}, "1", 45 * time.Minute},
		"moved":   {every{time.Hour, 20 * time.Minute}, "1", 0},
		"paid":    {every{time.Hour, 10 * time.Minute}, "1", 0},
		"retired": {every{2 * time.Hour, 30 * time.Minute}, "1", 0},
		"noon":    {every{24 * time.Hour, 12*time.Hour + 5*time.Minute}, "1", 0},
	}
	if deploy > 1 {
		all["moved"] = recurringJob{every{time.Hour, 40 * time.Minute}, "1", 0}
		all["new"] = recurringJob{every{2 * time.Hour, 50 * time.Minute}, "1", 0}
		delete(all, "retired")
	}
	if deploy == 2 {
		all["paid"] = recurringJob{every{time.Hour, 10 * time.Minute}, "2", 0}
	}
	return all
}

// An occurred is a start of a job.
type occurred struct {
	key, payload string
	due, at      time.Time
	crashes      int
	end          time.Time // zero: its worker died, or had lost it
}

// A week is a fleet of peers that run jobs, and what it did.
type week struct {
	*testing.T
	*clockwork
	q      store.Target
	random *rand.Rand
	peers  [3]*weekPeer

	mu      sync.Mutex
	started []*occurred
	lost    []time.Time // failovers
	stopped [][2]time.Time
	deaths  []time.Time
	names   int
}

// The lease isn't judged here: workers are evicted by the test, grace after their death.
const (
	weekLease = 5 * time.Minute // a schedule is asserted for as long
	weekGrace = 6 * time.Minute
	weekPoll  = 3 * time.Minute
)

// A weekPeer asserts schedules and runs tasks, until it dies or is stopped.
type weekPeer struct {
	worker string
	kill   context.CancelFunc
	leave  chan struct{} // closed: it ends its task and leaves
	ended  sync.WaitGroup
}

func (w *week) start(place, deploy int) {
	w.names++
	ctx, kill := context.WithCancel(w.Context())
	p := &weekPeer{worker: fmt.Sprint("w", w.names), kill: kill, leave: make(chan struct{})}
	schedules := recur.New(recur.Config{
		Calls: w, Log: logs.New(slog.New(slog.DiscardHandler)), Beat: weekLease / 3, List: func(context.Context, store.Target) {},
	})
	for key, job := range jobsOf(w.T, deploy) {
		redistest.Must(w, schedules.Set(w.q, "k:"+key, job.spec()))
	}
	asserts, stop := context.WithCancel(ctx)
	p.ended.Go(func() { schedules.Begin(asserts); schedules.Run(asserts) })
	p.ended.Go(func() {
		w.work(ctx, p, schedules)
		stop()
	})
	w.peers[place] = p
}

// work runs tasks, one at a time.
func (w *week) work(ctx context.Context, p *weekPeer, schedules *recur.Schedules) {
	shared, round := store.SharedOf(w.q.Keys), int64(0)
	join := func() {
		for joined := store.JoinLate; joined != store.IsMember && ctx.Err() == nil; {
			asked, err := store.ReadToken(w.Do(ctx, store.TokenCall(w.q.Keys))[0])
			redistest.Must(w, err)
			joined = redistest.Sure(store.ReadJoin(w.Do(ctx, store.JoinCall(shared, p.worker, 0, asked, round))[0]))(w)
			if joined == store.JoinWaits {
				time.Sleep(time.Minute)
			}
		}
	}
	join()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.leave:
			redistest.Sure(store.Leave(w.Context(), w, shared, p.worker, round))(w)
			return
		default:
		}
		pulse, err := store.ReadHeartbeat(w.Do(ctx, store.HeartbeatCall(shared, p.worker, 0, false))[0])
		round++
		r := store.Round{Start: &store.Start{Worker: p.worker, Round: round, Stamp: round, Wanted: 1, Idle: true, Solo: true, MaxCrashes: 100}}
		result := r.Read(w.q.Keys, w.Do(ctx, r.Calls(shared)...))
		if errors.Is(err, store.ErrEvicted) || errors.Is(result.StartErr, store.ErrEvicted) { // after a failover
			join()
			continue
		}
		redistest.Must(w, errors.Join(err, result.StartErr))
		if pulse.Over {
			schedules.Over(w.q)
		}
		wait := weekPoll
		if due := result.Answer.Due; due >= 0 {
			wait = min(wait, due)
		}
		for _, a := range result.Answer.Tasks {
			wait = 0
			w.handle(ctx, p, shared, &a, time.UnixMilli(result.Answer.Now))
		}
		select {
		case <-ctx.Done():
		case <-p.leave:
		case <-time.After(wait):
		}
	}
}

// handle runs a task for up to a minute.
func (w *week) handle(ctx context.Context, p *weekPeer, shared *store.Shared, a *store.Attempt, now time.Time) {
	o := &occurred{key: store.KeyOf(a.Name), payload: string(a.Record.Payload), due: time.UnixMilli(a.Record.Due), at: now, crashes: a.Crashes}
	w.mu.Lock()
	w.started = append(w.started, o)
	takes := time.Duration(w.random.Int64N(int64(time.Minute)))
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return
	case <-time.After(takes):
	}
	r := store.Round{Finish: &store.Finish{Worker: p.worker, Ends: []*store.End{{Attempt: a.ID, Token: a.Token, Name: a.Name, Verb: store.Done}}}}
	result := r.Read(w.q.Keys, w.Do(ctx, r.Calls(shared)...))
	if errors.Is(result.FinishErr, store.ErrEvicted) {
		return // after a failover
	}
	redistest.Must(w, result.FinishErr)
	if result.Settled[0] == store.OK {
		o.end = w.now()
	}
}

// die kills a peer, and evicts its worker a grace later, as others do.
func (w *week) die(place int) {
	p := w.peers[place]
	p.kill()
	w.mu.Lock()
	w.deaths = append(w.deaths, w.now())
	w.mu.Unlock()
	p.ended.Wait()
	time.Sleep(weekGrace)
	_, err := store.EvictAll(w.Context(), w, w.q.Keys, p.worker, 0, time.Second)
	redistest.Must(w, err)
}

// deploy replaces the peers one after the other.
func (w *week) deploy(deploy int) {
	for place, p := range w.peers {
		close(p.leave)
		p.ended.Wait()
		p.kill()
		time.Sleep(time.Minute)
		w.start(place, deploy)
		time.Sleep(4 * time.Minute)
	}
}

// until sleeps until a time of the week.
func (w *week) until(days int, hour, minute time.Duration) {
	at := monday.Add(time.Duration(days)*24*time.Hour + hour*time.Hour + minute*time.Minute)
	if at.Before(time.Now()) {
		w.Fatalf("%v has passed; it's %v", at, time.Now())
	}
	time.Sleep(time.Until(at))
}

// In this week, summer begins in Berlin on Sunday.
var monday = time.Date(2000, 3, 20, 0, 0, 0, 0, time.UTC)

// TestWeek runs ten jobs for a week, with peers that die, a pause, two deploys, failovers that lose writes, and a
// time without peers. Each occurrence runs once, unless it was missed; no other one runs.
func TestWeek(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newClockwork(t)
	synctest.Test(t, func(t *testing.T) {
		space := keys.NewSpace("p")
		w := &week{T: t, clockwork: c, q: store.Target{Name: "q", ID: "q", Keys: space.Queue("q")}, random: rand.New(rand.NewPCG(seed, 0))}
		state := w.q.Keys.State()
		w.until(0, 0, 1)
		for place := range w.peers {
			w.start(place, 1)
		}
		begun := w.now()
		deploy := 1
		death := func(day int) {
			w.until(day, time.Duration(1+w.random.Int64N(6)), time.Duration(w.random.Int64N(60)))
			place := w.random.IntN(len(w.peers))
			w.die(place)
			time.Sleep(time.Duration(w.random.Int64N(int64(time.Hour))))
			w.start(place, deploy)
		}
		death(0)

		w.until(1, 10, 0) // on Tuesday, the queue is paused
		w.mu.Lock()
		w.stopped = append(w.stopped, [2]time.Time{w.now(), w.now().Add(3 * time.Hour)})
		w.mu.Unlock()
		w.exec("HSET", state, "paused", "0:test")
		w.until(1, 13, 0)
		w.exec("HDEL", state, "paused")

		death(2)
		w.until(2, 12, 15)
		w.deploy(2)
		deployed := w.now()
		deploy = 2
		w.until(2, 14, 0)

		death(3)
		for hour := time.Duration(12); hour < 24; hour += 2 { // on Thursday, failovers lose writes of four minutes
			w.until(3, hour-1, 57)
			w.snapshot(t)
			w.until(3, hour, 1)
			w.lost = append(w.lost, w.now())
			w.failover(t)
		}

		death(4)
		w.until(4, 12, 15)
		w.deploy(3)
		back := w.now()
		deploy = 3

		w.until(5, 0, 10) // on Saturday, all peers die, and nobody is there for some hours
		off := w.now()
		var all sync.WaitGroup
		for place := range w.peers {
			all.Go(func() { w.die(place) })
		}
		all.Wait()
		w.until(5, 5, 20)
		w.stopped = append(w.stopped, [2]time.Time{off, w.now()})
		for place := range w.peers {
			w.start(place, 3)
		}

		death(6)
		w.until(7, 0, 0)
		ended := w.now()
		for _, p := range w.peers {
			close(p.leave)
		}
		for _, p := range w.peers {
			p.ended.Wait()
			p.kill()
		}

		first, second, third := jobsOf(t, 1), jobsOf(t, 2), jobsOf(t, 3)
		listed := map[string]bool{}
		for r := range redistest.Each(t, store.Recurring(t.Context(), c, w.q.Keys)) {
			listed[r.Key] = true
			if r.Outcome != "finished" || r.Next < ended.UnixMilli() && r.Running == 0 || r.Until < r.Now {
				t.Errorf("listed is %+v", r)
			}
		}
		if !maps.Equal(listed, named(third)) {
			t.Errorf("listed are %v", listed)
		}
		for key, job := range first {
			if second[key] == job {
				w.occurs(key, job, begun, ended)
			}
		}
		w.occurs("moved", first["moved"], begun, deployed.Add(-15*time.Minute))
		w.occurs("moved", second["moved"], deployed, ended)
		w.occurs("new", second["new"], deployed, ended)
		w.occurs("paid", first["paid"], begun, deployed.Add(-15*time.Minute))
		w.occurs("paid", second["paid"], deployed, back.Add(-15*time.Minute))
		w.occurs("paid", third["paid"], back, ended)
		w.occurs("retired", first["retired"], begun, deployed.Add(-15*time.Minute))
		w.planned(map[int]map[string]recurringJob{1: first, 2: second, 3: third})
		w.twice()
		t.Logf("%d starts", len(w.started))
	})
}

func named(jobs map[string]recurringJob) map[string]bool {
	keys := map[string]bool{}
	for key := range jobs {
		keys[key] = true
	}
	return keys
}

// exec runs a command beside the calls.
func (c *clockwork) exec(command string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.conn.Do(command, args...); err != nil {
		panic(err)
	}
}

// slack is how late a start may be: its worker may have died, and the others poll.
const slack = weekGrace + 2*weekPoll + 5*time.Minute

// occurs checks that each occurrence between two times has started, unless it was missed: then an earlier one
// started after it was due and so stands for it, or it was skipped since it was too late.
func (w *week) occurs(key string, job recurringJob, from, to time.Time) {
	for at := job.Next(from); at.Before(to.Add(-slack)); at = job.Next(at) {
		runs, stands := 0, false
		for _, o := range w.started {
			if o.key != key || o.payload != job.payload {
				continue
			}
			if o.due.Equal(at) {
				if runs++; o.at.Sub(at) > slack && !w.stood(at) {
					w.Errorf("%s: the occurrence of %v has started at %v", key, at, o.at)
				}
			}
			stands = stands || o.due.Before(at) && !o.at.Before(at)
		}
		skipped := job.late > 0 && w.stood(at)
		if runs == 0 && !stands && !skipped {
			w.Errorf("%s: nothing has started for %v", key, at)
		}
	}
}

// stood reports whether nothing started at a time, since the queue was paused or there were no peers.
func (w *week) stood(at time.Time) bool {
	return slices.ContainsFunc(w.stopped, func(s [2]time.Time) bool {
		return at.After(s[0].Add(-slack)) && at.Before(s[1].Add(slack))
	})
}

// planned checks that what started is an occurrence of a deploy, and wasn't early; and late only if it may be.
func (w *week) planned(deploys map[int]map[string]recurringJob) {
	for _, o := range w.started {
		known := false
		for _, jobs := range deploys {
			job, there := jobs[o.key]
			known = known || there && job.payload == o.payload && job.Next(o.due.Add(-time.Millisecond)).Equal(o.due)
			if there && job.late > 0 && o.at.Sub(o.due) > job.late && o.crashes == 0 {
				w.Errorf("%s: the occurrence of %v has started at %v", o.key, o.due, o.at)
			}
		}
		if !known || o.at.Before(o.due) {
			w.Errorf("%s, payload %s: the occurrence of %v has started at %v", o.key, o.payload, o.due, o.at)
		}
	}
}

// twice checks that each start of an occurrence after the first one follows a death or a failover, that starts
// don't overlap otherwise, and that those missed by a start are skipped.
func (w *week) twice() {
	last := map[string]*occurred{}
	slices.SortStableFunc(w.started, func(a, b *occurred) int { return a.at.Compare(b.at) })
	for _, o := range w.started {
		was := last[o.key]
		last[o.key] = o
		if was == nil {
			continue
		}
		between := func(at time.Time) bool { return at.After(was.at.Add(-slack)) && at.Before(o.at) }
		lost := slices.ContainsFunc(w.lost, between)
		died := slices.ContainsFunc(w.deaths, between) && o.crashes == was.crashes+1
		again := o.due.Equal(was.due)
		follows := !was.end.IsZero() && !was.end.After(o.at) && o.due.After(was.at)
		if !lost && (again && !died || !again && !follows) {
			w.Errorf("%s: the occurrence of %v has started at %v, after that of %v at %v, which ended at %v", o.key, o.due, o.at, was.due, was.at, was.end)
		}
	}
}
