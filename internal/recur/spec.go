// Package recur asserts the schedules of one peer: as long as the peer runs, it keeps telling Redis
// what recurs, and when. Scripts plan the occurrences.
package recur

import (
	"errors"
	"fmt"
	"time"
)

// A Schedule says when something recurs: Next returns the first time after t, or the zero time if
// there is none.
type Schedule interface{ Next(time.Time) time.Time }

// A Spec is what recurs under a key.
type Spec struct {
	Schedule Schedule
	Payload  []byte
	Card     []byte        // nil without properties
	Late     time.Duration // the delay after which an occurrence is skipped; 0 is never
}

func (s *Spec) size() int { return len(s.Payload) + len(s.Card) }

// lastMoment is the last millisecond that JSON can express, wherever the schedule is.
var lastMoment = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)

// Shortest is the shortest time between two occurrences.
const Shortest = time.Second

// The errors of a schedule.
var (
	ErrNever   = errors.New("the schedule has no next time; an Interval must be at least a second")
	ErrStands  = errors.New("the method Next returned a time that isn't after its argument")
	ErrTooFast = fmt.Errorf("the schedule has times less than %v apart", Shortest)
)

// next calls user code, and recovers from its panics.
func (s *Spec) next(after time.Time) (at time.Time, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	at = s.Schedule.Next(after)
	switch {
	case at.IsZero() || at.After(lastMoment):
		return time.Time{}, ErrNever
	case !at.After(after):
		return time.Time{}, ErrStands
	}
	return at, nil
}

// Times returns the next times, in ms: those up to until, but at least fewest and at most most.
func (s *Spec) Times(after, until time.Time, most int) (all []int64, err error) {
	for len(all) < most && (len(all) < fewest || !after.After(until)) {
		at, err := s.next(after)
		switch {
		case errors.Is(err, ErrNever) && len(all) > 0:
			return all, nil
		case err != nil:
			return nil, err
		case len(all) > 0 && at.Sub(after) < Shortest:
			return nil, ErrTooFast
		}
		ms := at.UnixMilli()
		if at.Nanosecond()%int(time.Millisecond) > 0 {
			ms++ // never too early
		}
		all, after = append(all, ms), at
	}
	return all, nil
}
