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

// The rhythm of a peer, in beats: it asserts each of its schedules once a cycle, for a period. It
// looks once a round for schedules that nobody asserts, in queues that it serves without having any.
const (
	cycle  = 5
	period = 10
	tour   = 60
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
	wake chan struct{}

	// Of the loop alone.
	steady time.Time // when it last failed, or took too long
	toured int
}

// An id is where a schedule is.
type id struct{ queue, entry string }

// A job is one schedule.
type job struct {
	id
	spec  Spec
	print string
	place func(ctx context.Context) (store.Target, error)

	asserted time.Time // when it was last; zero: at once. Protected by mu
	since    int64     // of the loop
	state    string    // as Redis had it then; of the loop
}

// New returns no schedules.
func New(c Config) *Schedules {
	beat := min(c.Beat, longestBeat)
	if beat <= 0 {
		beat = longestBeat
	}
	return &Schedules{calls: c.Calls, log: c.Log, beat: beat, period: max(period*beat, shortestPeriod),
		jobs: map[id]*job{}, wake: make(chan struct{}, 1), steady: time.Now()}
}

// Set has a spec asserted under an entry of a queue, instead of another one. Place tells which
// part of the queue has it.
func (s *Schedules) Set(queue, entry string, spec Spec, place func(context.Context) (store.Target, error)) error {
	print, err := spec.Print()
	if err == nil {
		_, err = spec.Times(time.Now(), time.Time{})
	}
	if err != nil {
		return err
	}
	at := id{queue, entry}
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.jobs[at]; was == nil || was.print != print {
		s.jobs[at] = &job{id: at, spec: spec, print: print, place: place}
		s.stir()
	}
	return nil
}

// Unset ends that, and reports whether there was anything.
func (s *Schedules) Unset(queue, entry string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.jobs[id{queue, entry}]
	delete(s.jobs, id{queue, entry})
	return was != nil
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

// Run asserts the schedules until ctx ends. Served are the queues that the peer serves.
func (s *Schedules) Run(ctx context.Context, served func() []store.Target) {
	for ctx.Err() == nil {
		s.Assert(ctx)
		s.tour(ctx, served())
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
	err := s.assert(ctx, s.next(began))
	if ctx.Err() != nil {
		return
	}
	if err != nil || time.Since(began) > s.period/2 {
		s.steady = time.Now()
	}
	s.upset.Note(s.log, "cannot assert schedules; retrying", err)
}

// next returns the schedules whose turn it is.
func (s *Schedules) next(now time.Time) []*job {
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

// assert asserts jobs, page by page. If Redis has lost one, all are asserted next.
func (s *Schedules) assert(ctx context.Context, jobs []*job) error {
	pages := map[string]*page{}
	for _, j := range jobs {
		queue, err := j.place(ctx)
		if err != nil {
			return err
		}
		p := pages[queue.ID]
		if p == nil {
			p = &page{queue: queue}
			pages[queue.ID] = p
		}
		if p.jobs = append(p.jobs, j); len(p.jobs) == perCall {
			if err := s.page(ctx, p); err != nil {
				return err
			}
			delete(pages, queue.ID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if err := s.page(ctx, pages[name]); err != nil {
			return err
		}
	}
	return nil
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
		j.since = told[i].Since
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
	times, err := j.spec.Times(after, after.Add(6*s.period))
	if err != nil {
		if a.State == store.ScheduleWanted {
			s.log.Warn("worqr: a schedule has no further times", "queue", j.queue, "key", store.KeyOf(j.entry), "err", err)
		}
		s.mu.Lock()
		j.asserted = time.Now()
		s.mu.Unlock()
		return nil
	}
	if p.bytes > 0 && p.bytes+j.spec.size() > callBytes {
		if err := s.flush(ctx, p); err != nil {
			return err
		}
	}
	p.jobs, p.bytes = append(p.jobs, j), p.bytes+j.spec.size()
	p.full = append(p.full, store.Schedule{
		Entry: j.entry, Print: j.print, Since: j.since, Late: j.spec.Late.Milliseconds(),
		Times: times, Payload: j.spec.Payload, Card: j.spec.Card,
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
	judge := time.Since(s.steady) > 2*s.period
	told, ended, err := store.Recur(ctx, s.calls, q.Keys, s.period.Milliseconds(), judge, all)
	for _, entry := range ended {
		s.log.Info("worqr: schedule ended: no running peer asserts it", "queue", q.Name, "key", store.KeyOf(entry))
	}
	return told, err
}

// tell takes in what Redis has of a job, and logs if another one is in force.
func (s *Schedules) tell(j *job, a store.Asserted) {
	was := j.state
	s.mu.Lock()
	j.asserted = time.Now()
	s.mu.Unlock()
	j.since, j.state = a.Since, a.State
	if was == a.State {
		return
	}
	switch a.State {
	case store.ScheduleOlder:
		s.log.Info("worqr: another peer's newer schedule replaces this one", "queue", j.queue, "key", store.KeyOf(j.entry))
	case store.ScheduleDamaged:
		s.log.Error("worqr: a schedule can't run: its keys have the wrong type; delete them", "queue", j.queue, "key", store.KeyOf(j.entry))
	}
}

// tour ends schedules in queues where this peer asserts none. A few at a time.
func (s *Schedules) tour(ctx context.Context, served []store.Target) {
	if len(served) == 0 {
		return
	}
	s.toured = max(s.toured+1, 0)
	for i := s.toured % tour; i < len(served); i += tour {
		if _, err := s.ask(ctx, served[i], nil); err != nil && ctx.Err() == nil {
			s.steady = time.Now()
		}
	}
}
