//go:build !linux

package redistest

import "time"

// napUntil sleeps until a given time.
func napUntil(due time.Time) { time.Sleep(time.Until(due)) }
