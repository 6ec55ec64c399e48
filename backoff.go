package worqr

import (
	"math/rand/v2"
	"time"
)

// A backoff is the time between tries: doubling from 50 ms to a second, full
// jitter.
type backoff struct{ last time.Duration }

func newBackoff() *backoff { return &backoff{} }

func (b *backoff) reset() { b.last = 0 }

func (b *backoff) next() time.Duration {
	b.last = min(max(50*time.Millisecond, 2*b.last), time.Second)
	return jitter(b.last)
}

// jitter is a random time from half of d to d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
