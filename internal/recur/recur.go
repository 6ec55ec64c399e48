package recur

import (
	"context"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// The rhythm of a peer, in beats: it asserts each of its schedules once a cycle, for a period.
const (
	cycle  = 5
	period = 10
)

const (
	longestBeat    = time.Second     // however long the lease is
	shortestPeriod = 2 * time.Second // however short
	perCall        = 50              // schedules in a call
	perBeat        = 50              // at least
	callBytes      = 1 << 20         // of payloads in a call
	findEach       = time.Minute     // how long a part that was found is relied on
	linesPerSecond = 20              // about single schedules
)

// Config is what schedules need.
type Config struct {
	Calls store.Runner
	Log   *logs.Log
	Beat  time.Duration
	Home  func(store.Keys) string                   // the node of a queue
	List  func(ctx context.Context, q store.Target) // puts a queue on the list of queues
}

// Schedules are those that a peer asserts. Its methods may be called at any time.
//
// Each node has its own goroutine while something is asserted there, and each queue its own errors,
// so a queue that is damaged, or a node that doesn't answer, keeps no other from recurring.
type Schedules struct {
	Config
	period time.Duration
	lines  logs.Limiter
	work   sync.WaitGroup // what is asserted, found and listed
	wake   chan struct{}

	mu       sync.Mutex // protects the fields below
	jobs     map[id]*job
	ends     ends
	lanes    map[string]*lane   // by the queue's ID
	homes    map[string]*home   // by node
	finders  map[string]*finder // by queue
	unlisted map[string]store.Target
	listing  bool
	renewed  time.Time // when all was last asserted again because Redis had lost one
	turns    int
}

// An id is where a schedule is.
type id struct{ queue, entry string }

// A job is one schedule.
type job struct {
	id
	base  string // the print of the spec
	print string // what Redis is told

	spec   Spec // this and those below are protected by Schedules.mu
	place  Place
	turn   int           // how often it has got one
	target *store.Target // nil until it's found
	found  time.Time
	tried  time.Time // when it was last asserted, or was to be; zero: at once
	busy   bool      // somebody asserts it: its lane may change meanwhile
	since  int64     // only who asserts it changes this and the next
	state  string    // as Redis had it last

	timing *timing // nil unless its times are being computed; of who asserts it, as the next
	flaw   error   // that was logged
}

// A Place tells which queue, or part of one, has a schedule: Target, unless Find finds that out.
type Place struct {
	Target store.Target
	Find   func(context.Context) (store.Target, error)
}

// New returns no schedules.
func New(c Config) *Schedules {
	if c.Beat <= 0 || c.Beat > longestBeat {
		c.Beat = longestBeat
	}
	return &Schedules{
		Config: c, period: max(period*c.Beat, shortestPeriod),
		lines: logs.Limiter{Say: c.Log.Warn, What: "worqr: more lines about schedules were left out", Each: linesPerSecond, All: linesPerSecond},
		wake:  make(chan struct{}, 1), jobs: map[id]*job{}, ends: ends{map[string]store.Target{}, map[id]left{}}, lanes: map[string]*lane{}, homes: map[string]*home{},
		finders: map[string]*finder{}, unlisted: map[string]store.Target{},
	}
}

// Set has a spec asserted under an entry of a queue, instead of another one.
func (s *Schedules) Set(queue, entry string, spec Spec, place Place) error {
	if _, err := spec.Times(time.Now(), time.Time{}); err != nil {
		return err
	}
	print := spec.Print()
	j := &job{id: id{queue, entry}, base: print, print: print, spec: spec}
	j.setPlace(place)
	alike := false
	if was, told := s.at(j.id); told && was.base == print {
		// Then it's most likely equal. What its print doesn't tell, the times that Redis may have do.
		if soon, same := soonAlike(&was, &spec); same {
			alike = true
		} else {
			j.print = digest(print, soon)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.jobs[j.id]
	switch {
	case alike && was != nil && was.base == print:
		was.spec = spec
		was.setPlace(place)
		return nil
	case was != nil && was.since != 0:
		j.since = store.JustNow // whatever this peer or others had before
	}
	s.jobs[j.id] = j
	s.stir()
	return nil
}

func (j *job) setPlace(place Place) {
	j.turn++
	if j.place, j.found = place, (time.Time{}); place.Find == nil {
		j.target = &place.Target
	}
}

// at returns the spec that a job has, and what Redis is told of it.
func (s *Schedules) at(of id) (was job, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[of]; j != nil {
		return job{id: j.id, base: j.base, print: j.print, spec: j.spec}, true
	}
	return job{}, false
}

// Unset ends that, and reports whether there was anything.
func (s *Schedules) Unset(queue, entry string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.jobs[id{queue, entry}]
	if was == nil {
		return false
	}
	delete(s.jobs, was.id)
	if was.target != nil { // else it was never asserted
		s.ends.left[was.id] = left{target: *was.target}
	}
	return true
}

// stir makes the loop look at once.
func (s *Schedules) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Renew has all asserted at once, since Redis may have forgotten them. It does so once a period: in
// between, each is asserted in its turn.
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

// Begin asserts the schedules for the first time. It waits for that, but at most for as long as the
// method Next of a schedule may take, and not longer than ctx.
func (s *Schedules) Begin(ctx context.Context) {
	ended := make(chan struct{})
	s.work.Go(func() {
		defer close(ended)
		s.turn(ctx).Wait()
		s.turn(ctx).Wait() // those whose part had to be found
	})
	patience := time.NewTimer(maxNext)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// Run asserts the schedules until ctx ends, and ends those that nobody does.
func (s *Schedules) Run(ctx context.Context) {
	defer s.lines.Flush()
	defer s.work.Wait()
	for ctx.Err() == nil {
		s.turn(ctx)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(s.Beat):
		}
	}
}

// specOf returns what a job is about now.
func (s *Schedules) specOf(j *job) Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.spec
}

// current reports whether a job is still to be asserted.
func (s *Schedules) current(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[j.id] == j
}
