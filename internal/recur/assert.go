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

// A want is a job for which Redis wants the times after a given time.
type want struct {
	*job
	after time.Time
	new   bool // Redis doesn't have the schedule
}

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
	short := make([]store.Schedule, len(jobs))
	for i, j := range jobs {
		short[i] = store.Schedule{Entry: j.entry, Print: j.print, Since: j.since}
	}
	told, err := s.ask(ctx, h, l, short)
	if err != nil {
		return err
	}
	var wants []want
	lost := false
	for i, j := range jobs {
		a := told[i]
		if a.State != store.ScheduleWanted && a.State != store.ScheduleMore {
			s.tell(j, a)
			continue
		}
		isNew := a.State == store.ScheduleWanted
		lost = lost || isNew && (j.state == store.ScheduleHeld || j.state == store.ScheduleMore)
		s.known(j, a)
		wants = append(wants, want{j, time.UnixMilli(a.After), isNew})
	}
	if lost {
		s.Renew()
	}
	return s.send(ctx, h, l, wants)
}

// send asserts in full the schedules that Redis wants, several per call.
func (s *Schedules) send(ctx context.Context, h *home, l *site, wants []want) error {
	var p page
	for i, times := range s.times(ctx, wants) {
		j := wants[i].job
		spec := s.specOf(j)
		if len(times) == 0 || !s.current(j) {
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
			Times: times, Payload: spec.Payload, Card: spec.Card,
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

func (s *Schedules) known(j *job, a store.Asserted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.since, j.state = a.Since, a.State
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
	if u, ok := errors.AsType[*nextError](err); ok {
		if kind = u.kind; u.stack != "" {
			attrs = append(attrs, "stack", u.stack)
		}
	}
	never := errors.Is(err, ErrNever)
	if kind == w.flaw || never && !w.new { // Redis has its last times
		return
	}
	w.flaw = kind
	if never {
		s.say(w.job, s.Log.Warn, "worqr: a schedule has no further times", attrs...)
		return
	}
	s.say(w.job, s.Log.Error, "worqr: can't get the next times of a schedule", attrs...)
}
