package store

import (
	"testing"

	"github.com/gomodule/redigo/redis"
)

var _ = probed("enqueue_unique",
	probe{seed: busy, call: enqueuesUnique("n"), adds: true},
)

func enqueuesUnique(p string) func(*env) string {
	return func(e *env) string {
		_, err := EnqueueUnique(e.ctx, e.line, e.q, []byte(p))
		return said(err, "ok")
	}
}

func TestEnqueueUnique(t *testing.T) {
	lock := state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}
	run(t, []scenario{
		{name: "unique", steps: []when{
			{call: enqueuesUnique("a"), want: "ok", state: lock, heard: []string{"enqueue 1"}},
			{call: enqueuesUnique("a"), want: "DUPLICATE"},
			{call: does("LREM", "queues", 0, "a"), state: lock.with("queues", "")},
			{call: enqueuesUnique("a"), want: "ok", state: lock, heard: []string{"enqueue 1"}}}},
		{name: "unique, removed by another program, others wait", seed: lock.with("queues", "[a b]"), steps: []when{
			{call: does("LREM", "queues", 0, "a"), state: lock.with("queues", "[b]")},
			{call: enqueuesUnique("a"), want: "ok", state: state{"queues": "[b a]", "unique": "{#a=w:1 offset=0}"}, heard: []string{"enqueue 1"}}}},
		{name: "unique, another program removes the task before it", seed: state{"queues": "[b a]", "unique": "{#a=w:1 offset=0}"}, steps: []when{
			{call: does("LREM", "queues", 0, "b"), state: state{"queues": "[a]", "unique": "{#a=w:1 offset=0}"}},
			{call: enqueuesUnique("a"), want: "DUPLICATE", state: state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}}}},
	})
}

// A lock follows its task, and no other copy of the payload, through starts and returns.
func TestUniqueFollows(t *testing.T) {
	end := func(n int64, id string, token int64, v Ending) func(*env) string {
		return steps(Round{Worker: "w1", Number: n, Outcomes: []*Outcome{{Process: id, Token: token, Verb: v}}})
	}
	w := state{"workers": "(w1=+60m)"}
	two := steps(Round{Worker: "w1", Number: 1, Start: []string{"p1", "p2"}})
	started := w.with("rounds", "{w1=1}", "token", "=2", "working:w1", "(p1=1 p2=2)", "process:p1", "[a]", "process:p2", "[a]")
	run(t, []scenario{
		{name: "plain in front", seed: w.with("queues", "[a a]", "unique", "{#a=w:1 offset=0}"), steps: []when{
			{call: two, want: "started=a/1,a/2", state: started.with("unique", "{#a=p:p2 offset=2}")},
			{call: end(2, "p1", 1, Drop), want: "settled=ok", state: started.with("unique", "{#a=p:p2 offset=2}", "process:p1", "", "working:w1", "(p2=2)", "rounds", "{w1=2}")},
			{call: enqueuesUnique("a"), want: "DUPLICATE"},
			{call: end(3, "p2", 2, Stop), want: "settled=ok", state: w.with("queues", "[a]", "unique", "{#a=w:1 offset=1}", "rounds", "{w1=3}", "token", "=2")}}},
		{name: "unique in front", seed: w.with("queues", "[a a]", "unique", "{#a=w:0 offset=0}"), steps: []when{
			{call: two, want: "started=a/1,a/2", state: started.with("unique", "{#a=p:p1 offset=2}")},
			{call: end(2, "p1", 1, Drop), want: "settled=ok", state: started.with("process:p1", "", "working:w1", "(p2=2)", "rounds", "{w1=2}")}}},
		{name: "crash", seed: started.with("unique", "{#a=p:p2 offset=2}"), steps: []when{
			{call: fails("w1"), want: "known=true returned=2", state: state{"queues": "[a a]", "token": "=3", "unique": "{#a=w:1 offset=0}", "ledger": "{#a=2}"}}}},
		{name: "cancel of another payload", seed: state{"queues": "[b a b c b d]", "unique": "{#a=w:1 #b=w:2 #c=w:3 #d=w:5 offset=0}"}, steps: []when{
			{call: cancels("b"), want: "removed=3 token=0", heard: []string{"cancel b"}, state: state{"queues": "[a c d]", "unique": "{#a=w:1 #c=w:3 #d=w:5 offset=1}", "gaps": "(2=2 4=4)", "cancel:#b": "{finished=0 stopped=0 token=1} +1m"}}}},
	})
}

// Gaps record where a cancel has removed a task, so that each lock has the position of its payload,
// whatever is taken, returned, enqueued and removed.
func TestGapsClose(t *testing.T) {
	e := beside(t, nil)
	e.must(nil, e.conn.Send("ZADD", e.q.Workers(), int64(never), "w1"))
	e.must(e.conn.Do("LPUSH", e.q.Waiting(), "first"))
	e.push(700, "a")
	for _, p := range []string{"b", "c"} {
		e.must(EnqueueUnique(e.ctx, e.line, e.q, []byte(p)))
	}
	sure(Cancel(e.ctx, e.line, e.q, []byte("a")))(e.t)
	if n := e.count("ZCARD", "gaps"); n != 700 {
		t.Fatalf("%d gaps", n)
	}
	tokens := map[string]int64{}
	for i, id := range []string{"p1", "p2"} {
		a := e.round(Round{Number: int64(i + 1), Start: []string{id}})
		tokens[id] = a.Started[0].Token
	}
	// The first tasks taken are returned, in front of all remaining gaps.
	for i, id := range []string{"p2", "p1"} {
		e.round(Round{Number: int64(i + 3), Outcomes: []*Outcome{{Process: id, Token: tokens[id], Verb: Stop, Plain: true}}})
	}
	for _, p := range []string{"b", "c"} {
		if _, err := EnqueueUnique(e.ctx, e.line, e.q, []byte(p)); refused(err) != "DUPLICATE" {
			t.Errorf("%s: %v", p, err)
		}
	}
	a := e.round(Round{Number: 5, Start: []string{"p3", "p4", "p5"}})
	where, err := redis.StringMap(e.conn.Do("HGETALL", e.q.Unique()))
	if len(a.Started) != 3 || err != nil || where[digest("b")] != "p:p4" || where[digest("c")] != "p:p5" {
		t.Error(a.Started, where, err)
	}
}

func TestGuardUnique(t *testing.T) {
	run(t, []scenario{
		{name: "behind others that were taken", seed: state{"queues": "[b]", "unique": "{#b=w:5 offset=5}"}, steps: []when{
			{call: enqueuesUnique("n"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[b n]", "unique": "{#b=w:5 #n=w:6 offset=5}"}}}},
		{name: "an offset that is no number", seed: state{"unique": "{offset=x}"}, steps: []when{
			{call: enqueuesUnique("a"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}}}},
		{name: "a plain copy in front", seed: state{"queues": "[a a]", "unique": "{#a=w:1 offset=0}"}, steps: []when{{call: enqueuesUnique("a"), want: "DUPLICATE"}}},
		{name: "behind a gap", seed: state{"queues": "[x b]", "unique": "{#b=w:2 #x=w:0 offset=0}", "gaps": "(1=1)"}, steps: []when{
			{call: enqueuesUnique("b"), want: "DUPLICATE"},
			{call: enqueuesUnique("c"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[x b c]", "unique": "{#b=w:2 #c=w:3 #x=w:0 offset=0}", "gaps": "(1=1)"}}}},
		{name: "the last of two, behind others that were taken", seed: state{"queues": "[b b]", "unique": "{#b=w:6 offset=5}"}, steps: []when{{call: enqueuesUnique("b"), want: "DUPLICATE"}}},
		{name: "a place that was taken, in front of a gap", seed: state{"queues": "[b a c]", "unique": "{#a=w:9 #c=w:3 offset=0}", "gaps": "(2=2)"}, steps: []when{
			{call: enqueuesUnique("a"), want: "DUPLICATE", state: state{"queues": "[b a c]", "unique": "{#a=w:1 #c=w:3 offset=0}", "gaps": "(2=2)"}}}},
		{name: "a place that was taken, behind two gaps", seed: state{"queues": "[x a]", "unique": "{#a=w:9 #x=w:0 offset=0}", "gaps": "(1=1 2=2)"}, steps: []when{
			{call: enqueuesUnique("a"), want: "DUPLICATE", state: state{"queues": "[x a]", "unique": "{#a=w:3 #x=w:0 offset=0}", "gaps": "(1=1 2=2)"}}}},
		{name: "it runs, and a plain copy waits", seed: state{"queues": "[a]", "unique": "{#a=p:p1 offset=0}"}, steps: []when{{call: enqueuesUnique("a"), want: "DUPLICATE"}}},
		{name: "a place that was taken, a plain copy at the back", seed: state{"queues": "[b a]", "unique": "{#a=w:0 offset=1}"}, steps: []when{
			{call: enqueuesUnique("a"), want: "DUPLICATE", state: state{"queues": "[b a]", "unique": "{#a=w:2 offset=1}"}}}},
	})
}
