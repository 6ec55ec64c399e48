package store

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

func commits(nonce string, count int) func(*env) string {
	return func(e *env) string {
		v, err := e.line.One(e.ctx, commit.call(e.q, "batch", "b", "once", nonce, "id", "b", "count", count, "window", 60_000))
		return answered(v, err)
	}
}

// Whatever others have written as its number, a batch is behind those that are to be moved,
// and is to be moved.
func TestBatchBehindTheHighestNumber(t *testing.T) {
	is := redistest.Parallel(t)
	e := newEnv(t, redistest.URL(), nil)
	e.seed(state{"batch:a": "[x]", "batch:b": "[y] +1m"})
	e.must(e.conn.Do("ZADD", e.q.Batches(), putAside-1, "a"))
	is.Equal(commits("n", 1)(e), "1")
	is.Equal(hauls(e), "1")
	is.Equal(hauls(e), "0")
	is.Equal(sure(redis.Strings(e.conn.Do("LRANGE", e.q.Waiting(), 0, -1)))(t), []string{"y", "x"})
}
