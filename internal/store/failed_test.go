package store

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// failedOf returns a failed task of the list, or of a key.
func failedOf(payload, due string, fields ...string) string {
	return h(append([]string{waits(payload, due, 0, 0), "kind=failed reason=r tries=0 deaths=0 worker=w1 at=" + due, "from="}, fields...)...)
}

// merged returns a state with the keys of another one added or replaced.
func (s state) merged(t state) state {
	c := s.with()
	maps.Copy(c, t)
	return c
}

var gaveUp = Outcome{Kind: Failed, Reason: "r"}

// Scripts don't make up what Redis has lost, and nothing else is affected.
func TestLost(t *testing.T) {
	noProcess, noEntry := runX.with("process:p1", ""), runX.with("keyed:k:x", "")
	two := keyX.with("schedule", "(k:gone=-2m k:x=-1m)")
	unlocked := rawP.with("process:p1", "", "queues", "[b]")
	all := []scenario{
		{name: "a due entry", seed: two, steps: []when{{call: begins(1, "p1"), want: "started=a/1@k:x~2!1", state: runX}}},
		{name: "only that", seed: member.with("schedule", "(k:gone=-2m)"), steps: []when{{call: begins(1, "p1"), state: member.with("rounds", "{w1=1}")}}},
		{name: "a running entry, finish", seed: noEntry, steps: []when{{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX}}},
		{name: "a running entry, retry", seed: noEntry, steps: []when{{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
			state: backX.with("schedule", "(k:x=+60m)", "keyed:k:x", waits("a", "+60m", 1, 0))}}},
		{name: "a running entry, put again", seed: noEntry.merged(state{"schedule": "(k:x=+5m)", "contents": "(#b:k:x=0)", "keyed:k:x": waits("b", "+5m", 0, 0)}), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok",
				state: backX.with("schedule", "(k:x=+5m)", "contents", "(#b:k:x=0)", "keyed:k:x", waits("b", "+5m", 0, 0))}}},
		{name: "the process of a repeated round", seed: noProcess, steps: []when{{call: begins(1, "p1"), want: ""}}},
		{name: "a raw process, leave", seed: unlocked, steps: []when{{call: leaves("w1"), want: "returned=0", state: state{"token": "=2", "queues": "[b]"}}}},
		{name: "a raw process, fail", seed: rawP.with("process:p1", ""), steps: []when{{call: fails("w1"), want: "known=true returned=0", state: state{"token": "=2"}}}},
		{name: "another process runs the key", seed: runX.with("workers", "(w1=+60m w2=+60m)", "working:w2", "(p2=2)", "process:p2", "[b]", "entries", "{p1=k:x p2=k:x}", "keyed:k:x", runs("p2", 0, 0)), steps: []when{
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok", state: doneX.with("workers", "(w1=+60m w2=+60m)", "working:w2", "(p2=2)", "process:p2", "[b]", "entries", "{p2=k:x}", "keyed:k:x", runs("p2", 0, 0))}}},
	}
	for _, v := range []Ending{Stop, Retry, Snooze, Fail, Drop} {
		want := "settled=canceled"
		if v == Drop {
			want = "settled=ok"
		}
		all = append(all, scenario{name: "the process, " + string(v), seed: noProcess, steps: []when{{call: ends(2, "p1", 1, v, Outcome{Kind: Failed}), want: want, state: doneX}}},
			scenario{name: "a raw process, " + string(v), seed: unlocked, steps: []when{{call: ends(2, "p1", 1, v, Outcome{Kind: Failed}), want: want, state: doneX.with("queues", "[b]")}}})
	}
	run(t, all)
}

// Failed tasks are deleted and requeued a page at a time: a hundred tasks, or a mebibyte of payloads.
// Redis does nothing else during a page.
func TestFailedPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for name, c := range map[string]struct{ tasks, size, page int }{
		"elements": {250, 1, 100},
		"bytes":    {24, 300 << 10, 3},
		"exactly":  {8, 512 << 10, 2},
		"one":      {3, 2 << 20, 1},
	} {
		for verb, call := range map[string]func(e *env, r Runner, ids []string) (int, error){
			"DeleteFailed":     func(e *env, r Runner, ids []string) (int, error) { return DeleteFailed(e.ctx, r, e.q, ids) },
			"RequeueFailed":    func(e *env, r Runner, ids []string) (int, error) { return RequeueFailed(e.ctx, r, e.q, ids) },
			"DeleteAllFailed":  func(e *env, r Runner, _ []string) (int, error) { return DeleteAllFailed(e.ctx, r, e.q) },
			"RequeueAllFailed": func(e *env, r Runner, _ []string) (int, error) { return RequeueAllFailed(e.ctx, r, e.q) },
		} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				e, payload := newEnv(t, url, nil), strings.Repeat("x", c.size)
				var ids []string
				for i := range c.tasks {
					id := fmt.Sprint("g", i)
					ids = append(ids, id)
					e.must(nil, e.conn.Send("HSET", e.q.Failed().Keyed(EntryOf(id)), "payload", payload, "kind", Failed, "at", i))
					e.must(nil, e.conn.Send("ZADD", e.q.Failed().Contents(), 0, digest(payload)+":"+EntryOf(id)))
					e.must(e.conn.Do("ZADD", e.q.Failed().Schedule(), i, EntryOf(id)))
				}
				left, pages := c.tasks, 0
				n, err := call(e, &hooked{Runner: e.line, after: func(int) {
					now := e.count("ZCARD", "failed:schedule")
					if now < left {
						pages++
					}
					if left-now > c.page {
						t.Errorf("%d tasks of %d bytes at once, not %d", left-now, c.size, c.page)
					}
					left = now
				}}, ids)
				e.must(nil, err)
				if most := (c.tasks + c.page - 1) / c.page; n != c.tasks || left > 0 || pages > most {
					t.Errorf("%d of %d tasks in %d pages, %d are left", n, c.tasks, pages, left)
				}
			})
		}
	}
}
