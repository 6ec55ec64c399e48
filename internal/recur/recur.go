// Package recur asserts the schedules of one peer: as long as the peer runs, it keeps telling Redis
// what recurs, and when. Scripts plan the occurrences.
package recur

import (
	"context"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// In beats: a peer asserts each of its schedules once a cycle, and each is valid for a period. If there are
// few, it asserts them more often.
const (
	cycle  = 5
	period = 10
)

const (
	longestBeat    = 6 * time.Minute // even if the lease is longer
	shortestPeriod = 2 * time.Second // even if the lease is shorter
	perCall        = 50              // schedules in a call
	callBytes      = 1 << 20         // total size of the records in a call
	linesPerSecond = 20              // about individual schedules
)

// A Config is what Schedules need from their peer.
type Config struct {
	Calls store.Runner
	Log   *logs.Log
	Beat  time.Duration                             // of the worker, a third of its lease; New turns it into that of the schedules
	List  func(ctx context.Context, q store.Target) // puts a queue on the list of queues; blocks for a second at most
	Ended func(queue string, keys []string)         // schedules have ended, as no running peer has them; may be nil. It doesn't block
	Begun func(queue, key string)                   // a schedule is new to Redis; may be nil. It doesn't block
}

// Schedules are the schedules that a peer asserts. Its methods may be called concurrently.
//
// Each queue with schedules has its own goroutine, so a damaged queue or an unresponsive node doesn't
// affect the others.
type Schedules struct {
	Config
	period time.Duration
	lines  logs.Limiter
	work   sync.WaitGroup // the goroutines of the sites

	mu    sync.Mutex // protects the fields below
	ctx   context.Context
	sites map[string]*site // by the queue's ID
}

// A job is one schedule. The goroutine of its site owns what Schedules.mu doesn't protect.
type job struct {
	queue, name string

	spec  Spec  // this and since are protected by Schedules.mu
	since int64 // the last answer's

	tried  time.Time     // when it was last asserted; zero: it's due
	prints []string      // for Redis to compare; the last one was after the instant of the schedule in force
	word   store.Word    // the last answer
	flaw   error         // the last one logged
	hung   chan struct{} // closed once the last call of Next has returned; nil if that came in time
}

// New returns the schedules of a peer. It does no I/O.
func New(c Config) *Schedules {
	// A schedule is valid for 10 s, or for the lease, if that's longer.
	c.Beat = min(c.Beat, max(time.Second, c.Beat*3/period), longestBeat)
	return &Schedules{
		Config: c, period: max(period*c.Beat, shortestPeriod), sites: map[string]*site{},
		lines: logs.Limiter{Say: c.Log.Warn, What: "worqr: more lines about schedules were suppressed", Each: linesPerSecond, All: linesPerSecond},
	}
}

// Set makes the peer assert a spec under a name of a queue, and replaces the previous spec. It calls the
// spec's Next, and doesn't block otherwise. It fails with ErrNever, ErrStands, ErrTooFast, or if Next
// panics.
func (s *Schedules) Set(q store.Target, name string, spec Spec) error {
	if _, err := spec.Times(time.Now(), time.Time{}, fewest); err != nil {
		return err
	}
	was, before := s.jobAt(q, name)
	same := was != nil && alike(before, spec, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.siteLocked(q)
	j := &job{queue: q.ID, name: name, spec: spec}
	if now := l.jobs[name]; now != nil {
		if same && now == was { // otherwise another call has replaced it in the meantime
			now.spec = spec
			return nil
		}
		if now.since != 0 {
			j.since = store.JustNow // overrides what this peer or others had before
		}
	}
	l.jobs[name] = j
	l.stir()
	return nil
}

// jobAt returns the job under a name, and its spec; nil if there is none.
func (s *Schedules) jobAt(q store.Target, name string) (j *job, spec Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.sites[q.ID]; l != nil && l.jobs[name] != nil {
		return l.jobs[name], l.jobs[name].spec
	}
	return nil, Spec{}
}

// Unset withdraws a schedule, and reports whether there was one. It doesn't block.
func (s *Schedules) Unset(queue, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sites[queue]
	if l == nil || l.jobs[name] == nil {
		return false
	}
	delete(l.jobs, name)
	l.left = true // if no other peer serves the queue, this one must end the schedule
	return true
}

// Over is called while a schedule of a queue is no longer asserted. It doesn't block.
func (s *Schedules) Over(q store.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.siteLocked(q).over = true
}

// Begin starts to assert the schedules until ctx ends, and waits until each was asserted once: for as long
// as a schedule's Next may take, at most until ctx ends.
func (s *Schedules) Begin(ctx context.Context) {
	late := time.After(maxNext)
	for _, first := range s.begin(ctx) {
		select {
		case <-first:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Run asserts the schedules, and ends those that no peer asserts. It returns when ctx has ended.
func (s *Schedules) Run(ctx context.Context) {
	defer s.lines.Flush()
	s.begin(ctx)
	<-ctx.Done()
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.work.Wait()
}

// begin starts the goroutines of all sites that have none. Each closes its channel after its first turn.
func (s *Schedules) begin(ctx context.Context) (firsts []chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	for _, l := range s.sites {
		s.startLocked(l)
		firsts = append(firsts, l.first)
	}
	return firsts
}

func (s *Schedules) siteLocked(q store.Target) *site {
	l := s.sites[q.ID]
	if l == nil {
		l = &site{Target: q, jobs: map[string]*job{}, wake: make(chan struct{}, 1), first: make(chan struct{})}
		s.sites[q.ID] = l
		if s.ctx != nil {
			s.startLocked(l)
		}
	}
	return l
}

func (s *Schedules) startLocked(l *site) {
	if l.runs {
		return
	}
	l.runs = true
	ctx := s.ctx
	s.work.Go(func() { s.run(ctx, l) })
}

// specOf returns the current spec of a job, and since when the peer has it; false if the job was replaced or
// withdrawn.
func (s *Schedules) specOf(l *site, j *job) (spec Spec, since int64, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.spec, j.since, l.jobs[j.name] == j
}
