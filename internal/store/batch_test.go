package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func answered(v any, err error) string {
	if err = Refusal(err); errors.Is(err, ErrBatch) {
		return "BATCH"
	}
	if err != nil {
		return refused(err)
	}
	return fmt.Sprint(v)
}

// A large enqueue is put aside, accepted in one step and moved. Every call may be
// repeated, and none has an effect twice.
func TestBatch(t *testing.T) {
	t.Parallel()
	open := state{"batch:b": "[a b c] +1m"}
	words := seq("t", 0, 5001)
	var long []any
	for _, w := range words {
		long = append(long, w)
	}
	accepted := state{"batch:b": "[a b c]", "batches": "(b=1)", "once:n": "=b +1m"}
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
		{name: "more than unpack takes", steps: []when{
			{call: stages(0, long...), want: "5001", state: state{"batch:b": "[" + strings.Join(words, " ") + "] +1m"}}}},
		{name: "nothing is added to what was accepted", seed: accepted, steps: []when{{call: stages(3, "d"), want: "BATCH"}}},
		{name: "a nonce of another type", seed: open.with("once:n", "[x]"), steps: []when{{call: commits("n", 3), want: "WRONGTYPE", state: open.with("once:n", "[x]")}}},
		{name: "a nonce that begins as the id", seed: open.with("once:n", "=bb"), steps: []when{{call: commits("n", 3), want: "0", state: open.with("once:n", "=bb")}}},
		{name: "a nonce that was used", seed: open.with("once:n", "=1 +1m"), steps: []when{
			{call: commits("n", 3), want: "0", state: open.with("once:n", "=1 +1m")}}},
		{name: "a page is missing", seed: open, steps: []when{{call: commits("n", 4), want: "BATCH", state: open}}},
		{name: "nothing is there", steps: []when{{call: commits("n", 4), want: "BATCH"}, {call: hauls, want: "0"}, {call: stages(2, "c"), want: "BATCH", state: state{}}}},
		{name: "workers wake", alive: []string{"w1", "w2"}, seed: accepted.with("idle", "(w1=-2m w2=-1m)"), steps: []when{
			{call: hauls, want: "0", heard: []string{"wake:w1 3", "wake:w2 3"}, state: state{"queues": "[a b c]", "once:n": "=b +1m"}}}},
		{name: "one after the other", seed: state{"batch:b": "[a b]", "batch:c": "[c d]", "batches": "(c=1 b=2)"}, steps: []when{
			{call: hauls, want: "1", state: state{"queues": "[c d]", "batch:b": "[a b]", "batches": "(b=2)"}},
			{call: hauls, want: "0", state: state{"queues": "[c d a b]"}}}},
		{name: "behind the last of those to be moved", seed: open.with("batches", "(x=3 y=7 z=aside:-5m)"), steps: []when{
			{call: commits("n", 3), want: "1", heard: []string{"enqueue 3"}, state: accepted.with("batches", "(x=3 y=7 b=8 z=aside:-5m)")}}},
		{name: "behind all that has no number", seed: open.with("batches", "(x=-5)"), steps: []when{
			{call: commits("n", 3), want: "1", heard: []string{"enqueue 3"}, state: accepted.with("batches", "(x=-5 b=1)")}}},
		{name: "those that are gone or overwritten are put aside, and then the next one is moved",
			seed: state{"queues": "[z]", "batches": "(a=1 b=2 c=3)", "batch:b": "=foreign", "batch:c": "[t u]"}, steps: []when{
				{call: hauls, want: "1 a b", state: state{"queues": "[z]", "batches": "(c=3 a=aside:0 b=aside:0)", "batch:b": "=foreign", "batch:c": "[t u]"}},
				{call: hauls, want: "0", state: state{"queues": "[z t u]", "batches": "(a=aside:0 b=aside:0)", "batch:b": "=foreign"}},
				{call: hauls, want: "0"},
				{call: enqueues("v"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[z t u v]", "batches": "(a=aside:0 b=aside:0)", "batch:b": "=foreign"}},
				{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
		{name: "a hundred a call are put aside", seed: state{"batches": "(" + strings.Join(numbered("d", 150), " ") + ")"}, steps: []when{
			{call: func(e *env) string { return hauls(e)[:6] }, want: "50 d10", state: state{"batches": "(" + strings.Join(numbered("d", 150)[100:], " ") + " " + strings.Join(putsAside("d", 100), " ") + ")"}},
			{call: does("DEL", "batches"), state: state{}}}},
		{name: "an id without a name", seed: state{"batches": "(x=0)"}, steps: []when{
			{call: does("ZADD", "batches", 1, ""), state: state{"batches": `(x=0 ""=1)`}},
			{call: hauls, want: "0 x", state: state{"batches": "(x=aside:0)"}}}},
		{name: "what comes later goes behind", seed: accepted.with("queues", "[z]"), steps: []when{
			{call: enqueues("y"), want: "UNMOVED"},
			{call: enqueuesOnce("m", "y"), want: "UNMOVED"},
			{call: enqueuesOnce("n", "y"), want: "repeated"},
			{call: enqueuesUnique("y"), want: "UNMOVED"},
			{call: hauls, want: "0", state: state{"queues": "[z a b c]", "once:n": "=b +1m"}},
			{call: enqueues("y"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[z a b c y]", "once:n": "=b +1m"}}}},
		{name: "a list of batches of another type holds up nobody", seed: state{"batches": "[b]", "workers": "(w1=+60m)"}, steps: []when{
			{call: enqueues("y"), want: "ok", heard: []string{"enqueue 1"}, state: state{"batches": "[b]", "workers": "(w1=+60m)", "queues": "[y]"}},
			{call: beats("w1", false), want: "waiting=1"},
			{call: hauls, want: "WRONGTYPE"},
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{"workers": "(w1=+60m)"}}}},
		{name: "deleted", seed: accepted.with("queues", "[z]"), steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{"once:n": "=b +1m"}}}},
		{name: "many are deleted", seed: state{"batches": "(" + strings.Join(numbered("d", 250), " ") + ")", "batch:d349": "[a]"}, steps: []when{
			{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
		{name: "a list of another type", seed: accepted.with("queues", "=foreign"), steps: []when{
			{call: hauls, want: "WRONGTYPE", state: accepted.with("queues", "=foreign")}}},
		{name: "batches of another type", seed: open.with("batches", "=foreign"), steps: []when{
			{call: commits("n", 3), want: "WRONGTYPE", state: open.with("batches", "=foreign")}}},
		{name: "a beat tells", seed: accepted.merged(member), steps: []when{
			{call: func(e *env) string {
				p, err := ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, "w1", time.Hour, time.Hour, 0))[0])
				return fmt.Sprintf("%s %v", p.Batch, err)
			}, want: "b 3 <nil>"}}},
		{name: "a beat tells of no list", seed: accepted.merged(member).with("batch:b", "=foreign"), steps: []when{
			{call: func(e *env) string {
				p, err := ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, "w1", time.Hour, time.Hour, 0))[0])
				return fmt.Sprintf("%s %v", p.Batch, err)
			}, want: "b 0 <nil>"}}},
	})
}

// A page is bounded in elements and in bytes, and a full Redis still moves what it has
// accepted.
func TestBatchPages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	e := newEnv(t, server.URL(), nil)
	is := is.New(t)
	for _, c := range []struct{ payloads, size, pages int }{{4001, 1, 3}, {8, 512 << 10, 4}, {3, 2 << 20, 3}} {
		all := make([]any, c.payloads)
		for i := range all {
			all[i] = make([]byte, c.size)
		}
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

// A flaw is a Runner that loses the reply of a call, after it was carried out or before,
// or ends the producer there.
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
// order, or none is; what is left vanishes, or whoever serves the queue moves it.
func TestBatchInterrupted(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		for _, done := range []bool{false, true} {
			for at := 1; at <= 8; at++ { // 3 pages, commit, 3 hauls, and one that finds nothing
				t.Run(fmt.Sprint(dies, done, at), func(t *testing.T) {
					is := redistest.Parallel(t)
					e := newEnv(t, redistest.URL(), nil)
					payloads := make([][]byte, 6_000)
					for i := range payloads {
						payloads[i] = fmt.Append(nil, i)
					}
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
						is.True(ttl > 0 || ttl == -2) // it vanishes, or has
						redistest.Do(t, e.conn, "DEL", e.q.Batch("b"))
					}
					is.Equal(sure(Haul(e.ctx, e.line, e.q))(t), Damage{})
					list := sure(redis.Strings(e.conn.Do("LRANGE", e.q.Waiting(), 0, -1)))(t)
					want := others
					if all {
						want += len(payloads)
					}
					is.Equal(len(list), want)
					next := 0
					for i := len(list) - 1; i >= 0; i-- {
						if all && next < len(payloads) && list[i] == string(payloads[next]) {
							next++
						}
					}
					is.True(!all || next == len(payloads)) // in order
					left := redistest.Keys(t, e.conn, e.prefix+":batch*")
					is.Equal(len(left), 0)
				})
			}
		}
	}
}
