package store

import (
	"context"
	"slices"
	"testing"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A turned is a Runner that makes the calls of one Do in reverse order, as nodes of a
// cluster may while a slot moves. It calls then after a number of calls.
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

// Questions that take several calls are answered correctly in a cluster, too, whatever happens between
// two calls: there, the calls of one Do have no order.
func TestOrderInCluster(t *testing.T) {
	t.Parallel()
	const calls = 6 // at most
	receipt := Receipt{Name: digest("a"), Token: 5}
	mark := "(" + stopped("a", 5, "p1") + "=0)"
	over := func(e *env, r Runner) (bool, Tally) {
		over, tally, err := receipt.IsOver(e.ctx, r, e.q)
		e.must(nil, err)
		return over, tally
	}
	remembered := func(e *env, r Runner) bool { return !sure(receipt.IsForgotten(e.ctx, r, e.q))(e.t) }
	member, evicted := state{"workers": "(w1=never)"}, state{"workers": "", "suspects": "(w1=0)"}
	for name, c := range map[string]struct {
		before, then state
		right        func(e *env, r Runner) bool
	}{
		"a worker says what it holds": {state{"holders": "(w1=4)"}, state{"stopping": mark, "holders": "(w1=5)"}, func(e *env, r Runner) bool {
			over, _ := over(e, r)
			return !over
		}},
		"the last run ends": {
			state{"stopping": mark, "cancel:#a": "{token=5 stopped=0 finished=0}"},
			state{"stopping": "", "cancel:#a": "{token=5 stopped=1 finished=0}"},
			func(e *env, r Runner) bool {
				over, tally := over(e, r)
				return !over || tally.Stopped == 1
			}},
		"a process ends":  {state{"stopping": mark, "process:p1": "[a]"}, state{"stopping": "", "process:p1": ""}, remembered},
		"a worker leaves": {member.with("holders", "(w1=4)", "canceled", "(#a=5)"), state{"holders": "", "workers": ""}, remembered},
		"a holder is evicted": {member, evicted, func(e *env, r Runner) bool {
			h := sure(ReadHolder(e.ctx, r, keys.NewSpace(e.prefix).InCluster(), e.q, "w1"))(e.t)
			return h.Member || h.Suspect
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			e.q = keys.NewSpace(e.prefix).InCluster().Queue("q")
			puts := func(all state) {
				for k, v := range all {
					e.must(e.conn.Do("DEL", e.key(k)))
					if v != "" {
						e.put(k, v, 0)
					}
				}
			}
			for after := range calls + 1 {
				puts(state{"holders": "", "stopping": "", "cancel:#a": "", "process:p1": "", "workers": "", "suspects": "", "canceled": "", "token": "=5"})
				puts(c.before)
				if !c.right(e, &turned{e.line, after, func() { puts(c.then) }}) {
					t.Errorf("wrong if it happens after %d calls", after)
				}
			}
		})
	}
}
