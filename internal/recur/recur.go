package recur

import (
	"cmp"
	"context"
	"maps"
	"slices"
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
)

// Config is what schedules need.
type Config struct {
	Calls store.Runner
	Log   *logs.Log
	Beat  time.Duration
}

// Schedules are those that a peer asserts. Its methods may be called at any time.
type Schedules struct {
	calls  store.Runner
	log    *logs.Log
	beat   time.Duration
	period time.Duration
	upset  logs.Outage

	mu   sync.Mutex // protects the fields below
	jobs map[id]*job
	ends ends
	wake chan struct{}

	steady time.Time // when it began, last failed, or took too long; of the loop alone
}

// An id is where a schedule is.
type id struct{ queue, entry string }

// A job is one schedule. The lock protects its fields; only the loop changes the last two.
type job struct {
	id
	base  string // the print of the spec
	print string // what Redis is told
	spec  Spec
	place Place

	asserted time.Time // when it was last; zero: at once
	since    int64
	state    string // as Redis had it then
}

// A Place tells which part of a queue has a schedule.
type Place func(context.Context) (store.Target, error)

// New returns no schedules.
func New(c Config) *Schedules {
	beat := min(c.Beat, longestBeat)
	if beat <= 0 {
		beat = longestBeat
	}
	return &Schedules{calls: c.Calls, log: c.Log, beat: beat, period: max(period*beat, shortestPeriod),
		jobs: map[id]*job{}, ends: newEnds(), wake: make(chan struct{}, 1)}
}

// Set has a spec asserted under an entry of a queue, instead of another one.
func (s *Schedules) Set(queue, entry string, spec Spec, place Place) error {
	if _, err := spec.Times(time.Now(), time.Time{}); err != nil {
		return err
	}
	print := spec.Print()
	j := &job{id: id{queue, entry}, base: print, print: print, spec: spec, place: place}
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
		was.spec, was.place = spec, place
		return nil
	case was != nil && was.since != 0:
		j.since = store.JustNow // whatever this peer or others had before
	}
	s.jobs[j.id] = j
	s.stir()
	return nil
}

// at returns the spec that a job has, and what Redis is told of it.
func (s *Schedules) at(of id) (was job, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[of]; j != nil {
		return *j, true
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
	s.ends.left[was.id] = left{place: was.place}
	return true
}

// stir has the loop look at once.
func (s *Schedules) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Renew has all asserted at once, since Redis may have forgotten them.
func (s *Schedules) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		j.asserted = time.Time{}
	}
	s.stir()
}

// Run asserts the schedules until ctx ends, and ends what nobody does.
func (s *Schedules) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.Assert(ctx)
		s.judge(ctx)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(s.beat):
		}
	}
}

// Assert asserts a part of the schedules: those that weren't for the longest time.
func (s *Schedules) Assert(ctx context.Context) {
	began := time.Now()
	if s.steady.IsZero() {
		s.steady = began
	}
	err := s.assert(ctx, s.next())
	if ctx.Err() != nil {
		return
	}
	if err != nil && !store.IsWrongType(err) || time.Since(began) > s.period/2 {
		s.steady = time.Now()
	}
	s.upset.Note(s.log, "cannot assert schedules; retrying", err)
}

// next returns the schedules whose turn it is.
func (s *Schedules) next() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Values(s.jobs), func(a, b *job) int {
		return cmp.Or(a.asserted.Compare(b.asserted), cmp.Compare(a.queue, b.queue), cmp.Compare(a.entry, b.entry))
	})
	n := max(perBeat, (len(all)+cycle-1)/cycle)
	for n < len(all) && all[n].asserted.IsZero() {
		n++
	}
	return all[:min(n, len(all))]
}

// specOf returns what a job is about now.
func (s *Schedules) specOf(j *job) (Spec, Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.spec, j.place
}

// current reports whether a job is still to be asserted.
func (s *Schedules) current(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[j.id] == j
}

// A page is what one call asserts.
type page struct {
	queue store.Target
	jobs  []*job
	full  []store.Schedule // nil: only their prints
	bytes int
}

// assert asserts jobs, page by page. If Redis has lost one, all are asserted next. A queue with a key of
// another type doesn't keep those of other queues from it.
func (s *Schedules) assert(ctx context.Context, jobs []*job) (wrong error) {
	send := func(p *page) error {
		err := s.page(ctx, p)
		if store.IsWrongType(err) {
			wrong, err = err, nil
			s.asserted(p.jobs)
		}
		return err
	}
	pages := map[string]*page{}
	for _, j := range jobs {
		_, place := s.specOf(j)
		queue, err := place(ctx)
		if err != nil {
			return err
		}
		p := pages[queue.ID]
		if p == nil {
			p = &page{queue: queue}
			pages[queue.ID] = p
		}
		if p.jobs = append(p.jobs, j); len(p.jobs) == perCall {
			if err := send(p); err != nil {
				return err
			}
			delete(pages, queue.ID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if err := send(pages[name]); err != nil {
			return err
		}
	}
	return wrong
}

// asserted notes that some can't be asserted, so others are next.
func (s *Schedules) asserted(jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		j.asserted = time.Now()
	}
}

// page asserts a page by its prints, and then in full what Redis wants.
func (s *Schedules) page(ctx context.Context, p *page) error {
	short := make([]store.Schedule, len(p.jobs))
	for i, j := range p.jobs {
		short[i] = store.Schedule{Entry: j.entry, Print: j.print, Since: j.since}
	}
	told, err := s.ask(ctx, p.queue, short)
	if err != nil {
		return err
	}
	full := &page{queue: p.queue}
	for i, j := range p.jobs {
		if !s.current(j) {
			continue
		}
		if told[i].State != store.ScheduleWanted && told[i].State != store.ScheduleMore {
			s.tell(j, told[i])
			continue
		}
		if told[i].State == store.ScheduleWanted && j.state == store.ScheduleHeld {
			s.Renew() // Redis has lost it, and others
		}
		s.mu.Lock()
		j.since = told[i].Since
		s.mu.Unlock()
		if err := s.add(ctx, full, j, told[i]); err != nil {
			return err
		}
	}
	return s.flush(ctx, full)
}

// add adds a job to a page in full, and sends that first if it would be too large. Only Redis's clock
// counts.
func (s *Schedules) add(ctx context.Context, p *page, j *job, a store.Asserted) error {
	after := time.UnixMilli(a.After)
	spec, _ := s.specOf(j)
	times, err := spec.Times(after, after.Add(6*s.period))
	if err != nil {
		if a.State == store.ScheduleWanted {
			s.log.Warn("worqr: a schedule has no times any more", "queue", j.queue, "key", store.KeyOf(j.entry), "err", err)
		}
		s.asserted([]*job{j})
		return nil
	}
	if p.bytes > 0 && p.bytes+spec.size() > callBytes {
		if err := s.flush(ctx, p); err != nil {
			return err
		}
	}
	p.jobs, p.bytes = append(p.jobs, j), p.bytes+spec.size()
	p.full = append(p.full, store.Schedule{
		Entry: j.entry, Print: j.print, Since: j.since, Late: spec.Late.Milliseconds(),
		Times: times, Payload: spec.Payload, Card: spec.Card,
	})
	return nil
}

// flush sends what a page has in full.
func (s *Schedules) flush(ctx context.Context, p *page) error {
	if len(p.full) == 0 {
		return nil
	}
	told, err := s.ask(ctx, p.queue, p.full)
	if err != nil {
		return err
	}
	for i, j := range p.jobs {
		s.tell(j, told[i])
	}
	p.jobs, p.full, p.bytes = nil, nil, 0
	return nil
}

func (s *Schedules) ask(ctx context.Context, q store.Target, all []store.Schedule) ([]store.Asserted, error) {
	told, ended, err := store.Recur(ctx, s.calls, q.Keys, s.period.Milliseconds(), s.mayJudge(), all)
	for _, entry := range ended {
		s.log.Info("worqr: a schedule has ended: no running peer has it any more", "queue", q.Name, "key", store.KeyOf(entry))
	}
	return told, err
}

// tell takes in what Redis has of a job, and logs if another one is in force.
func (s *Schedules) tell(j *job, a store.Asserted) {
	was := j.state
	s.mu.Lock()
	j.asserted, j.since, j.state = time.Now(), a.Since, a.State
	s.mu.Unlock()
	if was == a.State {
		return
	}
	switch a.State {
	case store.ScheduleOlder:
		s.log.Info("worqr: another peer has a newer schedule under this key, which is in force", "queue", j.queue, "key", store.KeyOf(j.entry))
	case store.ScheduleDamaged:
		s.log.Error("worqr: the keys of a schedule are of another type, so it doesn't occur; delete them", "queue", j.queue, "key", store.KeyOf(j.entry))
	}
}
