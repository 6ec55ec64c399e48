package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

var _ = probed("cancel",
	probe{seed: busy, call: cancels("a")},
	probe{what: "in the schedule", seed: busyLane, call: cancels("g")},
)

func cancels(p string) func(*env) string {
	return func(e *env) string {
		c, err := Cancel(e.ctx, e.line, e.q, []byte(p))
		return said(err, "removed=%d token=%d", c.Removed, c.Token)
	}
}

// told returns what a step returns for a page of that log.
func told(from, to int) []string {
	return series(to-from, func(i int) string { return fmt.Sprintf("#t%d/%d", from+i, from+i+1) })
}

// page returns a log of n cancels, with a worker that holds a task.
func page(n int) state {
	log := series(n, func(i int) string { return fmt.Sprintf("#t%d=%d", i, i+1) })
	return state{"workers": "(w1=+60m)", "working:w1": "(p1=0)", "process:p1": "[x]", "token": "=" + itoa(n), "canceled": "(" + strings.Join(log, " ") + ")",
		"cancel:#t" + itoa(n-1): "{finished=0 stopped=0 token=" + itoa(n) + "} +1440m"}
}

// push adds a payload n times.
func (e *env) push(n int, payload string) {
	e.t.Helper()
	for page := range slices.Chunk(slices.Repeat([]any{payload}, n), 5000) {
		e.must(e.conn.Do("LPUSH", append([]any{e.q.Waiting()}, page...)...))
	}
}

func TestCancel(t *testing.T) {
	none := state{"queues": "[a b a]", "workers": "(w1=+60m)"}
	held := state{"workers": "(w1=+60m w2=+60m)", "token": "=2", "working:w1": "(p1=1)", "process:p1": "[a]", "working:w2": "(p2=2)", "process:p2": "[a]"}
	logged3 := held.with("token", "=3", "canceled", "(#a=3)", "cancel:#a", "{finished=0 stopped=0 token=3} +1440m")
	again := logged3.with("token", "=4", "canceled", "(#a=4)", "cancel:#a", "{finished=0 stopped=0 token=4} +1440m")
	gone1 := again.with("working:w1", "", "process:p1", "", "rounds", "{w1=1}", "cancel:#a", "{finished=0 stopped=1 token=4} +1440m")
	overtook := state{"workers": "(w1=+60m)", "rounds": "{w1=2}", "token": "=1", "working:w1": "(p2=1)", "process:p2": "[a]"}
	logged := overtook.with("token", "=2", "canceled", "(#a=2)", "cancel:#a", "{finished=0 stopped=0 token=2} +1440m")
	record := func(token, stopped string) string { return h("finished=0", "stopped="+stopped, "token="+token) }
	run(t, []scenario{
		{name: "nothing runs", seed: none, steps: []when{{call: cancels("a"), want: "removed=2 token=0", heard: []string{"cancel a"}, state: none.with("queues", "[b]", "token", "=1", "cancel:#a", "{finished=0 stopped=0 token=1} +1m")}}},
		{name: "two holders", seed: held, steps: []when{
			{call: cancels("a"), want: "removed=0 token=3", heard: []string{"cancel a"}, state: logged3},
			{call: cancels("a"), want: "removed=0 token=4", heard: []string{"cancel a"}, state: again},
			{call: steps(Round{Worker: "w1", Number: 1, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}}, Said: 4}), want: "settled=canceled seen=4", state: gone1},
			{call: fails("w2"), want: "known=true returned=0", state: gone1.with("workers", "(w1=+60m)", "rounds", "{fence=5 w1=1}", "token", "=5", "working:w2", "", "process:p2", "", "canceled", "", "cancel:#a", "{finished=0 stopped=2 token=4} +1m")}}},
		{name: "again after the first has ended", seed: held.with("token", "=3", "cancel:#a", "{finished=1 stopped=2 token=3} +1m"), steps: []when{
			{call: cancels("a"), want: "removed=0 token=4", heard: []string{"cancel a"}, state: again.with("cancel:#a", "{finished=1 stopped=2 token=4} +1440m")}}},
		{name: "cancels are returned a page at a time", seed: page(150), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Seen: 49}), want: "cancels=" + strings.Join(told(49, 149), ",") + " seen=149 again", state: page(150).with("rounds", "{w1=1}")},
			{call: steps(Round{Worker: "w1", Number: 1, Seen: 149}), want: "cancels=#t149/150 seen=150", state: page(150).with("rounds", "{w1=1}")}}},
		// The worker receives the answer to the overtaken round first, and doesn't know yet what the
		// other one has started.
		{name: "an overtaken round returns no cancels", seed: state{"workers": "(w1=+60m)", "queues": "[a]"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p2"}}), want: "started=a/1", state: overtook},
			{call: cancels("a"), want: "removed=0 token=2", heard: []string{"cancel a"}, state: logged},
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1"}}), want: "again", state: logged},
			{call: steps(Round{Worker: "w1", Number: 3}), want: "cancels=#a/2 seen=2", state: logged.with("rounds", "{w1=3}")}}},
		{name: "started afterwards", seed: logged3.with("queues", "[a]"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p3"}}), want: "started=a/4 cancels=#a/3 seen=3",
				state: logged3.with("rounds", "{w1=1}", "token", "=4", "working:w1", "(p1=1 p3=4)", "process:p3", "[a]")},
			{call: leaves("w1"), want: "returned=1", state: logged3.with("queues", "[a]", "token", "=5", "workers", "(w2=+60m)", "working:w1", "", "process:p1", "", "cancel:#a", "{finished=0 stopped=1 token=3} +1440m")}}},
		{name: "a record of another type, of a key", seed: keyX.with("cancel:k:x", "=foreign"), steps: []when{{call: cancelsKey("x"), want: "WRONGTYPE"}}},
		{name: "contents of another type, of a key", seed: keyX.with("contents", "=foreign"), steps: []when{{call: cancelsKey("x"), want: "WRONGTYPE"}}},
		{name: "no known holders, during another cancel", seed: member.with("token", "=3", "canceled", "(#a=3)", "cancel:#a", record("3", "1")+" +1440m"), steps: []when{
			{call: cancels("a"), want: "removed=0 token=0", heard: []string{"cancel a"}, state: member.with("token", "=4", "canceled", "(#a=3)", "cancel:#a", record("4", "1")+" +1440m")}}},
		{name: "another one, beside an entry that is tried again", seed: member.with("rounds", "{w1=1}", "token", "=2", "working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1=r:p0}",
			"keyed:r:p0", runs("p1", 1, 0), "canceled", "(#z=2)", "cancel:#z", record("2", "0")+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Drop, Outcome{}), want: "settled=ok seen=2", state: member.with("rounds", "{w1=2}", "token", "=2", "cancel:#z", record("2", "0")+" +1m")}}},
		{name: "dropped counts as stopped", seed: rawP.with("token", "=2", "canceled", "(#a=2)", "cancel:#a", record("2", "0")+" +1440m"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Seen: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Drop}}}), want: "settled=ok seen=2",
				state: member.with("rounds", "{w1=2}", "token", "=2", "cancel:#a", record("2", "1")+" +1m")}}},
	})
}

// A task known only by its key has the digest of its entry's name. A cancel of a payload that equals
// that name doesn't affect it.
func TestCancelName(t *testing.T) {
	name := digest("k:x")
	record := func(token, stopped string) string { return h("finished=0", "stopped="+stopped, "token="+token) }
	canceled := func(s state) state { return s.with("cancel:"+name, record("1", "0")+" +1m") }
	waiting := func(payload string) state {
		return state{"contents": "(#@:k:x=0)", "schedule": "(k:x=now)", "keyed:k:x": h(waits(payload, "now", 0, 0), "card=0s13:now", "digest="+name), "once:n": "=k:x +60m"}
	}
	put := func(payload string) scenario {
		return scenario{name: "waits with " + payload, steps: []when{
			{call: putsOnce("x", "n", "0", payload), want: "first=", heard: []string{"enqueue 1"}, state: waiting(payload)},
			{call: explains("", "k:x"), want: "ready=1"},
			{call: cancels("k:x"), want: "removed=0 token=0", heard: []string{"cancel k:x"}, state: canceled(waiting(payload))}}}
	}
	covering := func(s state) state {
		return s.with("token", "=2", "canceled", "("+name+"=2)", "cancel:"+name, record("2", "0")+" +1440m")
	}
	running := runX.with("keyed:k:x", h(runs("p1", 0, 0), "holder=w1", "sum=p1:"+name))
	large := "k:" + strings.Repeat("l", Large-1)
	longest := large[:Large]
	back := func(due string, retries int) state {
		return doneX.with("token", "=2", "cancel:"+name, record("2", "0")+" +1m", "contents", "(#@:k:x=0)", "schedule", "(k:x="+due+")",
			"keyed:k:x", h(waits("a", due, retries, 0), "digest="+name))
	}
	run(t, []scenario{
		put("a"),
		put("k:x"),
		{name: "another task waits, whose payload it is", seed: waiting("k:x").with("keyed:k:x", waits("k:x", "now", 0, 0)), steps: []when{
			{call: explains("", "k:x"), want: "ready=1 entries=k:x@now/now~0!0#0<  0>"},
			{call: cancels("k:x"), want: "removed=1 token=0", heard: []string{"cancel k:x"}, state: canceled(state{"once:n": "=k:x +60m"})}}},
		{name: "has failed", seed: state{"failed:schedule": "(k:g1=-9m)", "failed:contents": "(" + name + ":k:g1=0)", "failed:keyed:k:g1": failedOf("a", "-9m", "from=k:x", "digest="+name)}, steps: []when{
			{call: explains("", "k:x")}}},
		{name: "a risky task waits, whose payload it is", seed: state{"schedule": "(r:p9=now)", "contents": "(" + name + ":r:p9=0)", "keyed:r:p9": h(waits("k:x", "now", 0, 0), "digest="+name)}, steps: []when{
			{call: cancels("k:x"), want: "removed=1 token=0", heard: []string{"cancel k:x"}, state: canceled(state{})}}},
		{name: "its entry is of another type", seed: state{"contents": "(#@:k:x=0)", "keyed:k:x": "=foreign"}, steps: []when{
			{call: cancels("k:x"), want: "removed=0 token=0", heard: []string{"cancel k:x"}, state: canceled(state{"keyed:k:x": "=foreign"})}}},
		{name: "the longest name", seed: state{"contents": "(#@:" + longest + "=0)", "schedule": "(" + longest + "=now)", "keyed:" + longest: h(waits("a", "now", 0, 0), "digest="+digest(longest))}, steps: []when{
			{call: explains("", longest), want: "ready=1"}}},
		{name: "is retried", seed: running, steps: []when{
			{call: cancels("k:x"), want: "removed=0 token=2", heard: []string{"cancel k:x"}, state: covering(running)},
			{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok seen=2", state: back("now", 1)}}},
		{name: "is returned", seed: covering(running), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok seen=2", state: back("1", 0)}}},
		{name: "was added, and is returned", seed: runsA.with("token", "=2", "canceled", "("+digestOfA+"=2)", "cancel:"+digestOfA, record("2", "0")+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok seen=2", state: backA.with("token", "=2", "cancel:"+digestOfA, record("2", "0")+" +1m",
				"schedule", "(k:@1-7-a=1)", "keyed:k:@1-7-a", lifted("x", "1", 0, 0))}}},
		{name: "its key is canceled, too", seed: running.with("token", "=2", "canceled", "(k:x=2)", "cancel:k:x", record("2", "0")+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=canceled seen=2", state: doneX.with("token", "=2", "cancel:k:x", record("2", "1")+" +1m")}}},
	})
}

// A page of a cancel is bounded in bytes, too, for the list and for entries. It has at least one copy.
func TestCancelPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const copies = 5
	for _, c := range []struct {
		size int
		page int // how many copies it has at most
	}{{256 << 10, 4}, {1 << 20, 1}, {4 << 20, 1}} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			payload := strings.Repeat("x", c.size)
			for i := range copies {
				e.push(1, payload)
				e.must(Put(e.ctx, e.line, e.q, fmt.Sprint("k:", i), Change{Payload: []byte(payload), When: Always}))
			}
			list, entries := copies, copies
			pages := 0
			look := func(int) {
				l, n := e.count("LLEN", "queues"), e.count("ZCARD", "contents")
				if list-l > c.page || entries-n > c.page {
					t.Errorf("a page removed %d from the list, %d entries", list-l, entries-n)
				}
				list, entries = l, n
				pages++
			}
			receipt := sure(Cancel(e.ctx, &hooked{Runner: e.line, after: look}, e.q, []byte(payload)))(e.t)
			if receipt.Removed != 2*copies || list+entries > 0 {
				t.Errorf("%d were removed, %d are left in %d pages", receipt.Removed, list+entries, pages)
			}
		})
	}
}

// A task that starts between two pages and is retried doesn't escape, whether it comes from the list
// or from an entry that the next page would have removed.
func TestCancelBetweenPages(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		seed           func(e *env)
		copies         int
		started, retry int // after which call
	}{
		"of the list": {func(e *env) { e.push(10_001, "a") }, 10_001, 1, 1},
		"of an entry": {func(e *env) {
			for i := range 250 {
				e.must(Put(e.ctx, e.line, e.q, fmt.Sprintf("k:%03d", i), Change{Payload: []byte("a"), When: Always}))
			}
		}, 250, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			at.seed(e)
			e.must(e.conn.Do("ZADD", e.q.Workers(), int64(never), "w1"))
			var task Start
			c := sure(Cancel(e.ctx, &hooked{Runner: e.line, after: func(call int) {
				if call == at.started {
					task = e.round(Round{Number: 1, Start: []string{"p1"}}).Started[0]
				}
				if call == at.retry {
					e.round(Round{Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: task.Token, Verb: Retry}}})
				}
			}}, e.q, []byte("a")))(e.t)
			if n := e.count("ZCARD", "contents") + e.count("LLEN", "queues"); n != 0 || task.Token == 0 {
				t.Errorf("%d tasks that waited before the cancel still wait; removed %d of %d", n, c.Removed, at.copies)
			}
		})
	}
}

// If a younger copy has returned to a place in front of an old one, it isn't removed in its stead.
func TestCancelBehindYounger(t *testing.T) {
	t.Parallel()
	for name, served := range map[string]bool{"served": true, "served after the first page": false} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			e.push(10_001, "a")
			serve := func() { e.must(e.conn.Do("ZADD", e.q.Workers(), int64(never), "w1")) }
			if served {
				serve()
			}
			step := func(number int64, start []string, stop ...*Outcome) *Answer {
				return e.round(Round{Number: number, Start: start, Outcomes: stop})
			}
			sure(Cancel(e.ctx, &hooked{Runner: e.line, after: func(call int) {
				if call > 1 {
					return
				}
				serve()
				e.must(e.conn.Do("LPUSH", e.q.Waiting(), "x", "a"))
				started := step(1, []string{"old", "x", "younger"}).Started
				for i, id := range []string{"old", "x", "younger"} {
					step(int64(i)+2, nil, &Outcome{Process: id, Token: started[i].Token, Verb: Stop})
				}
			}}, e.q, []byte("a")))(e.t)
			if left := sure(redis.Strings(e.conn.Do("LRANGE", e.q.Waiting(), 0, -1)))(e.t); len(left) == 0 || left[0] != "x" { // the head is the back
				t.Errorf("%q wait: the old one is still behind x", left)
			}
		})
	}
}

// A large payload isn't published, and neither is a small one that looks like a digest.
func TestCancelMessages(t *testing.T) {
	e := beside(t, nil)
	for _, payload := range []string{"a", strings.Repeat("a", 1024), strings.Repeat("a", 1025), "sha1:" + digest("a") + ":1", "sha1:"} {
		sure(Cancel(e.ctx, e.line, e.q, []byte(payload)))(e.t)
		message, _ := strings.CutPrefix(e.heard()[0], "cancel ")
		if message[0] == '"' {
			t.Fatal(message)
		}
		p, of, size := ReadCancel([]byte(message))
		raw := len(payload) <= 1024 && !strings.HasPrefix(payload, "sha1:"+digest("a"))
		if of != digest(payload) || size != len(payload) || (p != nil) != raw || raw && string(p) != payload {
			t.Errorf("%.80s: read as %.80s, %s, %d", message, p, of, size)
		}
	}
}

// Malformed replies are errors.
func TestIsOverOfShortReplies(t *testing.T) {
	e := beside(t, nil)
	for _, values := range [][]any{{}, {[]byte("1")}, {[]byte("1"), []byte("1"), []byte("1"), []byte("1")}} {
		over, _, err := (&Receipt{Name: digest("a"), Token: 1}).IsOver(e.ctx, answers(int64(0), []any{}, values, []byte("1")), e.q)
		if over || err == nil {
			t.Errorf("%v: %t, %v", values, over, err)
		}
	}
}

// A cancel ends, whatever Redis replies.
func TestCancelMakesNoProgress(t *testing.T) {
	e := beside(t, nil)
	for left, until := range map[int64]string{7: "", 0: "somewhere"} {
		none := int64(0)
		_, err := Cancel(e.ctx, answers([]any{none, none, none, none, left, none, []byte(""), []byte(until)}), e.q, []byte("a"))
		if err == nil || e.ctx.Err() != nil {
			t.Errorf("%d and %q are left for ever: %v", left, until, err)
		}
	}
}

// planned returns a state with entries that aren't due yet, all with one payload.
func (s state) planned(payload string, entries ...string) state {
	return s.waiting(series(len(entries), func(i int) waiting { return waiting{entries[i], payload, "+9m", 0} })...)
}
