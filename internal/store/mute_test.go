package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// ruled makes the calls from now on those of a user with these rules.
func (e *env) ruled(rules ...string) {
	e.t.Helper()
	user := e.prefix
	args := []any{"SETUSER", user, "on", ">" + user}
	for _, r := range rules {
		args = append(args, r)
	}
	e.must(e.conn.Do("ACL", append(args, reports)...))
	e.t.Cleanup(func() { _, _ = e.conn.Do("ACL", "DELUSER", user) })
	dial := sure(redisconn.FromURL(strings.Replace(redistest.URL(), "redis://", "redis://"+user+":"+user+"@", 1)))(e.t)
	e.line = redisconn.NewLine(dial, 0)
	e.t.Cleanup(e.line.Close)
}

// Messages are hints: everything works for a user who may not publish any, and
// if no worker is known to be idle.
func TestHintsOnly(t *testing.T) {
	t.Parallel()
	for _, p := range probes {
		for _, without := range []string{"channels", "idle"} {
			if without == "idle" && p.seed["idle"] == "" {
				continue
			}
			t.Run(p.name()+"/"+without, func(t *testing.T) {
				t.Parallel()
				call, seed := p.call, p.seed
				free := newEnv(t, redistest.URL(), nil)
				bound := newEnv(t, redistest.URL(), nil)
				switch without {
				case "channels":
					bound.ruled("~*", "+@all", "resetchannels")
					free.seed(seed)
					bound.seed(seed)
				case "idle":
					free.seed(seed.with("idle", ""))
					bound.seed(seed.with("idle", "=foreign"))
				}
				want, got := call(free), call(bound)
				plain := func(answer string) string { // with nobody else idle, the first
					return strings.TrimSpace(strings.NewReplacer("rank=0", "").Replace(answer))
				}
				if without == "channels" && got != want || plain(got) != plain(want) {
					t.Errorf("answered %q, want %q", got, want)
				}
				after := free.look()
				if without == "idle" {
					after = after.with("idle", "=foreign")
				}
				bound.compare(1, after)
			})
		}
	}
}

// A user who may do less: what a script can do without, it does without.
func TestDenied(t *testing.T) {
	t.Parallel()
	kept := runX.with("keyed:k:x", h(runX["keyed:k:x"], "held="+keeps))
	finish := when{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", heard: []string{"done w1 a"}}
	finish.state = doneX.with("result:k:x", "=finished:now:0: +60m")
	unkept := finish
	unkept.state = doneX
	noRecord := func(prefix string) []string {
		return []string{"~" + prefix + ":[^r]*", "~" + prefix + ":ro*", "~" + prefix + ":rec*", "+@all", "resetchannels", "&*_{q}_*"}
	}
	mute := func(string) []string { return []string{"~*", "+@all", "resetchannels"} }
	blind := func(string) []string { return []string{"~*", "+@all", "-exists", "resetchannels", "&*_{q}_*"} }
	recorded := state{"result:k:x": "=failed:5:0:"}
	grave := recorded.with("failed:schedule", "(k:g1=-9m)", "failed:contents", "(#a:k:g1=0)", "failed:keyed:k:g1", graveOf("a", "-9m", "from=k:x", "card="+keeps))
	for _, c := range []struct {
		name  string
		rules func(prefix string) []string
		seed  state
		step  when
	}{
		{"to wake anybody: as nobody is known to have heard, the next one is tried", mute, state{"idle": "(w1=-2m w2=-1m)"}, when{
			call: sets("x", "a", "+5m"), want: "ok", state: state{"schedule": "(k:x=+5m)", "contents": "(#a:k:x=0)", "keyed:k:x": waits("a", "+5m", 0, 0)}}},
		{"to tell of a batch", mute, state{"batch:b": "[a] +1m"}, when{
			call: commits("n", 1), want: "1", state: state{"batch:b": "[a]", "batches": "(b=1)", "once:n": "=b +1m"}}},
		{"to tell who waits for an end", func(prefix string) []string { return []string{"~*", "+@all", "resetchannels", "&*_{q}_done"} }, kept, finish},
		{"to write how a task ended", noRecord, kept, unkept},
		{"to remove how a task ended", noRecord, grave, when{call: requeues("k:g1"), want: "requeued=1", heard: []string{"enqueue 1"}, state: recorded.with(
			"schedule", "(k:x=now)", "contents", "(#a:k:x=0)", "keyed:k:x", h(waits("a", "now", 0, 0), "card="+keeps))}},
		{"to ask what is there", blind, nil, when{
			call: adds("a", "", "0=x"), want: "first=a:now-0-a fresh", heard: []string{"enqueue 1"}, state: state{"added": "|now-0-a/0=x|"}}},
		{"to ask who is there", blind, nil, when{
			call: enqueues("a"), want: "ok", heard: []string{"enqueue 1"}, state: state{"queues": "[a]"}}},
		{"to measure payloads", func(string) []string { return []string{"~*", "+@all", "-hstrlen", "resetchannels", "&*_{q}_*"} }, planX, when{
			call: recurs("x", "2b", "+6m"), want: "held", state: planX.with("recurrence:k:x", course("2b", "+6m", "now", "since=now", "more=+3m", "before=1a:-9m"),
				"schedule", "(k:x=+6m)", "keyed:k:x", h(waits("a", "+6m", 0, 0), "turn=+6m", "card=0s13:now"))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, nil)
			e.ruled(c.rules(e.prefix)...)
			e.play(scenario{seed: c.seed, steps: []when{c.step}})
		})
	}
	t.Run("to read how a task ended", func(t *testing.T) {
		e := beside(t, nil)
		e.ruled("~"+e.prefix+":[^r]*", "+@all")
		if ends, err := Ends(e.ctx, e.line, e.q, []string{"k:x"}); err == nil {
			t.Errorf("answered %+v", ends)
		}
	})
}

// The answers that the library does not read are what the headers of the scripts
// say: others run them, too.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		seed state
		call func(e *env) redisconn.Call
		want string
	}{
		{"pause", nil, func(e *env) redisconn.Call { return pause.call(e.q) }, "1"},
		{"resume", nil, func(e *env) redisconn.Call { return resume.call(e.q) }, "1"},
		{"join", nil, func(e *env) redisconn.Call { return JoinCall(e.q, "w1", 0, 0, 1) }, "1"},
		{"join, a copy", rawP, func(e *env) redisconn.Call { return JoinCall(e.q, "w1", 0, 0, 1) }, "1"},
		{"join, again", state{"token": "=1"}, func(e *env) redisconn.Call { return JoinCall(e.q, "w1", 0, 0, 1) }, "0"},
		{"put, new", member, putCall, "[1 ]"},
		{"put, alone", nil, putCall, "[2 ]"},
		{"put, changed", keyX, putCall, "[0 ]"},
		{"put, again", state{"once:n": "=k:y"}, func(e *env) redisconn.Call {
			return put.without("digest", e.q, "once", "n", "entry", "k:x", "payload", "a", "at", 0, "when", "always", "keep", 0, "counts", 0, "card", "", "by_key", 0, "window", 1000)
		}, "[0 k:y]"},
		{"remove", keyX, func(e *env) redisconn.Call { return RemoveCall(e.q, "k:x") }, "1"},
		{"cancel_key, nothing runs", keyX, func(e *env) redisconn.Call { return cancelKey.call(e.q, "entry", "k:x") }, "[1 0 0 0]"},
		{"register", nil, func(e *env) redisconn.Call {
			return register.call(e.q, "worker", "w1", "ttl", 0, "name", "", "host", "", "pid", 0, "started", 0, "version", "", "queues", "[]", "lease", 0, "stuck", 0, "protocol", 1)
		}, "1"},
		{"agree", nil, func(e *env) redisconn.Call { return agree.call(e.q, "newest", 2, "oldest", 1) }, "2:1"},
		{"enqueue_once, alone", nil, func(e *env) redisconn.Call {
			return enqueueOnce.call(e.q, "once", "n", "window", 1000, "payload", "a")
		}, "2"},
		{"enqueue_unique, alone", nil, func(e *env) redisconn.Call {
			return enqueueUnique.without("digest", e.q, "payload", "a")
		}, "2"},
		{"leave, late", rawP.with("rounds", "{w1=5}"), leaveCall(4), "[0 0]"},
		{"leave, unknown", nil, leaveCall(4), "[0 0]"},
		{"leave, nothing to read", member.with("working:w1", "=foreign"), leaveCall(4), "[0 1]"},
		{"fail", rawP, failCall, "[1 1 1 0]"},
		{"fail, unknown", nil, failCall, "[0 0 0 0]"},
		{"sweep", nil, sweepCall, "[[] 0 0 -1]"},
		{"sweep, nobody else is due", state{"suspects": "(w1=-1m)"}, sweepCall, "[[] 0 0 -1]"},
		{"beat, broken", member.with("schedule", "=foreign"), func(e *env) redisconn.Call {
			return BeatCall(e.q, "w1", 0, 0, 0)
		}, "[0 0 0 -1 0 [] 0 0 -1 "},
		{"step", member, func(e *env) redisconn.Call { return StepCall(e.q, &Round{Worker: "w1", Number: 1}) },
			"[[] [] [] [] 0 [] 0 -1 0 0  [] -1 0 0 0 0 [] 0 0 0]"},
		{"step, somebody hears of what is done", rawP, func(e *env) redisconn.Call {
			return StepCall(e.q, &Round{Worker: "w1", Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: 1, Verb: Finish}}})
		}, "[[ok] [] [] [] 1 [] 0 -1 0 0  [] -1 0 1 0 0 [] 1 0 0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, c.seed)
			r := e.line.Do(e.ctx, c.call(e))[0]
			if got := text(r.Value); r.Err != nil || !strings.HasPrefix(got, c.want) {
				t.Errorf("answered %s %v, want %s", got, r.Err, c.want)
			}
		})
	}
}

// text renders a reply.
func text(v any) string {
	switch v := v.(type) {
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, text(one))
		}
		return "[" + strings.Join(all, " ") + "]"
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

func putCall(e *env) redisconn.Call {
	return put.without("digest", e.q, "once", "", "entry", "k:x", "payload", "a", "at", 0, "when", "always", "keep", 0, "counts", 0, "card", "", "by_key", 0, "window", 0)
}

func leaveCall(round int) func(e *env) redisconn.Call {
	return func(e *env) redisconn.Call { return leave.call(e.q, "worker", "w1", "round", round, "asked", 0) }
}

func failCall(e *env) redisconn.Call { return fail.call(e.q, "worker", "w1", "begin", 1) }

func sweepCall(e *env) redisconn.Call { return sweep.call(e.q, "grace", 1000) }
