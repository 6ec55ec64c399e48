package worqr_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

func TestInterval(t *testing.T) {
	is := parallel(t)
	at := time.Date(2026, 11, 25, 13, 7, 21, 5, time.FixedZone("", 3600)) // a Wednesday
	is.True(worqr.Interval(time.Hour).Next(at).Equal(time.Date(2026, 11, 25, 13, 0, 0, 0, time.UTC)))
	is.True(worqr.Interval(24 * time.Hour).Next(at).Equal(time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)))
	is.True(worqr.Interval(7 * 24 * time.Hour).Next(at).Equal(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)))
	is.True(worqr.Interval(time.Second).Next(at).Equal(time.Date(2026, 11, 25, 12, 7, 22, 0, time.UTC)))
	is.True(worqr.Interval(-1).Next(at).IsZero())
}

type panicking struct{}

func (panicking) Next(time.Time) time.Time { panic("at the disco") }

func TestEvery(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{MaxPayload: 100})
	q, hourly := p.Queue("q"), worqr.Interval(time.Hour)
	is.NoErr(q.Every(strings.Repeat("k", 1000), hourly, make([]byte, 100), &worqr.EveryOptions{SkipLate: time.Second}))
	is.NoErr(q.Every("none", nil, nil, nil))
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"no key":     {q.Every("", hourly, nil, nil), worqr.ErrInvalid},
		"long key":   {q.Every(strings.Repeat("k", 1001), hourly, nil, nil), worqr.ErrTooLarge},
		"payload":    {q.Every("x", hourly, make([]byte, 101), nil), worqr.ErrTooLarge},
		"large":      {open(t, worqr.Options{}).Queue("q").Every("x", hourly, make([]byte, worqr.MaxEveryPayload+1), nil), worqr.ErrTooLarge},
		"never":      {q.Every("x", worqr.Interval(0), nil, nil), worqr.ErrInvalid},
		"too fast":   {q.Every("x", worqr.Interval(time.Second-1), nil, nil), worqr.ErrInvalid},
		"panic":      {q.Every("x", panicking{}, nil, nil), worqr.ErrInvalid},
		"expression": {q.Every("x", hourly, nil, &worqr.EveryOptions{Expression: strings.Repeat("*", 201)}), worqr.ErrTooLarge},
		"skip":       {q.Every("x", hourly, nil, &worqr.EveryOptions{SkipLate: -1}), worqr.ErrInvalid},
		"timeout":    {q.Every("x", hourly, nil, &worqr.EveryOptions{Timeout: -1}), worqr.ErrInvalid},
		"bad queue":  {p.Queue("").Every("x", hourly, nil, nil), worqr.ErrBadName},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	for range q.Recurring(t.Context()) {
		t.Error("a peer that doesn't run tells Redis nothing")
	}
	for _, err := range p.Queue("").Recurring(t.Context()) {
		is.True(errors.Is(err, worqr.ErrBadName))
	}
	is.True(!sure(q.RunNow(t.Context(), "x"))(t))
	closed := open(t, worqr.Options{})
	must(t, closed.Close())
	is.True(errors.Is(closed.Queue("q").Every("x", hourly, nil, nil), worqr.ErrShutdown))
	is.Equal(sure(q.Stats(t.Context()))(t).Scheduled, 0) // looking up a time adds no task
	_, err := q.RunNow(t.Context(), "")
	is.True(errors.Is(err, worqr.ErrInvalid))
}
