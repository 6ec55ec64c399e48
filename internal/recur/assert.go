package recur

import (
	"context"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A want is a job for which Redis wants the times after a given time.
type want struct {
	job   *job
	after time.Time
	word  store.Word
}

// mostAsked is how often a page is asserted until all prints are those that Redis can compare. It asks for
// all of them at once, but others may assert theirs meanwhile.
const mostAsked = 4

// assert asserts jobs by their prints, and then sends in full those that Redis wants. Only the latter may
// need memory, so they come last.
func (s *Schedules) assert(ctx context.Context, l *site, jobs []*job) error {
	var wants []want
	for some := range slices.Chunk(jobs, perCall) {
		more, err := s.compare(ctx, l, some)
		if err != nil {
			return err
		}
		wants = append(wants, more...)
	}
	return s.send(ctx, l, wants)
}

// compare asserts a page of jobs by their prints, and returns those whose times Redis wants.
func (s *Schedules) compare(ctx context.Context, l *site, jobs []*job) (wants []want, err error) {
	for _, j := range jobs {
		j.prints = j.prints[max(0, len(j.prints)-1):] // the others were those of replaced ones, or before it moved
	}
	for n := 0; n < mostAsked && len(jobs) > 0; n++ {
		short := make([]store.Schedule, len(jobs))
		for i, j := range jobs {
			_, since, _ := s.specOf(l, j)
			short[i] = store.Schedule{Name: j.name, Since: since, Prints: j.prints}
		}
		told, err := s.ask(ctx, l, short)
		if err != nil {
			return nil, err
		}
		var again []*job
		for i, j := range jobs {
			switch s.answered(j, told[i]); told[i].Word {
			case store.ScheduleCompare:
				if s.print(ctx, l, j, told[i].After) {
					again = append(again, j)
				}
			case store.ScheduleWanted, store.ScheduleMore:
				if s.Begun != nil && told[i].Word == store.ScheduleWanted {
					s.Begun(l.Name, store.KeyOf(j.name))
				}
				wants = append(wants, want{j, time.UnixMilli(told[i].After[0]), told[i].Word})
			}
		}
		jobs = again
	}
	return wants, nil
}

// print adds a job's prints after some instants, and reports whether it has them. The first instant is that of
// the schedule in force; its print comes last, since it stays.
func (s *Schedules) print(ctx context.Context, l *site, j *job, after []int64) bool {
	for _, at := range slices.Backward(after) {
		p := s.plan(ctx, l, want{j, time.UnixMilli(at), store.ScheduleCompare})
		if p == nil {
			return false
		}
		j.prints = append(j.prints, p.print)
	}
	return true
}

// send asserts in full the schedules that Redis wants, several per call.
func (s *Schedules) send(ctx context.Context, l *site, wants []want) error {
	var jobs []*job
	var all []store.Schedule
	size := 0
	flush := func() error {
		told, err := s.ask(ctx, l, all)
		if err != nil {
			return err
		}
		for i, j := range jobs {
			if s.answered(j, told[i]); told[i].Word != store.ScheduleHeld {
				j.tried = time.Time{} // another peer was faster, or it was too much for one call
			}
		}
		jobs, all, size = nil, nil, 0
		return nil
	}
	for _, w := range wants {
		p := s.plan(ctx, l, w)
		spec, since, current := s.specOf(l, w.job)
		if p == nil || !current {
			continue
		}
		if size > 0 && (size+len(spec.Record) > callBytes || len(all) == perCall) {
			if err := flush(); err != nil {
				return err
			}
		}
		w.job.prints = append(w.job.prints, p.print)
		jobs, size = append(jobs, w.job), size+len(spec.Record)
		all = append(all, store.Schedule{Name: w.job.name, Since: since, Prints: w.job.prints, Times: p.times, Record: spec.Record})
	}
	if len(all) == 0 {
		return nil
	}
	return flush()
}

// ask asserts some schedules in one call.
func (s *Schedules) ask(ctx context.Context, l *site, all []store.Schedule) ([]store.Asserted, error) {
	began := time.Now()
	told, _, now, err := store.Recur(ctx, s.Calls, l.Keys, s.period.Milliseconds(), 0, all)
	if err == nil {
		s.heard(l, began, now)
	}
	return told, err
}

// named is how many schedules a log line names.
const named = 5

// end ends schedules that no peer asserts, a page of them, if this peer may. Otherwise, it only learns Redis's time.
func (s *Schedules) end(ctx context.Context, l *site, may bool) error {
	began, until := time.Now(), int64(0)
	if may {
		until = s.judgesUntil(l, began)
	}
	_, ended, now, err := store.Recur(ctx, s.Calls, l.Keys, s.period.Milliseconds(), until, nil)
	if err != nil {
		return err
	}
	s.heard(l, began, now)
	if now <= until && len(ended) == 0 { // otherwise there may be more
		l.watch = time.Time{}
	}
	if len(ended) > 0 && s.Ended != nil {
		var keys []string
		for _, name := range ended {
			keys = append(keys, store.KeyOf(name))
		}
		s.Ended(l.Name, keys)
	}
	if len(ended) > 0 && s.lines.Allow(l.ID) {
		var keys []string
		for _, name := range ended[:min(len(ended), named)] {
			keys = append(keys, logs.Hash(store.KeyOf(name)))
		}
		s.Log.Info("worqr: schedules ended: no running peer has them", "queue", l.Name, "count", len(ended), "keys", keys)
	}
	return nil
}

// answered records the answer about a job, and logs if another schedule is in force.
func (s *Schedules) answered(j *job, a store.Asserted) {
	s.mu.Lock()
	j.since = a.Since
	s.mu.Unlock()
	if a.Word == store.ScheduleCompare {
		return
	}
	if a.Word == store.ScheduleOlder && j.word != a.Word {
		s.say(j, s.Log.Info, "worqr: another peer's newer schedule replaces this one")
	}
	j.word = a.Word
}

// say logs a line about a job, within limits.
func (s *Schedules) say(j *job, log func(string, ...any), msg string, attrs ...any) {
	if s.lines.Allow(j.queue) {
		log(msg, append([]any{"queue", j.queue, "key", logs.Hash(store.KeyOf(j.name))}, attrs...)...)
	}
}
