package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A grower makes replies from bytes.
type grower struct{ seed []byte }

func (g *grower) byte() byte {
	if len(g.seed) == 0 {
		return 0
	}
	b := g.seed[0]
	g.seed = g.seed[1:]
	return b
}

// value returns anything that the driver may return.
func (g *grower) value(depth int) any {
	switch b := g.byte(); {
	case b < 8:
		return nil
	case b < 80:
		return int64(int8(g.byte()))
	case b < 90:
		return int64(1)<<(g.byte()%64) - int64(g.byte())
	case b < 150:
		n := min(int(g.byte()%40), len(g.seed))
		s := g.seed[:n]
		g.seed = g.seed[n:]
		return s
	case b < 156:
		return string(Gone)
	case b < 160:
		return redis.Error("EVICTED or not")
	case depth == 0:
		return []any{}
	}
	all := make([]any, g.byte()%24)
	for i := range all {
		all[i] = g.value(depth - 1)
	}
	return all
}

// A madeUp is a Runner that answers each call with the next value, and fails when there are no more.
type madeUp struct{ g *grower }

func (m madeUp) One(context.Context, redisconn.Call) (any, error) {
	if len(m.g.seed) == 0 {
		return nil, errors.New("no more")
	}
	v := m.g.value(4)
	if e, ok := v.(redis.Error); ok {
		return nil, e
	}
	return v, nil
}

func (m madeUp) Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	replies := make([]redisconn.Reply, len(calls))
	for i := range calls {
		replies[i].Value, replies[i].Err = m.One(ctx, calls[i])
	}
	return replies
}

// FuzzReplies checks that any reply leads to an error or a value of the right shape, and nothing
// panics.
func FuzzReplies(f *testing.F) {
	round := func() *Round {
		return &Round{Worker: "w", Number: 1, Start: []string{"a", "b", "c"}, Heard: []string{"d"}, Outcomes: []*Outcome{
			{Process: "x", Token: 1, Verb: Stop}, {Process: "y", Token: 2, Verb: Finish, Plain: true}, {Process: "z", Token: 3, Verb: Finish, Plain: true},
		}}
	}
	for _, seed := range []string{"", "\xff\x0e\xff\x01\x60\x02ok\xff\x02\x09\x00\x60\x04gone", "\xff\x0e\xff\x00\xff\x02\x09\xf0\x60\x04gone\xff\x00\xff\x00\x09\x01\xff\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, seed []byte) {
		reply := func() redisconn.Reply {
			m := madeUp{&grower{seed}}
			v, err := m.One(t.Context(), redisconn.Call{})
			return redisconn.Reply{Value: v, Err: err}
		}
		r := round()
		if a, err := ReadStep(reply(), r); err == nil && len(a.Settled) < r.ends() {
			t.Errorf("%d outcomes are settled, of %d ends", len(a.Settled), r.ends())
		}
		_, _ = ReadBeat(reply())
		ctx, q := t.Context(), keys.NewSpace("p").Queue("q")
		fresh := func() Runner { return madeUp{&grower{seed}} }
		_, _ = Sweep(ctx, fresh(), q, time.Second)
		_, _ = Leave(ctx, fresh(), q, "w", 1, 1)
		_, _, _ = FailWorker(ctx, fresh(), q, "w")
		_ = Register(ctx, fresh(), keys.NewSpace("p"), "w", time.Second, Registration{})
		_ = List(ctx, fresh(), keys.NewSpace("p"), "q", "r")
		_, _ = Now(ctx, fresh())
		_, _, _ = EnqueueOnce(ctx, fresh(), q, "n", time.Second, []any{"p"})
		_, _ = enqueueUnique(ctx, fresh(), q, []byte("p"))
		_, _ = Cancel(ctx, fresh(), q, []byte("p"))
		_, _ = CancelKey(ctx, fresh(), q, "k:a")
		_, _ = Put(ctx, fresh(), q, "k:a", Change{})
		_, _ = Requeue(ctx, fresh(), q, []string{"a"})
		_ = Pause(ctx, fresh(), q)
		_ = Resume(ctx, fresh(), q)
		_ = Delete(ctx, fresh(), q)
		_, _ = Check(ctx, fresh(), q, CheckHeld, "w", true, []string{"p"})
		_, _ = Explain(ctx, fresh(), q, "", []byte("p"), 1, 1)
		_ = Unlist(ctx, fresh(), keys.NewSpace("p"), q, "q")
		_ = Delist(ctx, fresh(), keys.NewSpace("p"), []string{"w"})
		for _, v := range Verbs() {
			r := reply()
			a := v.read(r.Value, r.Err)
			for _, name := range v.reply {
				a.int(name)
				a.string(name)
				a.each(name, func(d *decoder) { d.next() })
			}
			if a.err == nil && len(v.reply) > 0 {
				t.Errorf("%s: nothing is a number, a string and an array", v.Name)
			}
		}
	})
}
