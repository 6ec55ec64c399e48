package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var _ = probed("add",
	probe{seed: busyLane, call: adds("a", "n", "0=new", "0=er"), adds: true},
)

// adds adds tasks, each a card and a payload: "0=a".
func adds(salt, nonce string, tasks ...string) func(*env) string {
	return func(e *env) string {
		all := series(len(tasks), func(i int) Added {
			card, payload, _ := strings.Cut(tasks[i], "=")
			return Added{Card: []byte(card), Payload: []byte(payload)}
		})
		window := time.Duration(0)
		if nonce != "" {
			window = time.Hour
		}
		first, fresh, alone, err := Add(e.ctx, e.line, e.q, fullSalt+salt, nonce, window, all)
		if err != nil {
			return refused(err)
		}
		var w words
		w.add("first", first)
		w.flag("fresh", fresh)
		w.flag("alone", alone)
		return e.short(w.String())
	}
}

// putsOnce puts, with a nonce, a task that is identified by its key.
func putsOnce(key, nonce, card, payload string) func(*env) string {
	return func(e *env) string {
		first, _, err := PutOnce(e.ctx, e.line, e.q, "k:"+spelled(key), nonce, time.Hour, Change{Payload: []byte(payload), Card: []byte(card), ByKey: true, When: Always})
		if err != nil {
			return refused(err)
		}
		return e.short("first=" + first)
	}
}

func TestAdd(t *testing.T) {
	short := strings.Repeat("s", 16384)
	both := "|now-0-a/0=x now-1-a/4=y|"
	run(t, []scenario{
		{name: "alone, and again", steps: []when{
			{call: adds("a", "n", "0=x", "4=y"), want: "first=a:now-0-a fresh alone", heard: []string{"enqueue 2"}, state: state{"added": both, "once:n": "=a:now-0-a +60m"}},
			{call: adds("b", "n", "0=z"), want: "first=a:now-0-a"}}},
		{name: "served", alive: []string{"w2", "w3"}, seed: member.with("idle", "(w2=-2m w3=-1m)"), steps: []when{
			{call: adds("a", "", "0=x", "4=y"), want: "first=a:now-0-a fresh", heard: []string{"wake:w2 2", "wake:w3 2", "enqueue 2"}, state: member.with("added", both)}}},
		{name: "behind a clock that was set back", seed: state{"added": "|99999999999999-7-b/0=x|"}, steps: []when{
			{call: adds("a", "", "0=y", "0=z"), want: "first=a:99999999999999-8-a fresh", heard: []string{"enqueue 2"}, state: state{"added": "|99999999999999-7-b/0=x 99999999999999-8-a/0=y 99999999999999-9-a/0=z|"}}}},
		{name: "behind the last sequence", seed: state{"added": "|99999999999999-1048574-b/0=x|"}, steps: []when{
			{call: adds("a", "", "0=y", "0=z"), want: "first=a:100000000000000-0-a fresh", heard: []string{"enqueue 2"}, state: state{"added": "|99999999999999-1048574-b/0=x 100000000000000-0-a/0=y 100000000000000-1-a/0=z|"}}}},
		{name: "at the last sequence", seed: state{"added": "|99999999999999-1048573-b/0=x|"}, steps: []when{
			{call: adds("a", "", "0=y", "0=z"), want: "first=a:99999999999999-1048574-a fresh", heard: []string{"enqueue 2"}, state: state{"added": "|99999999999999-1048573-b/0=x 99999999999999-1048574-a/0=y 99999999999999-1048575-a/0=z|"}}}},
		{name: "behind an item of no time", seed: state{"added": "|281474976710655-7-b/0=x|"}, steps: []when{
			{call: adds("a", "", "0=y"), want: "WRONGTYPE"}}},
		{name: "where something else is", seed: state{"added": "=foreign"}, steps: []when{
			{call: adds("a", "", "0=y", "0=z"), want: "WRONGTYPE"}}},
		{name: "an idle worker that is no member", alive: []string{"w2"}, seed: state{"idle": "(w2=-2m)"}, steps: []when{
			{call: adds("a", "", "0=x"), want: "first=a:now-0-a fresh", heard: []string{"wake:w2 1", "enqueue 1"}, state: state{"added": "|now-0-a/0=x|"}}}},
		{name: "served, no idle worker", seed: member, steps: []when{
			{call: adds("a", "", "0=x"), want: "first=a:now-0-a fresh", heard: []string{"enqueue 1"}, state: member.with("added", "|now-0-a/0=x|")}}},
		{name: "beside a list", seed: state{"queues": "[a]"}, steps: []when{
			{call: adds("a", "", "0=x"), want: "first=a:now-0-a fresh", heard: []string{"enqueue 1"}, state: state{"queues": "[a]", "added": "|now-0-a/0=x|"}}}},
		{name: "small enough", steps: []when{
			{call: adds("a", "", "0="+short), want: "first=a:now-0-a fresh alone", heard: []string{"enqueue 1"}, state: state{"added": "|now-0-a/0=" + short + "|"}}}},
		{name: "large", steps: []when{
			{call: adds("a", "", "2=l"+short), want: "first=a:now-0-a fresh alone", heard: []string{"enqueue 1"}, state: state{"added": `|now-0-a/2=""|`, "keyed:k:@now-0-a": h("card=0", "payload=l"+short)}}}},
		{name: "large, where something else is", seed: state{"added": "=foreign"}, steps: []when{
			{call: adds("a", "", "0=l"+short), want: "WRONGTYPE"}}},
		{name: "large, behind a clock that was set back", seed: state{"added": "|99999999999999-7-b/0=x|"}, steps: []when{
			{call: adds("a", "", "0=l"+short), want: "first=a:99999999999999-8-a fresh", heard: []string{"enqueue 1"}, state: state{"added": `|99999999999999-7-b/0=x 99999999999999-8-a/2=""|`,
				"keyed:k:@99999999999999-8-a": h("card=0", "payload=l"+short)}}}},
		{name: "once, put and added", steps: []when{
			{call: putsOnce("x", "n", "0", "a"), want: "first=", heard: []string{"enqueue 1"}, state: state{"contents": "(#@:k:x=0)", "schedule": "(k:x=now)", "keyed:k:x": h(waits("a", "now", 0, 0), "card=0s13:now", "digest="+digest("k:x")), "once:n": "=k:x +60m"}},
			{call: putsOnce("y", "n", "0", "b"), want: "first=k:x"},
			{call: adds("a", "n", "0=x"), want: "first=k:x"}}},
	})
}

// Ids are the time of Redis to the microsecond, and a step says what time it is, so that a task expires exactly then.
func TestAddInstant(t *testing.T) {
	runAtInstant(t, []scenario{
		{name: "ids", steps: []when{
			{call: adds("a", "", "0=x", "0=y"), want: "first=a:1000999-523000-a fresh alone", heard: []string{"enqueue 2"}, state: state{"added": "|1000999-523000-a/0=x 1000999-523001-a/0=y|"}},
			{call: adds("b", "", "0=z"), want: "first=a:1000999-523002-b fresh", heard: []string{"enqueue 1"},
				state: state{"added": "|1000999-523000-a/0=x 1000999-523001-a/0=y 1000999-523002-b/0=z|"}}}},
		{name: "the time of a step", seed: state{"workers": "(w1=never)"}, steps: []when{
			{call: steps(Round{Worker: "w1", Number: 1, Lease: -1}), want: fmt.Sprint("now=", instant), state: state{"workers": "(w1=never)", "rounds": "{w1=1}"}}}},
	})
}
