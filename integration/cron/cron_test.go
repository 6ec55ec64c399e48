// Package cron tests schedules of github.com/robfig/cron.
package cron

import (
	"os"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/robfig/cron/v3"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/recur"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

func parse(t testing.TB, text string) worqr.Schedule {
	t.Helper()
	s, err := parser.Parse(text)
	return redistest.Sure(s, err)(t)
}

// Times are local. In spring, the times that are skipped don't occur on that day; in autumn, those that come
// twice occur twice.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expression, from string
		want             []string
	}{
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T00:00:00Z", []string{"2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00", "2026-04-01T02:30:00+02:00"}},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T20:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"}},
		{"CRON_TZ=Europe/Berlin 30 4 * * *", "2026-03-28T00:00:00Z", []string{"2026-03-28T04:30:00+01:00", "2026-03-29T04:30:00+02:00", "2026-03-30T04:30:00+02:00", "2026-03-31T04:30:00+02:00"}},
		{"CRON_TZ=Europe/Berlin 30 4 * * *", "2026-10-24T20:00:00Z", []string{"2026-10-25T04:30:00+01:00", "2026-10-26T04:30:00+01:00", "2026-10-27T04:30:00+01:00", "2026-10-28T04:30:00+01:00"}},
		{"@every 36h", "2026-10-24T20:00:00Z", []string{"2026-10-26T08:00:00Z", "2026-10-27T20:00:00Z", "2026-10-29T08:00:00Z", "2026-10-30T20:00:00Z"}},
	} {
		is := is.New(t)
		at := func(text string) time.Time {
			when, err := time.Parse(time.RFC3339, text)
			return redistest.Sure(when, err)(t)
		}
		spec := recur.Spec{Schedule: parse(t, c.expression)}
		times, err := spec.Times(at(c.from), time.Time{}, 4)
		is.NoErr(err)
		is.Equal(len(times), len(c.want))
		for i, want := range c.want {
			if times[i] != at(want).UnixMilli() {
				t.Errorf("%s from %s: %s, want %s", c.expression, c.from, time.UnixMilli(times[i]).UTC().Format(time.RFC3339), want)
			}
		}
	}
}
