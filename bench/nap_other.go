//go:build !linux

package main

import "time"

// napUntil sleeps until a moment.
func napUntil(due time.Time) { time.Sleep(time.Until(due)) }
