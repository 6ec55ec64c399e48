package recur

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A schedule whose Next blocks, panics or ends its goroutine doesn't affect the others, nor the
// shutdown. It's logged once, a panic with its stack. Once Next returns, the schedule recurs.
func TestNextMisbehaves(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	for how, c := range map[string]struct {
		do   func()
		want string
	}{
		"panics": {func() { panic("at the disco") }, "at the disco"}, "exits": {runtime.Goexit, "runtime.Goexit"},
		"blocks": {func() { <-release }, "didn't return within 1s"},
	} {
		t.Run(how, func(t *testing.T) {
			is := redistest.Parallel(t)
			r := newRig(t)
			var bad atomic.Bool
			r.set("q", "wrong", next(func(at time.Time) time.Time {
				if bad.Load() {
					c.do()
				}
				return at.Truncate(time.Hour).Add(time.Hour)
			}))
			r.set("q", "good", every(time.Hour))
			bad.Store(true)
			began := time.Now()
			r.Begin(r.ctx)
			is.True(time.Since(began) < 10*maxNext)
			stop := r.run()
			r.eventually("the other is there", func() bool { return r.held("q", "good") })
			r.eventually("it is logged", func() bool { return len(r.lines("can't get the next times")) > 0 })
			r.quiet(3)
			lines := r.lines("")
			is.Equal(len(lines), 1)
			is.True(strings.Contains(lines[0], c.want))
			is.True(!strings.Contains(lines[0], "wrong")) // its key; no hexadecimal address spells it
			is.Equal(strings.Contains(lines[0], "times_test.go"), how == "panics")
			if how != "blocks" {
				bad.Store(false)
				r.eventually("it's back", func() bool { return r.held("q", "wrong") })
			}
			stop()
			if how == "blocks" {
				close(release)
			}
		})
	}
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

// Times that come late are used.
func TestLateTimes(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	release := make(chan struct{})
	var blocks atomic.Bool
	r.set("q", "x", next(func(at time.Time) time.Time {
		if blocks.Load() {
			<-release
		}
		return at.Truncate(time.Hour).Add(time.Hour)
	}))
	blocks.Store(true)
	r.run()
	r.eventually("it is logged", func() bool { return len(r.lines("didn't return")) == 1 })
	close(release)
	r.eventually("it's there", func() bool { return r.held("q", "x") })
	is.Equal(len(r.lines("")), 1)
}
