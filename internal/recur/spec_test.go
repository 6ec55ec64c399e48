package recur

import (
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// nightly is a schedule each day at a local time. A time that is skipped in spring comes an hour
// later; one that occurs twice in autumn comes once. robfig/cron differs: see integration/cron.
type nightly struct {
	hour, minute int
	zone         *time.Location
}

func (n nightly) Next(t time.Time) time.Time {
	y, m, d := t.In(n.zone).Date()
	for ; ; d++ {
		if at := time.Date(y, m, d, n.hour, n.minute, 0, 0, n.zone); at.After(t) {
			return at
		}
	}
}

type next func(time.Time) time.Time

func (f next) Next(t time.Time) time.Time { return f(t) }

func every(d time.Duration) Schedule {
	return next(func(t time.Time) time.Time { return t.Truncate(d).Add(d) })
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestTimes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := Spec{Schedule: nightly{2, 30, zone(t, "Europe/Berlin")}}
	at := func(texts ...string) (all []int64) {
		for _, text := range texts {
			when, err := time.Parse(time.RFC3339, text)
			is.NoErr(err)
			all = append(all, when.UnixMilli())
		}
		return all
	}
	spring, err := s.Times(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), time.Time{}, 4)
	is.NoErr(err)
	is.Equal(spring, at("2026-03-28T02:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"))
	autumn, err := s.Times(time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC), time.Time{}, 4)
	is.NoErr(err)
	is.Equal(autumn, at("2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00", "2026-10-28T02:30:00+01:00"))

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		each, cover time.Duration
		want        int
	}{{time.Hour, 0, 10}, {time.Second, time.Minute, 61}, {time.Second, time.Hour, 64}} {
		all, err := (&Spec{Schedule: every(c.each)}).Times(now, now.Add(c.cover), 64)
		is.NoErr(err)
		is.Equal(len(all), c.want)
		is.Equal(all[0], now.Add(c.each).UnixMilli())
	}
	twice := Spec{Schedule: next(func(t time.Time) time.Time { // it has two times left
		if t.Before(now.Add(2 * time.Hour)) {
			return t.Add(time.Hour + time.Microsecond)
		}
		return time.Time{}
	})}
	all, err := twice.Times(now, now, 64)
	is.NoErr(err)
	is.Equal(len(all), 2)
	is.Equal(all[0], now.Add(time.Hour+time.Millisecond).UnixMilli()) // never too early
	for name, c := range map[string]struct {
		next next
		want error
	}{
		"never":    {func(time.Time) time.Time { return time.Time{} }, ErrNever},
		"too late": {func(t time.Time) time.Time { return t.AddDate(9000, 0, 0) }, ErrNever},
		"stands":   {func(t time.Time) time.Time { return t }, ErrStands},
		"too fast": {func(t time.Time) time.Time { return t.Add(time.Second - 1) }, ErrTooFast},
	} {
		if _, err := (&Spec{Schedule: c.next}).Times(now, now, 64); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	_, err = (&Spec{Schedule: next(func(time.Time) time.Time { panic("no") })}).Times(now, now, 64)
	is.Equal(err.Error(), "the method Next panicked: no")
}

// A time that JSON can't express, in UTC and as Redis stores it, never comes.
func TestLastMoment(t *testing.T) {
	is := redistest.Parallel(t)
	last := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	for at, comes := range map[time.Time]bool{last: true, last.Add(1): false, last.Add(-time.Hour).In(time.FixedZone("", -2*3600)): true, last.Add(time.Hour).In(time.FixedZone("", -2*3600)): false} {
		s := Spec{Schedule: next(func(time.Time) time.Time { return at })}
		_, err := s.next(last.AddDate(0, 0, -1))
		is.Equal(err == nil, comes)
	}
}
