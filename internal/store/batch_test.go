package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A large enqueue is stored separately, accepted in one step and moved. Every call may be
// repeated, and none takes effect twice.
func TestBatch(t *testing.T) {
	open := state{"batch:b": "[a b c] +1m"}
	accepted := state{"batch:b": "[a b c]", "batches": "(b=1)", "once:n": "=b +1m"}
	waiting := member.with("token", "=9", "queues", "[x]", "batches", "(b=1 c=2 d=3 e=aside:0)", "batch:b", "[a y]", "batch:c", "=foreign", "batch:d", "[a]", "batch:e", "[a]")
	many := member.with("token", "=9", "batches", "("+strings.Join(numbered("d", 150), " ")+")")
	for i := range 150 {
		many[fmt.Sprint("batch:d", 100+i)] = "[z]"
	}
	long := strings.Repeat("i", 70)
	run(t, []scenario{
		{name: "all of it", seed: state{"queues": "[z]"}, steps: []when{
			{call: stages(0, "a", "b"), want: "2", state: state{"queues": "[z]", "batch:b": "[a b] +1m"}},
			{call: stages(0, "a", "b"), want: "2", state: state{"queues": "[z]", "batch:b": "[a b] +1m"}},
			{call: stages(2, "c"), want: "3", state: open.with("queues", "[z]")},
			{call: stages(2, "c"), want: "3"},
			{call: stages(0, "a", "b"), want: "BATCH", state: open.with("queues", "[z]")},
			{call: commits("n", 3), want: "1", heard: []string{"enqueue 3"}, state: accepted.with("queues", "[z]")},
			{call: commits("n", 3), want: "1", state: accepted.with("queues", "[z]")},
			{call: stages(2, "c"), want: "BATCH"},
			{call: hauls, want: "0", state: state{"queues": "[z a b c]", "once:n": "=b +1m"}},
			{call: hauls, want: "0", state: state{"queues": "[z a b c]", "once:n": "=b +1m"}},
			{call: commits("n", 3), want: "1", state: state{"queues": "[z a b c]", "once:n": "=b +1m"}},
			{call: stages(2, "c"), want: "BATCH", state: state{"queues": "[z a b c]", "once:n": "=b +1m"}},
		}},
		{name: "nothing is there", steps: []when{{call: commits("n", 4), want: "BATCH"}, {call: hauls, want: "0"}, {call: stages(2, "c"), want: "BATCH", state: state{}}}},
		{name: "later tasks go behind", seed: accepted.with("queues", "[z]"), steps: []when{
			{call: enqueues("y"), want: "UNMOVED"},
			{call: enqueuesOnce("m", "y"), want: "UNMOVED"},
			{call: enqueuesOnce("n", "y"), want: "repeated"},
			{call: enqueuesUnique("y"), want: "UNMOVED"},
			{call: hauls, want: "0", state: state{"queues": "[z a b c]", "once:n": "=b +1m"}},
			{call: enqueues("y"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[z a b c y]", "once:n": "=b +1m"}}}},
		{name: "batches of another type block no one", seed: state{"batches": "[b]", "workers": "(w1=+60m)"}, steps: []when{
			{call: enqueues("y"), want: "ok", heard: []string{"enqueue 1"}, state: state{"batches": "[b]", "workers": "(w1=+60m)", "queues": "[y]"}},
			{call: beats("w1", false), want: "waiting=1"},
			{call: hauls, want: "WRONGTYPE"},
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{"workers": "(w1=+60m)"}}}},
		{name: "deleted", seed: accepted.with("queues", "[z]"), steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{"once:n": "=b +1m"}}}},
		{name: "many are deleted", seed: state{"batches": "(" + strings.Join(numbered("d", 250), " ") + ")", "batch:d349": "[a]"}, steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
		{name: "a beat reports batches", seed: accepted.merged(member), steps: []when{
			{call: hears("w1"), want: "b 3"}}},
		{name: "a beat reports a batch of another type", seed: accepted.merged(member).with("batch:b", "=foreign"), steps: []when{
			{call: hears("w1"), want: "b 0"}}},
		{name: "explain looks into batches", seed: waiting, steps: []when{{call: explains("", "a"), want: "workers=1 length=4 before=1,3"}}},
		{name: "explain looks into a hundred batches", seed: many, steps: []when{{call: explains("", "a"), want: "workers=1 length=100"}}},
		{name: "explain: batches of another type", seed: member.with("batches", "=foreign", "queues", "[a]"), steps: []when{{call: explains("", "a"), want: "workers=1 length=1 before=0"}}},
		{name: "explain returns at most as many copies as requested", seed: member.with("queues", "[a a]", "batches", "(b=1)", "batch:b", "[a]"), steps: []when{{call: explains("", "a"), want: "workers=1 length=3 before=0,1"}}},
		{name: "explain searches no deeper than requested", seed: member.with("queues", "[w x y z]", "batches", "(b=1)", "batch:b", "[a]"), steps: []when{{call: explains("", "a"), want: "workers=1 length=5"}}},
		left("paused, and batches wait", waiting.with("paused", "=1"), "paused q 4", CheckQueue, "q"),
		{name: "a beat returns the start of a long id", seed: member.with("batches", "("+long+"=1)", "batch:"+long, "[a]"), steps: []when{{call: hears("w1"), want: long[:64] + " 1"}}},
		{name: "haul returns the start of a long id", seed: state{"batches": "(" + long + "=1)"}, steps: []when{{call: hauls, want: "0 " + long[:64], state: state{"batches": "(" + long + "=aside:0)"}}}},
	})
}

// A page is bounded in elements and in bytes, and a full Redis still moves accepted batches.
func TestBatchPages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	e := newEnv(t, server.URL(), nil)
	is := is.New(t)
	for _, c := range []struct{ payloads, size, pages int }{{4001, 1, 3}, {8, 512 << 10, 4}, {3, 2 << 20, 3}} {
		all := slices.Repeat([]any{make([]byte, c.size)}, c.payloads)
		is.Equal(stages(0, all...)(e), fmt.Sprint(c.payloads))
		is.Equal(commits(fmt.Sprint(c), c.payloads)(e), "1")
		e.must(e.conn.Do("CONFIG", "SET", "maxmemory", 1))
		for range c.pages - 1 {
			is.Equal(hauls(e), "1")
		}
		is.Equal(hauls(e), "0")
		is.Equal(stages(0, "a")(e), "OOM")
		e.must(e.conn.Do("CONFIG", "SET", "maxmemory", 0))
		is.Equal(sure(redis.Int(e.conn.Do("LLEN", e.q.Waiting())))(t), c.payloads)
		e.must(e.conn.Do("DEL", e.q.Waiting()))
	}
}

// A flaw is a Runner that loses the reply of a call, before or after the call is made, or at which the
// producer dies.
type flaw struct {
	Runner
	at     int // which call
	done   bool
	dies   bool
	before func(n int)
	calls  int
}

func (f *flaw) One(ctx context.Context, c redisconn.Call) (any, error) {
	f.calls++
	if f.before != nil {
		f.before(f.calls)
	}
	switch {
	case f.calls < f.at || f.calls > f.at && !f.dies:
		return f.Runner.One(ctx, c)
	case f.calls > f.at:
		return nil, errors.New("the producer is dead")
	case f.done:
		_, _ = f.Runner.One(ctx, c)
	}
	return nil, redisconn.ErrUnknown
}

// Wherever a reply is lost or the producer dies, all payloads are enqueued once and in
// order, or none is; pages left over expire, or a worker of the queue moves them.
func TestBatchInterrupted(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		for _, done := range []bool{false, true} {
			for at := 1; at <= 8; at++ { // 3 pages, commit, 3 hauls, and one that finds nothing
				t.Run(fmt.Sprint(dies, done, at), func(t *testing.T) {
					e := beside(t, nil)
					payloads := series(6_000, func(i int) []byte { return fmt.Append(nil, i) })
					others := 0
					f := &flaw{Runner: e.line, at: at, done: done, dies: dies, before: func(n int) {
						e.must(e.conn.Do("LPUSH", e.q.Waiting(), fmt.Sprint("other ", n)))
						others++
					}}
					fresh, err := Batch{ID: "b", Nonce: "n", Window: time.Minute}.Enqueue(e.ctx, f, e.q, payloads)
					if err == nil {
						_, _ = Haul(e.ctx, f, e.q)
					}
					all := at > 4 || !dies || at == 4 && done
					if told := all && !(dies && at == 4); told && (err != nil || !fresh) || !told && err == nil {
						t.Errorf("answered %v %v", fresh, err)
					}
					if !all {
						ttl := sure(redis.Int(e.conn.Do("PTTL", e.q.Batch("b"))))(t)
						e.is.True(ttl > 0 || ttl == -2) // it expires, or is gone
						redistest.Do(t, e.conn, "DEL", e.q.Batch("b"))
					}
					e.is.Equal(sure(Haul(e.ctx, e.line, e.q))(t), Damage{})
					list := sure(redis.Strings(e.conn.Do("LRANGE", e.q.Waiting(), 0, -1)))(t)
					want := others
					if all {
						want += len(payloads)
					}
					e.is.Equal(len(list), want)
					next := 0
					for i := len(list) - 1; i >= 0; i-- {
						if all && next < len(payloads) && list[i] == string(payloads[next]) {
							next++
						}
					}
					e.is.True(!all || next == len(payloads)) // in order
					left := redistest.Keys(t, e.conn, e.prefix+":batch*")
					e.is.Equal(len(left), 0)
				})
			}
		}
	}
}

// hears makes a beat, and returns which batch it says to move next.
func hears(worker string) func(*env) string {
	return func(e *env) string {
		p, err := ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, worker, time.Hour, time.Hour, 0))[0])
		return said(err, "%s", p.Batch)
	}
}

func TestGuardCheckBatch(t *testing.T) {
	w := state{"batches": "(b=1)", "batch:b": "[a]"}
	aside := w.with("batches", "(b=aside:0)")
	only := func(name string, seed state) scenario { // looked at
		return scenario{name: name + ", and only looked at", seed: seed, steps: []when{{call: checks(false, CheckBatches, "b"), want: "batch b"}}}
	}
	run(t, []scenario{
		unsaid("to be moved", w, CheckBatches, "b"),
		unsaid("batches of another type", w.with("batches", "=foreign"), CheckBatches, "b"),
		mended("gone", w.with("batch:b", ""), "batch b", state{}, CheckBatches, "b"),
		only("gone", w.with("batch:b", "")),
		left("overwritten", w.with("batch:b", "=foreign"), "batch b", CheckBatches, "b"),
		mended("put aside, and back", aside, "batch b", w.with("batches", "(b=0)"), CheckBatches, "b"),
		only("put aside, and back", aside),
		left("put aside, and overwritten", aside.with("batch:b", "=foreign"), "batch b", CheckBatches, "b"),
	})
}
