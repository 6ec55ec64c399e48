package redistest

import (
	"syscall"
	"time"
)

// slack is how much longer than asked for the kernel lets a thread sleep.
const slack = 50 * time.Microsecond

// napUntil sleeps until a moment, to some ten microseconds: a timer of the runtime may be
// late by a millisecond, since that is the unit in which an idle program waits.
func napUntil(due time.Time) {
	for {
		left := time.Until(due) - slack
		if left <= 0 {
			return
		}
		span := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&span, nil) // interrupted by a signal: sleep on
	}
}
