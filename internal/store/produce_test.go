package store

import (
	"strings"
	"testing"
)

func TestProduce(t *testing.T) {
	t.Parallel()
	many := seq("m", 0, 12000)
	hundred := "[" + strings.Join(seq("t", 0, 100), " ") + "]"
	grown := func(by string) string { return strings.TrimSuffix(hundred, "]") + " " + by + "]" }
	fewer := "[" + strings.Join(append(seq("t", 52, 100), "a", "b", "c"), " ") + "]"
	lock := state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}
	idle := state{"idle": "(w1=-3m w2=-2m w3=-1m)"}
	run(t, []scenario{
		{name: "one, nobody idle", alive: []string{"w1"}, steps: []when{
			{call: enqueues("a"), want: "ok", state: state{"queues": "[a]"}, heard: []string{"enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: state{"queues": "[a b c]"}, heard: []string{"enqueue 2"}}}},
		{name: "more than one chunk", steps: []when{
			{call: enqueues(many...), want: "ok", state: state{"queues": "[" + strings.Join(many, " ") + "]"}, heard: []string{"enqueue 12000"}}}},
		{name: "who is gone is passed over", alive: []string{"w2", "w3"}, seed: idle, steps: []when{
			{call: enqueues("a"), want: "ok", state: state{"queues": "[a]", "idle": "(w3=-1m)"}, heard: []string{"wake:w2 1", "enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: state{"queues": "[a b c]"}, heard: []string{"wake:w3 2", "enqueue 2"}}}},
		{name: "nobody is woken while many wait", alive: []string{"w1", "w2", "w3"}, seed: idle.with("queues", hundred), steps: []when{
			{call: enqueues("a"), want: "ok", state: idle.with("queues", grown("a"), "idle", "(w2=-2m w3=-1m)"), heard: []string{"wake:w1 1", "enqueue 1"}},
			{call: enqueues("b", "c"), want: "ok", state: idle.with("queues", grown("a b c"), "idle", "(w2=-2m w3=-1m)"), heard: []string{"enqueue 2"}},
			{call: does("LTRIM", "queues", 0, 50), state: idle.with("queues", fewer, "idle", "(w2=-2m w3=-1m)")},
			{call: enqueues("d"), want: "ok", state: idle.with("queues", strings.TrimSuffix(fewer, "]")+" d]", "idle", "(w2=-2m w3=-1m)"), heard: []string{"enqueue 1"}},
			{call: enqueues("e"), want: "ok", state: idle.with("queues", strings.TrimSuffix(fewer, "]")+" d e]", "idle", "(w3=-1m)"), heard: []string{"wake:w2 1", "enqueue 1"}}}},
		{name: "but when these have gone meanwhile", alive: []string{"w1", "w2"}, seed: idle.with("queues", hundred), steps: []when{
			{call: enqueues("a"), want: "ok", state: idle.with("queues", grown("a"), "idle", "(w2=-2m w3=-1m)"), heard: []string{"wake:w1 1", "enqueue 1"}},
			{call: does("DEL", "queues"), state: idle.with("idle", "(w2=-2m w3=-1m)")},
			{call: enqueues("b"), want: "ok", state: state{"queues": "[b]", "idle": "(w3=-1m)"}, heard: []string{"enqueue 1", "wake:w2 1"}},
			{call: enqueues("c"), want: "ok", state: state{"queues": "[b c]"}, heard: []string{"enqueue 1"}}}},
		{name: "once", steps: []when{
			{call: enqueuesOnce("n", "a", "b"), want: "fresh", state: state{"queues": "[a b]", "once:n": "=1 +60m"}, heard: []string{"enqueue 2"}},
			{call: enqueuesOnce("n", "a", "b"), want: "repeated"},
			{call: enqueuesOnce("m", "a"), want: "fresh", state: state{"queues": "[a b a]", "once:n": "=1 +60m", "once:m": "=1 +60m"}, heard: []string{"enqueue 1"}}}},
		{name: "pause", seed: idle, steps: []when{
			{call: pauses, want: "ok", state: idle.with("paused", "=1")},
			{call: pauses, want: "ok"}}},
		{name: "resume", alive: []string{"w1", "w2"}, seed: idle.with("paused", "=1", "queues", "[a b]"), steps: []when{
			{call: resumes, want: "ok", state: state{"queues": "[a b]", "idle": "(w3=-1m)"}, heard: []string{"wake:w1 2", "wake:w2 2"}}}},
		{name: "unique", steps: []when{
			{call: enqueuesUnique("a"), want: "ok", state: lock, heard: []string{"enqueue 1"}},
			{call: enqueuesUnique("a"), want: "DUPLICATE"},
			{call: does("LREM", "queues", 0, "a"), state: lock.with("queues", "")},
			{call: enqueuesUnique("a"), want: "ok", state: lock, heard: []string{"enqueue 1"}}}},
		{name: "unique, removed by somebody else, others wait", seed: lock.with("queues", "[a b]"), steps: []when{
			{call: does("LREM", "queues", 0, "a"), state: lock.with("queues", "[b]")},
			{call: enqueuesUnique("a"), want: "ok", state: state{"queues": "[b a]", "unique": "{#a=w:1 offset=0}"}, heard: []string{"enqueue 1"}}}},
		{name: "unique, somebody else removes what stands before it", seed: state{"queues": "[b a]", "unique": "{#a=w:1 offset=0}"}, steps: []when{
			{call: does("LREM", "queues", 0, "b"), state: state{"queues": "[a]", "unique": "{#a=w:1 offset=0}"}},
			{call: enqueuesUnique("a"), want: "DUPLICATE", state: state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}}}},
		{name: "delete", seed: busy, steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`},
			state: busy.with("queues", "", "unique", "{#b=p:p2 offset="+deleted(3)+"}")}}},
		{name: "delete many locks", seed: state{"queues": "[" + strings.Join(seq("t", 0, 3000), " ") + "]", "unique": "{" + strings.Join(locks(3000), " ") + " offset=0}"},
			steps: []when{{call: deletes, want: "ok", heard: []string{`delete ""`}, state: state{}}}},
	})
}

// deleted is the offset after a delete that would have been n, had nothing been running.
func deleted(n int) string { return itoa(n + 1<<24) }

func locks(n int) (all []string) {
	for i := range n {
		all = append(all, "#t"+itoa(i)+"=w:"+itoa(i))
	}
	return all
}

// A lock follows its payload, and no other copy, through starts and returns.
func TestUniqueFollows(t *testing.T) {
	t.Parallel()
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
		{name: "cancel of others", seed: state{"queues": "[b a b c b d]", "unique": "{#a=w:1 #b=w:2 #c=w:3 #d=w:5 offset=0}"}, steps: []when{
			{call: cancels("b"), want: "removed=3 token=0", heard: []string{"cancel b"}, state: state{"queues": "[a c d]", "unique": "{#a=w:1 #c=w:3 #d=w:5 offset=1}", "gaps": "(2=2 4=4)", "cancel:#b": "{finished=0 stopped=0 token=1} +1m"}}}},
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	none := state{"queues": "[a b a]", "workers": "(w1=+60m)"}
	held := state{"workers": "(w1=+60m w2=+60m)", "token": "=2", "working:w1": "(p1=1)", "process:p1": "[a]", "working:w2": "(p2=2)", "process:p2": "[a]"}
	logged3 := held.with("token", "=3", "canceled", "(#a=3)", "cancel:#a", "{finished=0 stopped=0 token=3} +1440m")
	again := logged3.with("token", "=4", "canceled", "(#a=4)", "cancel:#a", "{finished=0 stopped=0 token=4} +1440m")
	gone1 := again.with("working:w1", "", "process:p1", "", "rounds", "{w1=1}", "cancel:#a", "{finished=0 stopped=1 token=4} +1440m")
	overtook := state{"workers": "(w1=+60m)", "rounds": "{w1=2}", "token": "=1", "working:w1": "(p2=1)", "process:p2": "[a]"}
	logged := overtook.with("token", "=2", "canceled", "(#a=2)", "cancel:#a", "{finished=0 stopped=0 token=2} +1440m")
	run(t, []scenario{
		{name: "nothing runs", seed: none, steps: []when{{call: cancels("a"), want: "removed=2 token=0", heard: []string{"cancel a"}, state: none.with("queues", "[b]", "token", "=1", "cancel:#a", "{finished=0 stopped=0 token=1} +1m")}}},
		{name: "two holders", seed: held, steps: []when{
			{call: cancels("a"), want: "removed=0 token=3", heard: []string{"cancel a"}, state: logged3},
			{call: cancels("a"), want: "removed=0 token=4", heard: []string{"cancel a"}, state: again},
			{call: steps(Round{Worker: "w1", Number: 1, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Stop}}, Said: 4}), want: "settled=canceled seen=4", state: gone1},
			{call: fails("w2"), want: "known=true returned=0", state: gone1.with("workers", "(w1=+60m)", "rounds", "{fence=5 w1=1}", "token", "=5", "working:w2", "", "process:p2", "", "canceled", "", "cancel:#a", "{finished=0 stopped=2 token=4} +1m")}}},
		{name: "again when the first is over", seed: held.with("token", "=3", "cancel:#a", "{finished=1 stopped=2 token=3} +1m"), steps: []when{
			{call: cancels("a"), want: "removed=0 token=4", heard: []string{"cancel a"}, state: again.with("cancel:#a", "{finished=1 stopped=2 token=4} +1440m")}}},
		{name: "told a page at a time", seed: page(150), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Seen: 49}), want: "cancels=" + strings.Join(told(49, 149), ",") + " seen=149 again", state: page(150).with("rounds", "{w1=1}")},
			{call: steps(Round{Worker: "w1", Number: 1, Seen: 149}), want: "cancels=#t149/150 seen=150", state: page(150).with("rounds", "{w1=1}")}}},
		// The worker takes in the answer to the overtaken round first, and knows nothing
		// yet of what the other one has started.
		{name: "an overtaken round does not tell", seed: state{"workers": "(w1=+60m)", "queues": "[a]"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 2, Start: []string{"p2"}}), want: "started=a/1", state: overtook},
			{call: cancels("a"), want: "removed=0 token=2", heard: []string{"cancel a"}, state: logged},
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p1"}}), want: "again", state: logged},
			{call: steps(Round{Worker: "w1", Number: 3}), want: "cancels=#a/2 seen=2", state: logged.with("rounds", "{w1=3}")}}},
		{name: "started afterwards", seed: logged3.with("queues", "[a]"), steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Start: []string{"p3"}}), want: "started=a/4 cancels=#a/3 seen=3",
				state: logged3.with("rounds", "{w1=1}", "token", "=4", "working:w1", "(p1=1 p3=4)", "process:p3", "[a]")},
			{call: leaves("w1"), want: "returned=1", state: logged3.with("queues", "[a]", "token", "=5", "workers", "(w2=+60m)", "working:w1", "", "process:p1", "", "cancel:#a", "{finished=0 stopped=1 token=3} +1440m")}}},
	})
}

// told is what a step tells of a page of that log.
func told(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, "#t"+itoa(i)+"/"+itoa(i+1))
	}
	return all
}

// page is a log of n cancels, of a worker that holds something.
func page(n int) state {
	var log []string
	for i := range n {
		log = append(log, "#t"+itoa(i)+"="+itoa(i+1))
	}
	return state{"workers": "(w1=+60m)", "working:w1": "(p1=0)", "process:p1": "[x]", "token": "=" + itoa(n), "canceled": "(" + strings.Join(log, " ") + ")",
		"cancel:#t" + itoa(n-1): "{finished=0 stopped=0 token=" + itoa(n) + "} +1440m"}
}
