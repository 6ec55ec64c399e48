package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// contents returns the members of contents, in order.
func (e *env) contents() string {
	e.t.Helper()
	return strings.Join(slices.Sorted(maps.Keys(sure(redis.StringMap(e.conn.Do("ZRANGE", e.q.Contents(), 0, -1, "WITHSCORES")))(e.t))), " ")
}

// A call of check ends when it has moved a mebibyte, or hashed one to move tasks.
func TestMendingIsBounded(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct{ held, blocked string }{
		"moved":  {held: large},
		"hashed": {held: "a", blocked: large},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, nil)
			seed := member.with("token", "=9", "entries", "{p8=k:8 p9=k:9}")
			for _, n := range []string{"8", "9"} {
				entry := h(runs("p"+n, 0, 0))
				if c.blocked != "" {
					entry = h(runs("p"+n, 0, 0), "payload="+n+c.blocked+" due=1 retries=0 crashes=0 keep=1 counts=1 low=1 high=1")
				}
				seed = seed.with("working:w"+n, "(p"+n+"="+n+")", "process:p"+n, "["+c.held+"]", "keyed:k:"+n, entry)
			}
			e.seed(seed)
			v, err := Check(e.ctx, e.doctor(), e.q, CheckHolders, "", true, []string{"w8", "w9"})
			if err != nil || v.Judged != 1 || len(v.Flaws) != 1 {
				t.Errorf("%d were judged: %v, %v", v.Judged, v.Flaws, err)
			}
		})
	}
}

// An entry with a digest that isn't in contents is treated according to its payload: another program
// may have changed that.
func TestDigestsOfOthers(t *testing.T) {
	t.Parallel()
	a, b := "a", "b"
	for name, digests := range map[string][]any{
		"none":        {"digest", "", "sum", ""},
		"of another":  {"digest", digest(b), "sum", "p0:" + digest(b)},
		"nonsensical": {"digest", "x", "sum", "p1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, nil)
			contents := func(want string) {
				t.Helper()
				if got := e.contents(); got != want {
					t.Errorf("contents is %q, want %q", got, want)
				}
			}
			waits := func() {
				e.seed(state{"workers": "(w1=+60m)", "schedule": "(k:x=-1m)", "contents": "(#" + a + ":k:x=0)"})
				e.must(e.conn.Do("HSET", append([]any{e.q.Keyed("k:x"), "payload", a, "due", 1, "retries", 0, "crashes", 0}, digests...)...))
			}
			waits()
			e.must(nil, e.line.Do(e.ctx, RemoveCall(e.q, "k:x"))[0].Err)
			contents("")
			waits()
			e.must(Put(e.ctx, e.line, e.q, "k:x", Change{Payload: []byte(b), When: Always}))
			contents(digest(b) + ":k:x")
			e.must(nil, e.line.Do(e.ctx, RemoveCall(e.q, "k:x"))[0].Err)
			waits()
			e.round(Round{Number: 1, Start: []string{"p1"}})
			contents("")
			e.must(e.conn.Do("HSET", append([]any{e.q.Keyed("k:x")}, digests...)...))
			_, _, err := FailWorker(e.ctx, e.line, e.q, "w1")
			e.must(nil, err)
			contents(digest(a) + ":k:x")
			v, err := Check(e.ctx, e.doctor(), e.q, CheckEntries, "", false, []string{"k:x"})
			if err != nil || len(v.Flaws) > 0 {
				t.Errorf("%v, %v", v.Flaws, err)
			}
		})
	}
}

// The tasks of a dead worker are counted by their digests, which no caller sends: a call ends when it
// has hashed a mebibyte.
func TestHashingIsBounded(t *testing.T) {
	tasks := series(30, func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 100_000) })
	e := beside(t, state{"workers": "(w1=+60m)", "token": "=30"}.holding("w1", tasks...))
	a := fail.ask(e.ctx, e.line, e.q, "worker", "w1", "begin", 1)
	if returned := a.int("returned"); a.err != nil || returned != 11 {
		t.Errorf("%d were returned, not 11: %v", returned, a.err)
	}
}

// A digest that an entry stores is for its task only, and not for another one with that payload.
func TestGuardDigest(t *testing.T) {
	wrong := strings.Repeat("ab", 20)
	twice := member.with("ledger", "{#l=1}")
	run(t, []scenario{
		{name: "of another failed task", seed: state{"failed:schedule": "(k:g1=-9m k:g2=-9m)", "failed:contents": "(" + wrong + ":k:g1=0 #l:k:g2=0)",
			"failed:keyed:k:g1": h(failedOf("l", "-9m"), "digest="+wrong), "failed:keyed:k:g2": failedOf("l", "-9m")}, steps: []when{
			{call: requeues("k:g1", "k:g2"), want: "requeued=2", heard: []string{"enqueue 2"}, state: state{"queues": "[l l]"}}}},
		{name: "of the same one on the list", seed: twice.with("queues", "[l]", "schedule", "(k:x=-1m)", "contents", "("+wrong+":k:x=0)",
			"keyed:k:x", h(waits("l", "-1m", 0, 0), "digest="+wrong)), steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=l/1@k:x,l/2!1", state: twice.merged(rawP).with("token", "=2", "working:w1", "(p1=1 p2=2)",
				"process:p1", "[l]", "process:p2", "[l]", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 0, 0), "sum=p1:"+wrong))}}},
	})
}

// A task that its key identifies differs from all tasks with its payload, even from one that waits
// under the key.
func TestGuardDigestOfKey(t *testing.T) {
	running := runX.with("keyed:k:x", h(runs("p1", 2, 1), "sum=p1:"+digest("k:x")))
	record := "{finished=0 stopped=0 token=2}"
	run(t, []scenario{
		{name: "it finishes", seed: running.with("token", "=2", "holders", "(w1=0)", "canceled", "(#a=2)", "cancel:#a", record+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok seen=2", heard: []string{"done w1 a"},
				state: doneX.with("token", "=2", "cancel:#a", record+" +1m")}}},
		{name: "it is tried again, and its name was canceled as a payload", seed: running.with("token", "=2", "holders", "(w1=0)", "canceled", "("+digest("k:x")+"=2)", "cancel:"+digest("k:x"), record+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok seen=2", state: doneX.with("token", "=2", "contents", "(#@:k:x=0)", "schedule", "(k:x=now)",
				"keyed:k:x", h(waits("a", "now", 3, 1), "digest="+digest("k:x")), "cancel:"+digest("k:x"), record+" +1m")}}},
		{name: "it gives way", seed: running.with("contents", "(#a:k:x=0)", "keyed:k:x", h(running["keyed:k:x"], waits("a", "+9m", 0, 0), rule(0, 0, "+9m", "+9m"))), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: backX.with("schedule", "(k:x=+9m)", "keyed:k:x", waits("a", "+9m", 0, 0))}}},
	})
}
