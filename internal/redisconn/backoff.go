package redisconn

import (
	"math/rand/v2"
	"time"
)

// A Backoff is the delay between tries: it doubles from 50 ms to a second, with full jitter.
type Backoff struct{ last time.Duration }

// NewBackoff returns a Backoff for the first try.
func NewBackoff() *Backoff { return &Backoff{} }

// Reset starts over, after a success.
func (b *Backoff) Reset() { b.last = 0 }

// Next returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(50*time.Millisecond, 2*b.last), time.Second)
	return Jitter(b.last)
}

// Jitter returns a random duration between d/2 and d.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
