package recur

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A site is a queue that may have schedules.
type site struct {
	store.Target
	upset logs.Outage

	busy    bool      // it's being visited; this and the fields below are protected by Schedules.mu
	until   time.Time // not visited before this, since the last visit failed
	visited time.Time
	steady  time.Time // when a visit last failed, was slow, or found that the clock had jumped
	clock   int64     // Redis's time in the last call, in ms; 0 before
	asked   time.Time // when that call began
}

// A home is a node. One goroutine at a time visits its sites.
type home struct {
	busy    bool      // this and the fields below are protected by Schedules.mu
	until   time.Time // not visited before this, since the node didn't answer
	visited time.Time
	steady  time.Time // when it last didn't answer, was slow, or hadn't been visited for a long time
}

// A visit is the jobs to assert on a node. A site without jobs is only checked for schedules to
// end.
type visit struct {
	home  *home
	sites []*site
	jobs  map[*site][]*job
}

// startDue starts everything that is due. It doesn't wait; the caller may.
func (s *Schedules) startDue(ctx context.Context) *sync.WaitGroup {
	visits, targets := s.due(time.Now())
	var all sync.WaitGroup
	do := func(f func()) {
		all.Add(1)
		s.work.Go(func() {
			defer all.Done()
			f()
		})
	}
	for _, v := range visits {
		do(func() { s.visit(ctx, v) })
	}
	if targets != nil {
		do(func() { s.enlist(ctx, targets) })
	}
	return &all
}

// due returns everything that is due, and marks it as busy.
func (s *Schedules) due(now time.Time) (visits map[string]*visit, targets map[string]store.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	visits = map[string]*visit{}
	var ready []*job
	for _, j := range s.jobs {
		if j.busy || !j.tried.IsZero() && now.Sub(j.tried) < s.Beat/2 {
			continue
		}
		if s.admitsLocked(s.siteLocked(j.target), now) {
			ready = append(ready, j)
		}
	}
	slices.SortFunc(ready, func(a, b *job) int {
		return cmp.Or(a.tried.Compare(b.tried), cmp.Compare(a.queue, b.queue), cmp.Compare(a.entry, b.entry))
	})
	n := max(perBeat, (len(s.jobs)+cycle-1)/cycle)
	for n < len(ready) && ready[n].tried.IsZero() {
		n++
	}
	for _, j := range ready[:min(n, len(ready))] {
		j.tried = now
		s.bookLocked(visits, s.siteLocked(j.target), j)
	}
	s.endsLocked(visits, now)
	for _, v := range visits {
		if h := v.home; now.Sub(h.visited) > s.period { // this process may have been stalled, and so may other peers
			h.steady = now
		}
		v.home.busy, v.home.visited = true, now
		for _, l := range v.sites {
			l.visited = now
		}
		slices.SortFunc(v.sites, func(a, b *site) int { return cmp.Compare(a.ID, b.ID) })
	}
	if !s.listing && len(s.unlisted) > 0 {
		s.listing, targets, s.unlisted = true, s.unlisted, map[string]store.Target{}
	}
	return visits, targets
}

func (s *Schedules) siteLocked(q store.Target) *site {
	l := s.sites[q.ID]
	if l == nil {
		l = &site{Target: q}
		s.sites[q.ID] = l
	}
	return l
}

// homeLocked returns the node of a site. If the node isn't known, the site gets its own home.
func (s *Schedules) homeLocked(l *site) (*home, string) {
	at := s.Home(l.Keys)
	if at == store.Somewhere && l.Keys.Scattered() {
		at = "of " + l.ID
	}
	h := s.homes[at]
	if h == nil {
		h = &home{}
		s.homes[at] = h
	}
	return h, at
}

func (s *Schedules) admitsLocked(l *site, now time.Time) bool {
	h, _ := s.homeLocked(l)
	return !l.busy && !h.busy && !now.Before(l.until) && !now.Before(h.until)
}

// bookLocked adds a site to a visit, with a job unless that is nil.
func (s *Schedules) bookLocked(visits map[string]*visit, l *site, j *job) {
	h, at := s.homeLocked(l)
	v := visits[at]
	if v == nil {
		v = &visit{home: h, jobs: map[*site][]*job{}}
		visits[at] = v
	}
	if !l.busy {
		l.busy = true
		v.sites = append(v.sites, l)
	}
	if j != nil {
		j.busy = true
		v.jobs[l] = append(v.jobs[l], j)
	}
}

// visit visits the sites on a node one after the other, as long as the node answers.
func (s *Schedules) visit(ctx context.Context, v *visit) {
	defer s.left(v)
	for _, l := range v.sites {
		began := time.Now()
		err := s.assert(ctx, v.home, l, v.jobs[l])
		if ctx.Err() != nil {
			return
		}
		s.note(v.home, l, began, err)
		l.upset.Note(s.Log, "can't renew schedules; retrying", err, "queue", l.Name)
		if isGone(err) {
			return
		}
	}
}

// left ends a visit. It starts a turn if schedules became due immediately in the meantime.
func (s *Schedules) left(v *visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.home.busy = false
	for _, l := range v.sites {
		l.busy = false
		for _, j := range v.jobs[l] {
			j.busy = false
		}
	}
	for _, j := range s.jobs {
		if j.tried.IsZero() {
			s.stir()
			return
		}
	}
}

// isGone reports whether a node doesn't answer, so that its other queues don't need to be tried.
func isGone(err error) bool { return store.IsAway(err) && !store.IsMoving(err) }

// note records the result of a visit to a site.
func (s *Schedules) note(h *home, l *site, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	long := now.Sub(began) > s.period/2
	if err == nil {
		s.unlisted[l.ID] = l.Target
	} else {
		l.until = now.Add(s.Beat)
	}
	if long || err != nil {
		l.steady = now
	}
	h.visited = now
	if long || isGone(err) {
		h.steady = now
	}
	if isGone(err) {
		h.until = now.Add(s.Beat)
	}
}

// enlist adds queues that have schedules to the list of queues.
func (s *Schedules) enlist(ctx context.Context, targets map[string]store.Target) {
	for _, q := range targets {
		s.List(ctx, q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing = false
}
