package redistest

import (
	"syscall"
	"time"
)

// slack is how late the kernel may wake a thread.
const slack = 50 * time.Microsecond

// napUntil sleeps until a given time, to within tens of microseconds. A timer of the runtime may be
// a millisecond late, since an idle program waits in whole milliseconds.
func napUntil(due time.Time) {
	for {
		left := time.Until(due) - slack
		if left <= 0 {
			return
		}
		span := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&span, nil) // if interrupted by a signal, sleep again
	}
}
