package redistest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// named is the master that a sentinel names.
func named(t *testing.T, w *redistest.Server) string {
	t.Helper()
	where := redistest.Sure(redis.Strings(redistest.Do(t, redistest.Dial(t, w.URL()), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName), nil))(t)
	return strings.Join(where, ":")
}

// Sentinels promote when they are told to and when the master is gone, and one that is cut off
// hears of neither.
func TestSentinels(t *testing.T) {
	is := redistest.Parallel(t)
	began := time.Now()
	s := redistest.StartSentinels(t, redistest.SentinelSetup{})
	t.Log("they were there after", time.Since(began).Round(time.Millisecond))
	first := s.Master(t)
	is.Equal(first, s.Servers[0])
	stray := s.Stray(t, first)
	second := s.Failover(t)
	is.True(second != first)
	s.Demoted(t, first)
	s.Hurry(t)
	second.Kill()
	third := s.Promoted(t, second)
	is.True(third != second)
	redistest.Do(t, redistest.Dial(t, third.URL()), "SET", "k", "v")
	is.Equal(named(t, stray), first.Addr())
}

// Everything may want TLS, and passwords of its own.
func TestSentinelsWithTLS(t *testing.T) {
	is := redistest.Parallel(t)
	s := redistest.StartSentinels(t, redistest.SentinelSetup{TLS: redistest.NewAuthority(t), Password: "data", Watch: "watch"})
	was := s.Master(t)
	is.True(s.Failover(t) != was)
	is.True(strings.HasPrefix(s.URL(), "rediss+sentinel://:data@127.0.0.1:") && strings.HasSuffix(s.URL(), "?sentinel=watch"))
}
