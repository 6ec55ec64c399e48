package recur

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A page is the schedules that one call sends in full.
type page struct {
	jobs  []*job
	all   []store.Schedule
	bytes int
}

// A want is a job for which Redis wants the times after a given time, or only the print.
type want struct {
	*job
	after time.Time
	state string // the answer
}

// mostAsked is how often a page is asserted until all prints are those that Redis can compare: it has one
// schedule that is in force, and up to four that were replaced.
const mostAsked = 8

// assert asserts jobs, page by page. If a page fails, it continues with the next one.
func (s *Schedules) assert(ctx context.Context, h *home, l *site, jobs []*job) (err error) {
	if len(jobs) == 0 {
		_, err = s.ask(ctx, h, l, nil)
		return err
	}
	for some := range slices.Chunk(jobs, perCall) {
		failed := s.page(ctx, h, l, some)
		if isGone(failed) || ctx.Err() != nil {
			return failed
		}
		err = cmp.Or(err, failed)
	}
	return err
}

// page asserts jobs by their prints, and then sends in full the schedules that Redis wants. If
// Redis has lost one, all jobs are asserted again next.
func (s *Schedules) page(ctx context.Context, h *home, l *site, jobs []*job) error {
	var wants []want
	lost := false
	for n := 0; n < mostAsked && len(jobs) > 0; n++ {
		short := make([]store.Schedule, len(jobs))
		for i, j := range jobs {
			short[i] = store.Schedule{Entry: j.entry, Print: j.print, Since: j.since}
		}
		told, err := s.ask(ctx, h, l, short)
		if err != nil {
			return err
		}
		var compare []want
		for i, j := range jobs {
			w := want{j, time.UnixMilli(told[i].After), told[i].State}
			switch w.state {
			case store.ScheduleCompare:
				compare = append(compare, w)
			case store.ScheduleWanted, store.ScheduleMore:
				lost = lost || w.state == store.ScheduleWanted && (j.state == store.ScheduleHeld || j.state == store.ScheduleMore)
				wants = append(wants, w)
			default:
				s.tell(j, told[i])
				continue
			}
			s.known(j, told[i])
		}
		jobs = nil
		for _, w := range compare {
			if p := s.plan(ctx, w); p != nil {
				s.printed(w.job, p.print)
				jobs = append(jobs, w.job)
			}
		}
	}
	if lost {
		s.Renew()
	}
	return s.send(ctx, h, l, wants)
}

// send asserts in full the schedules that Redis wants, several per call.
func (s *Schedules) send(ctx context.Context, h *home, l *site, wants []want) error {
	var p page
	for _, w := range wants {
		j, plan, spec := w.job, s.plan(ctx, w), s.specOf(w.job)
		if plan == nil || !s.current(j) {
			continue
		}
		if p.bytes > 0 && p.bytes+spec.size() > callBytes {
			if err := s.flush(ctx, h, l, &p); err != nil {
				return err
			}
		}
		p.jobs, p.bytes = append(p.jobs, j), p.bytes+spec.size()
		p.all = append(p.all, store.Schedule{
			Entry: j.entry, Print: j.print, Since: j.since, Late: spec.Late.Milliseconds(),
			Times: plan.times, Payload: spec.Payload, Card: spec.Card, Renewed: plan.print,
		})
	}
	return s.flush(ctx, h, l, &p)
}

func (s *Schedules) flush(ctx context.Context, h *home, l *site, p *page) error {
	if len(p.all) == 0 {
		return nil
	}
	told, err := s.ask(ctx, h, l, p.all)
	if err != nil {
		return err
	}
	for i, j := range p.jobs {
		switch told[i].State {
		case store.ScheduleHeld:
			s.printed(j, p.all[i].Renewed)
		case store.ScheduleCompare: // another peer was faster
			s.hurry(j)
		}
		s.tell(j, told[i])
	}
	*p = page{}
	return nil
}

// named is how many schedules a log line names.
const named = 5

func (s *Schedules) ask(ctx context.Context, h *home, l *site, all []store.Schedule) ([]store.Asserted, error) {
	began := time.Now()
	until := s.judgesUntil(h, l, began)
	told, ended, now, err := store.Recur(ctx, s.Calls, l.Keys, s.period.Milliseconds(), until, all)
	if err == nil {
		s.heard(l, began, now)
	}
	if err == nil && now <= until && len(ended) == 0 { // otherwise there may be more
		s.judged(l, began)
	}
	if len(ended) > 0 && s.lines.Allow(l.ID) {
		var keys []string
		for _, entry := range ended[:min(len(ended), named)] {
			keys = append(keys, logs.Hash(store.KeyOf(entry)))
		}
		s.Log.Info("worqr: schedules ended: no running peer has them", "queue", l.Name, "count", len(ended), "keys", keys)
	}
	return told, err
}

// known records the answer about a job.
func (s *Schedules) known(j *job, a store.Asserted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.since = a.Since; a.State != store.ScheduleCompare {
		j.state = a.State
	}
}

// hurry makes a job due in the next turn.
func (s *Schedules) hurry(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.tried = time.Time{}
}

func (s *Schedules) printed(j *job, print string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.print = print
}

// tell records the state of a job in Redis, and logs if another schedule is in force.
func (s *Schedules) tell(j *job, a store.Asserted) {
	was := j.state
	s.known(j, a)
	if was == a.State {
		return
	}
	switch a.State {
	case store.ScheduleOlder:
		s.say(j, s.Log.Info, "worqr: another peer's newer schedule replaces this one")
	case store.ScheduleDamaged:
		s.say(j, s.Log.Error, "worqr: a schedule can't run: its keys have the wrong type; delete them")
	}
}

// say logs a line about a job, within limits.
func (s *Schedules) say(j *job, log func(string, ...any), msg string, attrs ...any) {
	if s.lines.Allow(j.queue) {
		log(msg, append([]any{"queue", j.queue, "key", logs.Hash(store.KeyOf(j.entry))}, attrs...)...)
	}
}

// fault logs a problem with the times of a job, once until the times are valid again.
func (s *Schedules) fault(w want, err error) {
	kind, attrs := err, []any{"err", err}
	if p, ok := errors.AsType[*panicError](err); ok {
		kind, attrs = errPanicked, append(attrs, "stack", p.stack)
	}
	never := errors.Is(err, ErrNever)
	if kind == w.flaw || never && w.state == store.ScheduleMore { // Redis has its last times
		return
	}
	w.flaw = kind
	if never {
		s.say(w.job, s.Log.Warn, "worqr: a schedule has no further times", attrs...)
		return
	}
	s.say(w.job, s.Log.Error, "worqr: can't get the next times of a schedule", attrs...)
}
