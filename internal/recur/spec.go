package recur

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A Schedule says when something recurs: Next returns the first time after t, or the zero time if
// there is none.
type Schedule interface{ Next(time.Time) time.Time }

// A Spec is what recurs under a name.
type Spec struct {
	Schedule Schedule
	Record   []byte // what occurs; see store.Schedule
}

// lastMoment is the last millisecond that JSON can express, wherever the schedule is.
var lastMoment = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)

// Shortest is the shortest time between two occurrences.
const Shortest = time.Second

// fewest is how many times Redis gets, at least, and how many a print is made of.
const fewest = 10

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

// A plan is what a schedule's next times after an instant are.
type plan struct {
	times []int64
	print string // empty if the times aren't known
}

// plan returns the times up to until, and a few at least. A schedule that has no more times has a
// print, too.
func (s *Spec) plan(after, until time.Time) (p plan, err error) {
	p.times, err = s.Times(after, until, int(max(0, until.Sub(after))/Shortest)+fewest)
	if err == nil || errors.Is(err, ErrNever) {
		p.print = s.print(after, p.times)
	}
	return p, err
}

// print returns a string that is equal for specs with the same record and next times after an instant, in
// every process. It begins with the instant.
func (s *Spec) print(after time.Time, times []int64) string {
	h := sha1.New()
	times = times[:min(len(times), fewest)]
	for _, n := range append([]int64{int64(len(times))}, times...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	h.Write(s.Record)
	return strconv.FormatInt(after.UnixMilli(), 10) + ":" + hex.EncodeToString(h.Sum(nil))
}

// alike reports whether two specs have equal prints after an instant. If one has no print, they differ.
func alike(a, b Spec, after time.Time) bool {
	was, _ := a.plan(after, time.Time{})
	now, _ := b.plan(after, time.Time{})
	return was.print != "" && was.print == now.print
}
