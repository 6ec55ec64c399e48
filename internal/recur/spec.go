// Package recur asserts the schedules of one peer: it tells Redis what recurs, and when, for as
// long as the peer runs. Scripts plan the occurrences.
package recur

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// A Schedule tells when something recurs: the first time after another one, or the zero time
// if there is none.
type Schedule interface{ Next(time.Time) time.Time }

// A Spec is what recurs under a key.
type Spec struct {
	Schedule Schedule
	Payload  []byte
	Card     []byte        // nil: it has no properties
	Late     time.Duration // after which an occurrence is skipped; 0 is never
}

func (s *Spec) size() int { return len(s.Payload) + len(s.Card) }

// Shortest is the shortest time between two occurrences.
const Shortest = time.Second

// The errors of a schedule.
var (
	ErrNever   = errors.New("the schedule has no next time")
	ErrStands  = errors.New("the method Next returned a time that isn't later")
	ErrTooFast = fmt.Errorf("the schedule has times less than %v apart", Shortest)
)

// next calls user code, which may panic.
func (s *Spec) next(after time.Time) (at time.Time, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	at = s.Schedule.Next(after)
	switch {
	case at.IsZero() || at.Year() > 9999:
		return time.Time{}, ErrNever
	case !at.After(after):
		return time.Time{}, ErrStands
	}
	return at, nil
}

// Times returns the next times, in ms: as many as there are until a time, but at least
// fewest, and at most most.
func (s *Spec) Times(after, until time.Time) (all []int64, err error) {
	const fewest, most = 4, 64
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

// samples are instants at which Print looks at a schedule: the weeks around them have month
// ends, leap days and changes of the clock.
var samples = []time.Time{
	time.Date(2024, 2, 28, 12, 0, 0, 0, time.UTC), time.Date(2025, 3, 29, 22, 0, 0, 0, time.UTC),
	time.Date(2025, 7, 31, 23, 59, 0, 0, time.UTC), time.Date(2025, 10, 25, 23, 0, 0, 0, time.UTC),
	time.Date(2026, 3, 8, 5, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 4, 30, 0, 0, time.UTC),
	time.Date(2027, 12, 31, 23, 59, 59, 0, time.UTC),
}

// Print returns what is equal for equal specs, whatever process asks, and whenever. It can't look
// into a schedule, so it takes its times at fixed instants.
func (s *Spec) Print() (string, error) {
	h := sha1.New()
	write := func(n int64) { h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	for _, at := range samples {
		for range 12 {
			next, err := s.next(at)
			if errors.Is(err, ErrNever) {
				write(0)
				break
			}
			if err != nil {
				return "", err
			}
			write(next.UnixNano())
			at = next
		}
	}
	write(int64(s.Late))
	write(int64(len(s.Card)))
	h.Write(s.Card)
	h.Write(s.Payload)
	return hex.EncodeToString(h.Sum(nil)), nil
}
