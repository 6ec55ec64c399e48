package store

import (
	"testing"

	"github.com/gomodule/redigo/redis"
)

var _ = probed("commit",
	probe{seed: busyBatch, call: commits("n", 1), adds: true},
)

func commits(nonce string, count int) func(*env) string {
	return func(e *env) string {
		v, err := e.line.One(e.ctx, commit.call(e.q, "batch", "b", "once", nonce, "id", "b", "count", count, "window", 60_000))
		return said(err, "%v", v)
	}
}

func TestCommit(t *testing.T) {
	open := state{"batch:b": "[a b c] +1m"}
	accepted := state{"batch:b": "[a b c]", "batches": "(b=1)", "once:n": "=b +1m"}
	run(t, []scenario{
		{name: "a nonce of another type", seed: open.with("once:n", "[x]"), steps: []when{{call: commits("n", 3), want: "WRONGTYPE", state: open.with("once:n", "[x]")}}},
		{name: "a nonce that begins as the id", seed: open.with("once:n", "=bb"), steps: []when{{call: commits("n", 3), want: "0", state: open.with("once:n", "=bb")}}},
		{name: "a nonce that was used", seed: open.with("once:n", "=1 +1m"), steps: []when{
			{call: commits("n", 3), want: "0", state: open.with("once:n", "=1 +1m")}}},
		{name: "a page is missing", seed: open, steps: []when{{call: commits("n", 4), want: "BATCH", state: open}}},
		{name: "behind the last of those to be moved", seed: open.with("batches", "(x=3 y=7 z=aside:-5m)"), steps: []when{
			{call: commits("n", 3), want: "1", heard: []string{"enqueue 3"}, state: accepted.with("batches", "(x=3 y=7 b=8 z=aside:-5m)")}}},
		{name: "behind all that has no number", seed: open.with("batches", "(x=-5)"), steps: []when{
			{call: commits("n", 3), want: "1", heard: []string{"enqueue 3"}, state: accepted.with("batches", "(x=-5 b=1)")}}},
		{name: "batches of another type", seed: open.with("batches", "=foreign"), steps: []when{
			{call: commits("n", 3), want: "WRONGTYPE", state: open.with("batches", "=foreign")}}},
	})
}

// Whatever number another program has written, a batch is committed behind those that wait to be
// moved, and waits its turn.
func TestBatchBehindTheHighestNumber(t *testing.T) {
	e := beside(t, state{"batch:a": "[x]", "batch:b": "[y] +1m"})
	e.must(e.conn.Do("ZADD", e.q.Batches(), int64(putAside-1), "a"))
	e.is.Equal(commits("n", 1)(e), "1")
	e.is.Equal(hauls(e), "1")
	e.is.Equal(hauls(e), "0")
	e.is.Equal(sure(redis.Strings(e.conn.Do("LRANGE", e.q.Waiting(), 0, -1)))(t), []string{"y", "x"})
}
