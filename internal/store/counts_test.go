package store

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A queue is silent if it has workers, and the last lease of them has lapsed.
func TestSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		leases []time.Duration // from now on
		want   bool
	}{
		{"without a worker", nil, false},
		{"with one", []time.Duration{time.Minute}, false},
		{"with a dead one", []time.Duration{-time.Minute}, true},
		{"with dead ones", []time.Duration{-time.Minute, -time.Second}, true},
		{"with dead ones and one that lives", []time.Duration{-time.Minute, time.Minute, -time.Second}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := redistest.Parallel(t)
			e := newEnv(t, redistest.URL(), nil)
			for i, lease := range c.leases {
				e.must(e.conn.Do("ZADD", e.q.Workers(), e.now()+lease.Milliseconds(), i))
			}
			counts := sure(Count(e.ctx, e.line, e.q))(t)
			is.Equal(counts.Silent, c.want)
			is.Equal(counts.Workers, len(c.leases))
		})
	}
}
