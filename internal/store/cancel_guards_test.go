package store

import (
	"fmt"
	"strings"
	"testing"
)

// cancelsPage is one call of a cancel, for what may be left of the list since a token, and
// from one entry up to another.
func cancelsPage(payload string, left, since int, after, until string) func(*env) string {
	return func(e *env) string {
		call := cancel.without("digest", e.q, "payload", payload, "left", left, "since", since, "after", undigest(after), "until", undigest(until))
		a := cancel.read(e.line.One(e.ctx, call))
		var w words
		for _, field := range []string{"removed", "token", "stopped", "finished", "left", "since"} {
			w.num(field, a.int(field), 0)
		}
		for _, field := range []string{"after", "until"} {
			if s := a.string(field); s != "" {
				w.add(field, name(s))
			}
		}
		if a.err != nil {
			return refused(a.err)
		}
		return w.String()
	}
}

// planned are entries that wait for later, all with one payload.
func (s state) planned(payload string, entries ...string) state {
	return s.waiting(series(len(entries), func(i int) waiting { return waiting{entries[i], payload, "+9m", 0} })...)
}

// A cancel removes a page a call, and a lock goes with what it is on.
func TestGuardCancelPages(t *testing.T) {
	record := func(s state, payload string) state {
		return s.with("cancel:"+name(digest(payload)), "{finished=0 stopped=0 token=1} +1m")
	}
	list := func(n int) string { return "[" + strings.Repeat("a ", n) + "]" }
	gaps := series(150, func(i int) string { return fmt.Sprintf("%d=%d", i+1, i+1) })
	said := []string{"cancel a"}
	mega, large := strings.Repeat("m", 3<<19), strings.Repeat("l", 300<<10)
	of := "sha1:" + digest(large) + ":" + itoa(len(large))
	two := state{}.planned(large, "r:1", "r:2")
	one := state{}.planned(large, "r:2")
	recorded := func(s state, token string) state {
		return s.with("token", "="+token, "cancel:"+name(digest("a")), "{finished=0 stopped=0 token="+token+"} +1m")
	}
	run(t, []scenario{
		{name: "beside locks", seed: state{"queues": "[x " + strings.Repeat("a ", 160) + "b]", "unique": "{#b=w:161 #x=w:0 offset=0}"}, steps: []when{
			{call: cancelsPage("a", -1, 0, "", ""), want: "removed=150 left=12", state: record(state{"queues": "[x " + strings.Repeat("a ", 10) + "b]",
				"unique": "{#b=w:161 #x=w:0 offset=0}", "gaps": "(" + strings.Join(gaps, " ") + ")"}, "a")}}},
		{name: "in front of a gap", seed: state{"queues": "[x a b]", "unique": "{#b=w:3 #x=w:0 offset=0}", "gaps": "(2=2)"}, steps: []when{
			{call: cancelsPage("a", 1, 0, "", ""), want: "removed=1", heard: said, state: record(state{"queues": "[x b]", "unique": "{#b=w:3 #x=w:0 offset=0}", "gaps": "(1=1 2=2)"}, "a")}}},
		{name: "the lock on the last that is removed", seed: state{"queues": "[x a]", "unique": "{#a=w:6 #x=w:5 offset=5}"}, steps: []when{
			{call: cancelsPage("a", 1, 0, "", ""), want: "removed=1", heard: said, state: record(state{"queues": "[x]", "unique": "{#x=w:5 offset=5}", "gaps": "(6=6)"}, "a")}}},
		{name: "the lock on one behind it", seed: state{"queues": "[a x a]", "unique": "{#a=w:2 offset=0}"}, steps: []when{
			{call: cancelsPage("a", 1, 0, "", ""), want: "removed=1", heard: said, state: record(state{"queues": "[x a]", "unique": "{#a=w:2 offset=1}"}, "a")}}},
		{name: "the lock on one that came since", seed: state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}.planned("a", "k:x"), steps: []when{
			{call: cancelsPage("a", 0, 0, "", "#a:k:x"), want: "removed=1 after=#a:k:x", heard: said, state: record(state{"queues": "[a]", "unique": "{#a=w:0 offset=0}"}, "a")}}},
		{name: "the lock of what runs, and others have taken some", seed: state{"queues": "[a]", "unique": "{#a=p:p1 offset=1}"}, steps: []when{
			{call: cancelsPage("a", 5, 0, "", ""), want: "removed=1", heard: said, state: record(state{"unique": "{#a=p:p1 offset=2}"}, "a")}}},
		{name: "the lock of an entry that came since", seed: state{"unique": "{#a=e:r:2 offset=0}"}.planned("a", "r:1", "r:2"), steps: []when{
			{call: cancelsPage("a", 0, 0, "", "#a:r:1"), want: "removed=1 after=#a:r:1", heard: said, state: record(state{"unique": "{#a=e:r:2 offset=0}"}.planned("a", "r:2"), "a")}}},
		{name: "entries are left to the next call", seed: state{"queues": list(100)}.planned("a", "k:x"), steps: []when{
			{call: cancelsPage("a", -1, 0, "", ""), want: "removed=100 until=#a:k:x", state: record(state{}.planned("a", "k:x"), "a")},
			{call: cancelsPage("a", 0, 0, "", "#a:k:x"), want: "removed=1 after=#a:k:x", heard: said, state: record(state{}, "a")}}},
		{name: "entries that came since stay", seed: state{}.planned("a", "k:b", "k:y"), steps: []when{
			{call: cancelsPage("a", 0, 0, "#a:k:m", "#a:k:y"), want: "removed=1 after=#a:k:y", heard: said, state: record(state{}.planned("a", "k:b"), "a")}}},
		{name: "others have taken the last", seed: state{}.planned("a", "k:b"), steps: []when{
			{call: cancelsPage("a", 0, 0, "", "#a:k:y"), want: "removed=1 after=#a:k:b", heard: said, state: record(state{}, "a")}}},
		{name: "up to one of another payload", seed: state{}.planned("b", "k:b"), steps: []when{
			{call: cancelsPage("a", 0, 0, "", "#b:k:b"), want: "", heard: said, state: record(state{}.planned("b", "k:b"), "a")}}},
		{name: "large ones", seed: state{"queues": "[" + mega + " " + mega + " " + mega + "]"}.planned(mega, "k:x"), steps: []when{
			{call: cancelsPage(mega, -1, 0, "", ""), want: "removed=2 left=1", state: record(state{"queues": "[" + mega + "]"}.planned(mega, "k:x"), mega)}}},
		{name: "large entries", seed: two.with("unique", "{"+digest(large)+"=e:r:1 #z=p:p9 offset=0}"), steps: []when{
			{call: cancelsPage(large, -1, 0, "", ""), want: "removed=1 after=" + digest(large) + ":r:1 until=" + digest(large) + ":r:2", state: record(one.with("unique", "{#z=p:p9 offset=0}"), large)},
			{call: cancelsPage(large, 0, 0, digest(large)+":r:1", digest(large)+":r:2"), want: "removed=1 after=" + digest(large) + ":r:2", heard: []string{"cancel " + of},
				state: record(state{"unique": "{#z=p:p9 offset=0}"}, large)}}},
		{name: "a page between", seed: two.with("unique", "{"+digest(large)+"=foreign offset=0}"), steps: []when{
			{call: cancelsPage(large, 0, 0, "", digest(large)+":r:2"), want: "removed=1 after=" + digest(large) + ":r:1 until=" + digest(large) + ":r:2", state: record(one.with("unique", "{"+digest(large)+"=foreign offset=0}"), large)}}},
		{name: "who is there is of another type", seed: state{"queues": "[a]", "workers": "=foreign"}, steps: []when{{call: cancels("a"), want: "WRONGTYPE"}}},
		{name: "who holds something is of another type", seed: state{"queues": "[a]", "holders": "=foreign"}, steps: []when{{call: cancels("a"), want: "WRONGTYPE"}}},
		{name: "nothing has started since", seed: state{"queues": "[a a a]", "token": "=7"}, steps: []when{
			{call: cancelsPage("a", 1, 7, "", ""), want: "removed=1 since=7", heard: said, state: recorded(state{"queues": "[a a]", "token": "=7"}, "7")}}},
		{name: "more have started since the list was done", seed: state{"queues": "[a a a a]", "token": "=9"}, steps: []when{
			{call: cancelsPage("a", 0, 7, "", ""), want: "since=9", heard: said, state: recorded(state{"queues": "[a a a a]", "token": "=9"}, "9")}}},
	})
}
