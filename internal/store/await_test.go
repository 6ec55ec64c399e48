package store

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A turned is a Runner that carries out the calls of one Do in reverse order, as nodes of a
// cluster may while a slot moves. After a number of calls something happens.
type turned struct {
	Runner
	after int
	then  func()
}

func (r *turned) One(ctx context.Context, c redisconn.Call) (any, error) {
	reply := r.Do(ctx, c)[0]
	return reply.Value, reply.Err
}

func (r *turned) Do(ctx context.Context, calls ...redisconn.Call) (replies []redisconn.Reply) {
	for _, c := range slices.Backward(calls) {
		if r.after--; r.after == -1 {
			r.then()
		}
		v, err := r.Runner.One(ctx, c)
		replies = append(replies, redisconn.Reply{Value: v, Err: err})
	}
	slices.Reverse(replies)
	return replies
}

// What is asked in several calls is answered right in a cluster, too, whatever happens between any
// two of them: there the calls of one Do have no order.
func TestOrderInCluster(t *testing.T) {
	t.Parallel()
	const calls = 6 // at most
	receipt := Receipt{Name: digest("a"), Token: 5}
	mark := fmt.Sprintf("p%s:%016d:p1", digest("a"), 5)
	for name, c := range map[string]struct {
		before, then func(e *env)
		right        func(e *env, r Runner) (bool, error)
	}{
		"a worker says what it holds": {
			before: func(e *env) { e.must(e.conn.Do("ZADD", e.q.Holders(), 4, "w1")) },
			then: func(e *env) {
				e.must(e.conn.Do("ZADD", e.q.Stopping(), 0, mark))
				e.must(e.conn.Do("ZADD", e.q.Holders(), 5, "w1"))
			},
			right: func(e *env, r Runner) (bool, error) {
				over, _, err := receipt.IsOver(e.ctx, r, e.q)
				return !over, err
			},
		},
		"the last run ends": {
			before: func(e *env) {
				e.must(e.conn.Do("ZADD", e.q.Stopping(), 0, mark))
				e.must(e.conn.Do("HSET", e.q.Cancel(receipt.Name), "token", 5, "stopped", 0, "finished", 0))
			},
			then: func(e *env) {
				e.must(e.conn.Do("HINCRBY", e.q.Cancel(receipt.Name), "stopped", 1))
				e.must(e.conn.Do("ZREM", e.q.Stopping(), mark))
			},
			right: func(e *env, r Runner) (bool, error) {
				over, tally, err := receipt.IsOver(e.ctx, r, e.q)
				return !over || tally.Stopped == 1, err
			},
		},
		"a process ends": {
			before: func(e *env) {
				e.must(e.conn.Do("ZADD", e.q.Stopping(), 0, mark))
				e.must(e.conn.Do("LPUSH", e.q.Process("p1"), "a"))
			},
			then: func(e *env) {
				e.must(e.conn.Do("DEL", e.q.Process("p1")))
				e.must(e.conn.Do("ZREM", e.q.Stopping(), mark))
			},
			right: func(e *env, r Runner) (bool, error) {
				forgotten, err := receipt.IsForgotten(e.ctx, r, e.q)
				return !forgotten, err
			},
		},
		"a worker leaves": {
			before: func(e *env) {
				e.must(e.conn.Do("ZADD", e.q.Holders(), 4, "w1"))
				e.must(e.conn.Do("ZADD", e.q.Workers(), never, "w1"))
				e.must(e.conn.Do("ZADD", e.q.Canceled(), 5, receipt.Name))
			},
			then: func(e *env) {
				e.must(e.conn.Do("ZREM", e.q.Holders(), "w1"))
				e.must(e.conn.Do("ZREM", e.q.Workers(), "w1"))
			},
			right: func(e *env, r Runner) (bool, error) {
				forgotten, err := receipt.IsForgotten(e.ctx, r, e.q)
				return !forgotten, err
			},
		},
		"a worker is evicted": {
			before: func(e *env) { e.must(e.conn.Do("ZADD", e.q.Workers(), never, "w1")) },
			then: func(e *env) {
				e.must(e.conn.Do("ZADD", e.q.Suspects(), 0, "w1"))
				e.must(e.conn.Do("ZREM", e.q.Workers(), "w1"))
			},
			right: func(e *env, r Runner) (bool, error) {
				queues, err := Serves(e.ctx, r, slices.Values([]keys.Queue{e.q}), "w1")
				if err != nil {
					return false, err
				}
				return queues > 0, nil
			},
		},
		"a holder is evicted": {
			before: func(e *env) { e.must(e.conn.Do("ZADD", e.q.Workers(), never, "w1")) },
			then: func(e *env) {
				e.must(e.conn.Do("ZADD", e.q.Suspects(), 0, "w1"))
				e.must(e.conn.Do("ZREM", e.q.Workers(), "w1"))
			},
			right: func(e *env, r Runner) (bool, error) {
				h, err := ReadHolder(e.ctx, r, keys.NewSpace(e.prefix).InCluster(), e.q, "w1")
				return h.Member || h.Suspect, err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			e.q = keys.NewSpace(e.prefix).InCluster().Queue("q")
			for after := range calls + 1 {
				e.must(e.conn.Do("DEL", e.q.Holders(), e.q.Stopping(), e.q.Cancel(receipt.Name), e.q.Process("p1"),
					e.q.Workers(), e.q.Suspects(), e.q.Canceled()))
				e.must(e.conn.Do("SET", e.q.Token(), 5))
				c.before(e)
				right, err := c.right(e, &turned{e.line, after, func() { c.then(e) }})
				if e.must(nil, err); !right {
					t.Errorf("wrong if it happens after %d calls", after)
				}
			}
		})
	}
}
