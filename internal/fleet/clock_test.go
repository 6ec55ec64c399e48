package fleet

import (
	"testing"
	"time"

	"github.com/matryer/is"
)

// A clock is wrong by at least what the time of the call can't explain.
func TestAheadOf(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at := time.UnixMilli(1_700_000_000_000)
	for redis, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: 0, 3 * time.Second: 0, // within the call
		-time.Hour: time.Hour, time.Hour: -(time.Hour - 3*time.Second),
	} {
		is.Equal(aheadOf(at.Add(redis).UnixMilli(), at, at.Add(3*time.Second)), want)
	}
}
