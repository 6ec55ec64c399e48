package recur

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A schedule whose Next panics doesn't affect the others. It's logged once, with the stack. Once Next
// returns, the schedule recurs.
func TestNextPanics(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	var bad atomic.Bool
	r.set("q", "wrong", next(func(at time.Time) time.Time {
		if bad.Load() {
			panic("at the disco")
		}
		return at.Truncate(time.Hour).Add(time.Hour)
	}))
	r.set("q", "good", every(time.Hour))
	bad.Store(true)
	r.run()
	r.eventually("the other is there", func() bool { return r.held("q", "good") })
	r.eventually("it is logged", func() bool { return len(r.lines("can't get the next times")) > 0 })
	r.quiet(3)
	lines := r.lines("")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "at the disco") && strings.Contains(lines[0], "user_test.go"))
	is.True(!strings.Contains(lines[0], "wrong")) // its key; no hexadecimal address spells it
	bad.Store(false)
	r.eventually("it's back", func() bool { return r.held("q", "wrong") })
}

// A schedule whose Next doesn't return, or ends its goroutine, doesn't affect the others, nor the shutdown.
// It's logged once, and not called again meanwhile. Once Next returns, the schedule recurs.
func TestNextHangs(t *testing.T) {
	t.Parallel()
	for how, hang := range map[string]func(release chan struct{}){
		"hangs": func(release chan struct{}) { <-release },
		"exits": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(how, func(t *testing.T) {
			is := redistest.Parallel(t)
			r := newRig(t)
			release := make(chan struct{})
			var bad atomic.Bool
			var calls atomic.Int64
			r.set("q", "wrong", next(func(at time.Time) time.Time {
				if bad.Load() {
					calls.Add(1)
					hang(release)
				}
				return at.Truncate(time.Hour).Add(time.Hour)
			}))
			r.set("q", "good", every(time.Hour))
			bad.Store(true)
			stop := r.run()
			r.eventually("the other is there", func() bool { return r.held("q", "good") })
			r.eventually("it is logged", func() bool { return len(r.lines("can't get the next times")) > 0 })
			r.quiet(3)
			lines := r.lines("")
			is.Equal(len(lines), 1)
			is.True(strings.Contains(lines[0], "didn't return"))
			is.True(!strings.Contains(lines[0], "wrong")) // its key; no hexadecimal address spells it
			if how == "exits" {
				bad.Store(false)
				r.eventually("it's back", func() bool { return r.held("q", "wrong") })
			} else {
				is.Equal(calls.Load(), int64(1))
			}
			stop()
			close(release)
		})
	}
}
