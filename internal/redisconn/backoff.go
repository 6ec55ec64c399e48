package redisconn

import (
	"math/rand/v2"
	"time"
)

// A Backoff is the time between tries: doubling from 50 ms to a second, full
// jitter.
type Backoff struct{ last time.Duration }

// NewBackoff returns one for the first try.
func NewBackoff() *Backoff { return &Backoff{} }

// Reset begins again, after a success.
func (b *Backoff) Reset() { b.last = 0 }

// Next is how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(50*time.Millisecond, 2*b.last), time.Second)
	return Jitter(b.last)
}

// Jitter is a random time from half of d to d.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
