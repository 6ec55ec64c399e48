package recur

import (
	"context"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// In beats: a peer asserts each of its schedules once a cycle, and each is valid for a period.
const (
	cycle  = 5
	period = 10
)

const (
	longestBeat    = 6 * time.Minute // even if the lease is longer
	shortestPeriod = 2 * time.Second // even if the lease is shorter
	perCall        = 50              // schedules in a call
	perBeat        = 50              // at least
	callBytes      = 1 << 20         // total payload of a call
	linesPerSecond = 20              // about individual schedules
)

type Config struct {
	Calls store.Runner
	Log   *logs.Log
	Beat  time.Duration                             // of the worker, a third of its lease; New turns it into that of the schedules
	Home  func(store.Keys) string                   // the node of a queue
	List  func(ctx context.Context, q store.Target) // puts a queue on the list of queues
}

// Schedules are the schedules that a peer asserts. Its methods may be called concurrently.
//
// Each node has its own goroutine while schedules are asserted there, and each queue has its own
// errors, so a damaged queue or an unresponsive node doesn't affect the others.
type Schedules struct {
	Config
	period time.Duration
	lines  logs.Limiter
	work   sync.WaitGroup // goroutines that assert and list
	wake   chan struct{}

	mu       sync.Mutex // protects the fields below
	jobs     map[id]*job
	ends     ends
	sites    map[string]*site // by the queue's ID
	homes    map[string]*home // by node
	unlisted map[string]store.Target
	listing  bool
	renewed  time.Time // when all were last asserted again because Redis had lost one
}

// An id identifies a schedule.
type id struct{ queue, entry string }

// A job is one schedule.
type job struct {
	id

	print  string // after the instant that Redis has, as far as this peer knows; empty before it has asked
	spec   Spec   // this and the fields below are protected by Schedules.mu
	target store.Target
	tried  time.Time // when it was last booked; zero: due now
	busy   bool      // it is being asserted
	since  int64     // this and state are only changed by the goroutine that asserts it
	state  string    // the last one that Redis returned

	flaw error         // the last one logged; this and hung are owned by the goroutine that asserts it
	hung chan struct{} // closed once the last call of Next has returned; nil if that came in time
}

func New(c Config) *Schedules {
	// A schedule is valid for 10 s, or for the lease, if that's longer.
	c.Beat = min(c.Beat, max(time.Second, c.Beat*3/period), longestBeat)
	return &Schedules{
		Config: c, period: max(period*c.Beat, shortestPeriod),
		lines: logs.Limiter{Say: c.Log.Warn, What: "worqr: more lines about schedules were suppressed", Each: linesPerSecond, All: linesPerSecond},
		wake:  make(chan struct{}, 1), jobs: map[id]*job{}, ends: ends{map[string]store.Target{}, map[id]left{}}, sites: map[string]*site{}, homes: map[string]*home{},
		unlisted: map[string]store.Target{},
	}
}

// Set makes the peer assert a spec under an entry of a queue, and replaces the previous spec.
func (s *Schedules) Set(q store.Target, entry string, spec Spec) error {
	if _, err := spec.Times(time.Now(), time.Time{}, fewest); err != nil {
		return err
	}
	j := &job{id: id{q.ID, entry}, spec: spec, target: q}
	was, told := s.specAt(j.id)
	same := told && alike(was, spec, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.jobs[j.id]; was != nil {
		if same {
			was.spec = spec
			return nil
		}
		if was.since != 0 {
			j.since = store.JustNow // overrides what this peer or others had before
		}
	}
	s.jobs[j.id] = j
	s.stir()
	return nil
}

// specAt returns the spec of the job with an id, if there is one.
func (s *Schedules) specAt(of id) (spec Spec, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[of]; j != nil {
		return j.spec, true
	}
	return Spec{}, false
}

// Unset withdraws a schedule, and reports whether there was one.
func (s *Schedules) Unset(queue, entry string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.jobs[id{queue, entry}]
	if was == nil {
		return false
	}
	delete(s.jobs, was.id)
	s.ends.left[was.id] = left{target: was.target}
	return true
}

// stir makes the loop take a turn now.
func (s *Schedules) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Renew asserts all schedules now, since Redis may have lost them. It asserts them at most once a
// period: in between, each is asserted in its turn.
func (s *Schedules) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.renewed.IsZero() && now.Sub(s.renewed) < s.period {
		return
	}
	s.renewed = now
	for _, j := range s.jobs {
		j.tried = time.Time{}
	}
	s.stir()
}

// Begin asserts the schedules for the first time, and waits for that for as long as a schedule's Next may
// take, at most until ctx ends.
func (s *Schedules) Begin(ctx context.Context) {
	ended := make(chan struct{})
	s.work.Go(func() {
		defer close(ended)
		s.startDue(ctx).Wait()
	})
	select {
	case <-ended:
	case <-time.After(maxNext):
	case <-ctx.Done():
	}
}

// Run asserts the schedules until ctx ends, and ends those that no peer asserts.
func (s *Schedules) Run(ctx context.Context) {
	defer s.lines.Flush()
	defer s.work.Wait()
	for ctx.Err() == nil {
		s.startDue(ctx)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(s.Beat):
		}
	}
}

// specOf returns the current spec of a job.
func (s *Schedules) specOf(j *job) Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.spec
}

// current reports whether a job hasn't been replaced or withdrawn.
func (s *Schedules) current(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[j.id] == j
}
