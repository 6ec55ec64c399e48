package store

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

var _ = probed("put",
	probe{seed: busyLane, call: sets("x", "n", "+5m"), adds: true},
	probe{what: "waiting", seed: busyLane, call: sets("z", "n", "+5m"), adds: true},
	probe{what: "new", seed: busyLane, call: sets("u", "n", "+5m"), adds: true},
)

// sets puts a payload under a key. A due of "" is now; how may have the rule, "keep", "counts" and
// "card=".
func sets(key, payload, due string, how ...string) func(*env) string {
	return func(e *env) string {
		c := Change{Payload: []byte(payload), When: Always}
		if due != "" {
			c.At = at(due, e.now())
		}
		for _, h := range how {
			switch h {
			case "keep":
				c.KeepPayload = true
			case "counts":
				c.KeepCounts = true
			default:
				if card, ok := strings.CutPrefix(h, "card="); ok {
					c.Card = []byte(card)
				} else {
					c.When = When(h)
				}
			}
		}
		_, err := Put(e.ctx, e.line, e.q, "k:"+spelled(key), c)
		return said(err, "ok")
	}
}

// The error of the last attempt belongs to the counts of the waiting task, and is dropped with them.
func TestPutError(t *testing.T) {
	tried := func(payload string, retries, crashes int, more ...string) state {
		return keyX.with("contents", "(#"+payload+":k:x=0)", "schedule", "(k:x=+60m)", "keyed:k:x", h(append([]string{waits(payload, "+60m", retries, crashes)}, more...)...))
	}
	failed := tried("a", 2, 1, "error=no")
	behind := blockedX.with("keyed:k:x", h(blockedX["keyed:k:x"], "error=no"))
	run(t, []scenario{
		{name: "its counts go", seed: failed, steps: []when{{call: sets("x", "b", "+60m"), want: "ok", state: tried("b", 0, 0)}}},
		{name: "its counts stay", seed: failed, steps: []when{{call: sets("x", "b", "+60m", "counts"), want: "ok", state: tried("b", 2, 1, "error=no")}}},
		{name: "its payload stays, and so do its counts", seed: failed, steps: []when{{call: sets("x", "b", "+60m", "keep"), want: "ok", state: failed}}},
		{name: "it belongs to the running task", seed: behind, steps: []when{{call: sets("x", "c", "+20m"), want: "ok",
			state: behind.with("contents", "(#c:k:x=0)", "keyed:k:x", h(behind["keyed:k:x"], "payload=c"))}}},
		{name: "nothing waits", seed: member.with("keyed:k:x", "{error=no}"), steps: []when{{call: sets("x", "b", "+60m"), want: "ok", heard: []string{"enqueue 1"}, state: tried("b", 0, 0, "error=no")}}},
	})
}

// The commands in docs/protocol.md put a task: their fragments, keys and arguments are those of the
// script.
func TestPutByHand(t *testing.T) {
	is := redistest.Parallel(t)
	url := redistest.Start(t).URL()
	conn := redistest.Dial(t, url)
	_, rest, _ := strings.Cut(string(sure(os.ReadFile(protocol))(t)), "\n```\ncat lib_")
	typed, _, ok := strings.Cut("cat lib_"+rest, "\n```\n")
	is.True(ok)
	typed = strings.NewReplacer("/tmp/put.lua", t.TempDir()+"/put.lua", "redis-cli", "redis-cli -u "+url).Replace(typed)
	says, err := exec.CommandContext(t.Context(), "bash", "-c", typed).CombinedOutput()
	is.NoErr(err)
	is.Equal(string(says), "2\n\n") // it's new, and no worker serves the queue
	is.Equal(sure(redis.String(conn.Do("HGET", "worqr:keyed:{emails}:k:ann", "payload")))(t), "hello")
	is.Equal(sure(redis.Int(conn.Do("ZCARD", "worqr:schedule:{emails}")))(t), 1)
}

func enqueueUnique(ctx context.Context, r Runner, q keys.Queue, payload []byte) (alone bool, err error) {
	return Put(ctx, r, q, UniqueEntry(payload), Change{Payload: payload, When: Unique})
}

func enqueuesUnique(p string) func(*env) string {
	return func(e *env) string {
		_, err := enqueueUnique(e.ctx, e.line, e.q, []byte(p))
		return said(err, "ok")
	}
}

// A unique task is refused while an equal one waits, runs, or waits for a retry, and accepted after it has ended, was
// canceled or has failed. One that was put back stays failed while a new one waits.
func TestUnique(t *testing.T) {
	e := "u:" + digest("a")
	waiting := member.with("schedule", "("+e+"=now)", "contents", "(#a:"+e+"=0)", "keyed:"+e, waits("a", "now", 0, 0))
	running := member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]", "entries", "{p1="+e+"}", "keyed:"+e, runs("p1", 0, 0))
	over := member.with("rounds", "{w1=2}", "token", "=1")
	again := over.merged(waiting)
	failedTask := state{"failed:schedule": "(k:p1=now)", "failed:contents": "(#a:k:p1=0)",
		"failed:keyed:k:p1": h(waits("a", "now", 0, 0), "kind=failed", "reason=", "tries=0", "deaths=0", "worker=w1", "at=now", "from="+e)}
	requeues := func(e *env) string {
		n, err := Requeue(e.ctx, e.line, e.q, []string{"k:p1"})
		return said(err, "%d", n)
	}
	refused := when{call: enqueuesUnique("a"), want: "DUPLICATE"}
	accepted := when{call: enqueuesUnique("a"), want: "ok", state: again, heard: []string{"enqueue 1"}}
	run(t, []scenario{
		{name: "waits, runs and ends", seed: member, steps: []when{
			{call: enqueuesUnique("a"), want: "ok", state: waiting, heard: []string{"enqueue 1"}},
			refused,
			{call: begins(1, "p1"), want: "started=a/1@" + e, state: running},
			refused,
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", state: over, heard: []string{"done w1 a"}},
			accepted}},
		{name: "is retried", seed: running, steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), want: "settled=ok", state: over.merged(waiting).with("schedule", "("+e+"=+60m)", "keyed:"+e, waits("a", "+60m", 1, 0))},
			refused}},
		{name: "its worker dies", seed: running, steps: []when{
			{call: fails("w1"), want: "known=true returned=1", state: waiting.with("workers", "", "token", "=2", "schedule", "("+e+"=1)", "keyed:"+e, waits("a", "1", 0, 0), "ledger", "{#a=1}")},
			refused}},
		{name: "is canceled", seed: waiting, steps: []when{
			{call: cancels("a"), want: "removed=1 token=0", heard: []string{"cancel a"}, state: member.with("token", "=1", "cancel:#a", "{finished=0 stopped=0 token=1} +1m")},
			{call: enqueuesUnique("a"), want: "ok", state: waiting.with("token", "=1", "cancel:#a", "{finished=0 stopped=0 token=1} +1m"), heard: []string{"enqueue 1"}}}},
		{name: "fails, and another takes its place", seed: running, steps: []when{
			{call: ends(2, "p1", 1, Fail, Outcome{Kind: Failed}), want: "settled=ok", state: over.merged(failedTask)},
			{call: enqueuesUnique("a"), want: "ok", state: again.merged(failedTask), heard: []string{"enqueue 1"}},
			{call: requeues, want: "0"}}},
		{name: "fails, and is put back", seed: over.merged(failedTask), steps: []when{
			{call: requeues, want: "1", state: again, heard: []string{"enqueue 1"}},
			refused}},
		{name: "another copy on the list isn't unique", seed: member.with("queues", "[a]"), steps: []when{
			{call: enqueuesUnique("a"), want: "ok", state: waiting.with("queues", "[a]"), heard: []string{"enqueue 1"}}}},
	})
}
