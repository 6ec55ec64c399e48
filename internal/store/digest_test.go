package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// counting makes a script count the bytes of large payloads that it hashes, and of those that it
// reads, in a hash next to the queue.
const counting = `local redis = (function(plain)
  local function count(what, s)
    if type(s) == 'string' and #s > 65536 then
      plain.call('HINCRBY', string.gsub(KEYS[1], ':%a+:({.*}).*$', ':once:%1') .. ':counted', what, #s)
    end
  end
  local function counted(reply)
    count('read', reply)
    for _, s in ipairs(type(reply) == 'table' and reply or {}) do
      count('read', s)
    end
    return reply
  end
  return setmetatable({
    sha1hex = function(s)
      count('hashed', s)
      return plain.sha1hex(s)
    end,
    call = function(...) return counted(plain.call(...)) end,
    pcall = function(...) return counted(plain.pcall(...)) end,
  }, { __index = plain })
end)(redis)
`

// count makes all scripts count. The test must not run beside others, which wait until it ends.
func count(t *testing.T) { rewrite(t, func(source string) string { return counting + source }) }

// large returns a payload that takes long to hash, by name.
func large(name string) string { return strings.Repeat(name, Large+1) }

// counted returns how many bytes of large payloads the scripts have hashed and read since the last
// call of counted.
func (e *env) counted() (hashed, read int) {
	e.t.Helper()
	key := e.q.Once("counted")
	bytes := sure(redis.IntMap(e.conn.Do("HGETALL", key)))(e.t)
	e.must(e.conn.Do("DEL", key))
	return bytes["hashed"], bytes["read"]
}

// contents returns the members of contents, in order.
func (e *env) contents() string {
	e.t.Helper()
	return strings.Join(slices.Sorted(maps.Keys(sure(redis.StringMap(e.conn.Do("ZRANGE", e.q.Contents(), 0, -1, "WITHSCORES")))(e.t))), " ")
}

// The sender of a large payload sends its digest, and an entry keeps it as long as the task
// is in the schedule: no script computes it.
func TestDigestsAreKnown(t *testing.T) {
	count(t)
	a, b := large("a"), large("b")
	far, lease := time.Now().Add(time.Hour).UnixMilli(), time.Hour
	type step struct {
		what string
		do   func(e *env) error
	}
	put := func(key, payload string, c Change) step {
		c.Payload, c.When = []byte(payload), Always
		return step{"put", func(e *env) error { _, err := Put(e.ctx, e.line, e.q, key, c); return err }}
	}
	round := func(r Round) step {
		r.Worker, r.Lease, r.Crashes, r.Keep = "w1", lease, 3, 10
		return step{"step", func(e *env) error {
			answer, err := Step(e.ctx, e.line, e.q, &r)
			if err == nil && len(answer.Started) != len(r.Start) {
				err = fmt.Errorf("%d were started, not %d", len(answer.Started), len(r.Start))
			}
			return err
		}}
	}
	begin := func(n int64, id string) step { return round(Round{Number: n, Start: []string{id}}) }
	end := func(n int64, id string, token int64, o Outcome, payload string) step {
		o.Process, o.Token, o.Size, o.Digest = id, token, len(payload), digest(payload)
		return round(Round{Number: n, Outcomes: []*Outcome{&o}})
	}
	raw := func(payload string) step {
		return step{"push", func(e *env) error { _, err := e.conn.Do("LPUSH", e.q.Waiting(), payload); return err }}
	}
	remove := func(entry string) step {
		return step{"remove", func(e *env) error { return e.line.Do(e.ctx, RemoveCall(e.q, entry))[0].Err }}
	}
	cancel := step{"cancel of another", func(e *env) error { e.seed(state{"canceled": "(#b=3)", "token": "=3"}); return nil }}
	fail := step{"fail", func(e *env) error { _, _, err := FailWorker(e.ctx, e.line, e.q, "w1"); return err }}
	for name, steps := range map[string][]step{
		"put again and again":  {put("k:x", a, Change{}), put("k:x", b, Change{}), put("k:x", a, Change{KeepPayload: true}), put("k:x", "small", Change{}), put("k:x", a, Change{At: far}), remove("k:x")},
		"finished":             {put("k:x", a, Change{}), begin(1, "p1"), end(2, "p1", 1, Outcome{Verb: Finish}, a)},
		"retried":              {put("k:x", a, Change{}), begin(1, "p1"), end(2, "p1", 1, Outcome{Verb: Retry}, a), begin(3, "p2"), end(4, "p2", 2, Outcome{Verb: Stop}, a), remove("k:x")},
		"retried, of the list": {raw(a), begin(1, "p1"), end(2, "p1", 1, Outcome{Verb: Retry}, a), begin(3, "p2"), end(4, "p2", 2, Outcome{Verb: Retry}, a), remove("r:p1")},
		"blocked":              {put("k:x", a, Change{}), begin(1, "p1"), put("k:x", b, Change{}), put("k:x", a, Change{}), end(2, "p1", 1, Outcome{Verb: Stop}, a), begin(3, "p2")},
		"blocked and kept":     {put("k:x", a, Change{}), begin(1, "p1"), put("k:x", b, Change{KeepPayload: true}), end(2, "p1", 1, Outcome{Verb: Stop}, a), begin(3, "p2")},
		"of a dead worker":     {put("k:x", a, Change{}), begin(1, "p1"), fail, remove("k:x")},
		"failed and requeued":  {put("k:x", a, Change{}), begin(1, "p1"), end(2, "p1", 1, Outcome{Verb: Fail, Kind: Failed}, a), {"requeue", func(e *env) error { _, err := Requeue(e.ctx, e.line, e.q, []string{"k:p1"}); return err }}, begin(3, "p2")},
		"stopped in a cancel":  {raw(a), begin(1, "p1"), cancel, end(2, "p1", 1, Outcome{Verb: Stop}, a)},
		"failed and removed":   {raw(a), begin(1, "p1"), end(2, "p1", 1, Outcome{Verb: Fail, Kind: Failed}, a), {"remove", func(e *env) error { return e.line.Do(e.ctx, RemoveCall(e.q.Failed(), "k:p1"))[0].Err }}},
		"deleted":              {put("k:x", a, Change{}), put("k:y", b, Change{}), {"delete", func(e *env) error { return Delete(e.ctx, e.line, e.q) }}},
		"canceled":             {put("k:x", a, Change{}), raw(a), {"cancel", func(e *env) error { _, err := Cancel(e.ctx, e.line, e.q, []byte(a)); return err }}},
		"canceled by its key":  {put("k:x", a, Change{}), {"cancel_key", func(e *env) error { _, err := CancelKey(e.ctx, e.line, e.q, "k:x"); return err }}},
		"unique":               {{"put", func(e *env) error { _, err := EnqueueUnique(e.ctx, e.line, e.q, []byte(a)); return err }}},
		"explained":            {put("k:x", a, Change{}), {"explain", func(e *env) error { _, err := Explain(e.ctx, e.line, e.q, "", []byte(a), 10, 10); return err }}},
		"checked, of two megabytes": {put("k:x", strings.Repeat("x", 2<<20), Change{}), {"check", func(e *env) error {
			v, err := Check(e.ctx, e.doctor(), e.q, CheckEntries, "", true, []string{"k:x"})
			if err == nil && len(v.Flaws) > 0 {
				err = fmt.Errorf("%v", v.Flaws)
			}
			return err
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			e.seed(state{"workers": "(w1=+60m)"})
			for i, s := range steps {
				e.must(nil, s.do(e))
				if n, _ := e.counted(); n > 0 {
					t.Errorf("call %d, %s: %d bytes were hashed", i+1, s.what, n)
				}
			}
		})
	}
}

// Scripts that only need to know that a large payload exists, or its digest, don't read it: Redis
// takes milliseconds to copy a mebibyte.
func TestLargePayloadsAreNotRead(t *testing.T) {
	count(t)
	a := strings.Repeat("a", 1<<20+1)
	w := member.with("token", "=9")
	waiting := w.with("keyed:k:x", h("payload="+a+" due=1 retries=0 crashes=0 digest="+digest(a)), "schedule", "(k:x=1)", "contents", "(#"+a+":k:x=0)")
	retried := w.with("keyed:r:p0", h("payload="+a+" due=1 retries=1 crashes=0 digest="+digest(a)), "schedule", "(r:p0=1)", "contents", "(#"+a+":r:p0=0)", "ledger", "{#"+a+"=2}")
	explained := func(entry, payload string, crashes int) func(e *env) error {
		return func(e *env) error {
			p, err := Explain(e.ctx, e.line, e.q, entry, []byte(payload), 10, 10)
			if err == nil && (len(p.Entries) != 1 || p.Entries[0].Crashes != crashes) {
				err = fmt.Errorf("%+v", p.Entries)
			}
			return err
		}
	}
	checked := func(what What, want string, names ...string) func(e *env) error {
		return func(e *env) error {
			if got := checks(true, what, names...)(e); got != want {
				return fmt.Errorf("%q", got)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		seed state
		do   func(e *env) error
	}{
		"entry":                       {waiting, checked(CheckEntries, "", "k:x")},
		"in contents":                 {waiting, checked(CheckContents, "", "#"+a+":k:x")},
		"in schedule":                 {waiting, checked(CheckScheduled, "", "k:x")},
		"stopping":                    {w.with("working:w1", "(p1=1)", "process:p1", "["+a+"]", "stopping", "("+stopped(a, 1, "p1")+"=0)"), checked(CheckStopping, "", stopped(a, 1, "p1"))},
		"blocked by what is gone":     {waiting.with("schedule", "", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 1, 0), "payload="+a+" retries=0 crashes=0 digest="+digest(a))), checked(CheckRunning, "schedule p1 mended", "p1")},
		"explained":                   {waiting, explained("", a, 0)},
		"explained, by its key":       {waiting, explained("k:x", "", 0)},
		"explained, tried again":      {retried, explained("", a, 2)},
		"explained, only by contents": {retried.with("keyed:r:p0", h("payload="+a+" due=1 retries=1 crashes=0")), explained("", a, 2)},
		"explained, by its retry":     {retried, explained("r:p0", "", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, redistest.URL(), nil)
			e.seed(c.seed)
			if err := c.do(e); err != nil {
				t.Error(err)
			}
			if _, n := e.counted(); n > 0 {
				t.Errorf("%d bytes were read", n)
			}
		})
	}
}

// A call of check ends when it has read a mebibyte, even of payloads whose digest it has.
func TestCheckReadsAMebibyte(t *testing.T) {
	t.Parallel()
	for size, judged := range map[int]int{300 << 10: 4, 1 << 20: 1} {
		payload := strings.Repeat("x", size)
		for what, name := range map[What]string{CheckEntries: "", CheckContents: digest(payload) + ":"} {
			e := newEnv(t, redistest.URL(), nil)
			var names []string
			for i := range 2 * judged {
				entry := fmt.Sprint("k:", i)
				e.must(Put(e.ctx, e.line, e.q, entry, Change{Payload: []byte(payload), When: Always}))
				names = append(names, name+entry)
			}
			v, err := Check(e.ctx, e.doctor(), e.q, what, "", false, names)
			if err != nil || v.Judged != judged || len(v.Flaws) > 0 {
				t.Errorf("%s: %d of %d bytes were judged, not %d: %v, %v", what, v.Judged, size, judged, v.Flaws, err)
			}
		}
	}
}

// It also ends when it has moved a mebibyte, or hashed one to move tasks.
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

// An entry without a digest, or with the digest of another payload, is treated according to its
// payload. Versions of this library without digests leave such entries.
func TestDigestsOfOthers(t *testing.T) {
	t.Parallel()
	a, b := large("a"), large("b")
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

// If another program writes an entry with a wrong digest, also into contents, scripts trust it.
// That harms only the entry itself, and none with the same payload or digest. Once the task has
// ended, nothing of it is left.
func TestWrongDigestHarmsNoOther(t *testing.T) {
	t.Parallel()
	a, b := large("a"), large("b")
	lies := func(e *env) {
		e.must(e.conn.Do("HSET", e.q.Keyed("k:liar"), "payload", a, "due", 1, "retries", 0, "crashes", 0, "digest", digest(b)))
		e.must(e.conn.Do("ZADD", e.q.Schedule(), 1, "k:liar"))
		e.must(e.conn.Do("ZADD", e.q.Contents(), 0, digest(b)+":k:liar"))
	}
	honest := func(e *env) { // one of each under a key, and one of each that is unique
		for key, payload := range map[string]string{"k:a": a, "k:b": b} {
			e.must(Put(e.ctx, e.line, e.q, key, Change{Payload: []byte(payload), At: 2, When: Always}))
			e.must(EnqueueUnique(e.ctx, e.line, e.q, []byte(payload)))
		}
	}
	all := func(keys ...string) string {
		slices.Sort(keys)
		return strings.Join(keys, " ")
	}
	round := func(e *env, r Round) *Answer {
		r.Worker, r.Lease, r.Crashes, r.Keep = "w1", time.Hour, 3, 10
		return sure(Step(e.ctx, e.line, e.q, &r))(e.t)
	}
	fresh := func(t *testing.T) *env {
		e := beside(t, state{"workers": "(w1=+60m)"})
		lies(e)
		honest(e)
		return e
	}
	t.Run("started with others, and returned", func(t *testing.T) {
		e := fresh(t)
		answer := round(e, Round{Number: 1, Start: []string{"p1", "p2", "p3", "p4", "p5"}})
		if len(answer.Started) != 5 || e.contents() != "" {
			t.Fatalf("%d were started, and contents has %q", len(answer.Started), e.contents())
		}
		_, _, err := FailWorker(e.ctx, e.line, e.q, "w1")
		e.must(nil, err)
		if want := all(digest(a)+":k:a", digest(b)+":k:b", digest(b)+":k:liar", digest(a)+":"+UniqueEntry([]byte(a)), digest(b)+":"+UniqueEntry([]byte(b))); e.contents() != want {
			t.Errorf("contents has %q, not %q", e.contents(), want)
		}
		for _, payload := range []string{a, b} {
			if _, err := EnqueueUnique(e.ctx, e.line, e.q, []byte(payload)); refused(err) != "DUPLICATE" {
				t.Errorf("%v", err)
			}
		}
	})
	t.Run("canceled by its real or its stored digest", func(t *testing.T) {
		e := fresh(t)
		for _, payload := range []string{a, b} {
			if c, err := Cancel(e.ctx, e.line, e.q, []byte(payload)); err != nil || c.Removed != 2 {
				t.Errorf("%d were removed: %v", c.Removed, err)
			}
		}
		payload, err := redis.String(e.conn.Do("HGET", e.q.Keyed("k:liar"), "payload"))
		if err != nil || payload != a {
			t.Errorf("the entry with the wrong digest has %d bytes: %v", len(payload), err)
		}
	})
	for name, end := range map[string]func(e *env){
		"removed": func(e *env) { e.must(nil, e.line.Do(e.ctx, RemoveCall(e.q, "k:liar"))[0].Err) },
		"put": func(e *env) {
			e.must(Put(e.ctx, e.line, e.q, "k:liar", Change{Payload: []byte("c"), When: Always}))
			e.must(nil, e.line.Do(e.ctx, RemoveCall(e.q, "k:liar"))[0].Err)
		},
		"tried again, and finished": func(e *env) {
			token := round(e, Round{Number: 1, Start: []string{"p1"}}).Started[0].Token
			round(e, Round{Number: 2, Outcomes: []*Outcome{{Process: "p1", Token: token, Verb: Retry}}})
			e.must(e.conn.Do("ZADD", e.q.Schedule(), 1, "k:liar"))
			token = round(e, Round{Number: 3, Start: []string{"p2"}}).Started[0].Token
			round(e, Round{Number: 4, Outcomes: []*Outcome{{Process: "p2", Token: token, Verb: Finish}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := fresh(t)
			end(e)
			if want := all(digest(a)+":k:a", digest(b)+":k:b", digest(a)+":"+UniqueEntry([]byte(a)), digest(b)+":"+UniqueEntry([]byte(b))); e.contents() != want {
				t.Errorf("contents has %q, not %q", e.contents(), want)
			}
			if n := e.count("EXISTS", "keyed:k:liar"); n != 0 {
				t.Error("its entry is left")
			}
			e.must(nil, Delete(e.ctx, e.line, e.q))
			if n := e.count("EXISTS", "contents") + e.count("EXISTS", "schedule"); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		})
	}
}

// A digest sent with a payload is trusted if it may be one, and for that task only.
func TestGuardDigest(t *testing.T) {
	large, mebi := strings.Repeat("l", 65537), strings.Repeat("m", 1<<20)
	wrong, none := strings.Repeat("ab", 20), strings.Repeat("z", 40)
	due := func(payload string, fields ...string) string {
		return h(append([]string{waits(payload, "+9m", 0, 0)}, fields...)...)
	}
	names := func(payload, named string) func(*env) string { // a put
		return func(e *env) string {
			a := put.ask(e.ctx, e.line, e.q, "once", "", "entry", "k:x", "payload", payload, "at", at("+9m", e.now()), "when", "always", "keep", 0, "counts", 0,
				"card", "", "by_key", 0, "window", 0, "digest", named)
			fresh := a.int("fresh")
			return said(a.err, "%d", fresh)
		}
	}
	twice := member.with("ledger", "{"+digest(large)+"=1}")
	known := state{"schedule": "(k:x=+9m)", "contents": "(" + digest(large) + ":k:x=0)", "keyed:k:x": due(large, "digest="+digest(large))}
	run(t, []scenario{
		{name: "no digest", steps: []when{{call: names("a", none), want: "2", heard: []string{"enqueue 1"},
			state: state{"schedule": "(k:x=+9m)", "contents": "(#a:k:x=0)", "keyed:k:x": due("a")}}}},
		{name: "the stored digest goes with the payload", seed: known, steps: []when{{call: names("a", ""), want: "0",
			state: state{"schedule": "(k:x=+9m)", "contents": "(#a:k:x=0)", "keyed:k:x": due("a")}}}},
		{name: "not large", steps: []when{{call: names(large[1:], ""), want: "2", heard: []string{"enqueue 1"},
			state: state{"schedule": "(k:x=+9m)", "contents": "(" + digest(large[1:]) + ":k:x=0)", "keyed:k:x": due(large[1:])}}}},
		{name: "not large, and runs", seed: keyX.with("contents", "("+digest(large[1:])+":k:x=0)", "keyed:k:x", waits(large[1:], "-1m", 0, 0)), steps: []when{
			{call: begins(1, "p1"), want: "started=" + large[1:] + "/1@k:x", state: runX.with("process:p1", "["+large[1:]+"]", "keyed:k:x", runs("p1", 0, 0))}}},
		{name: "check: of a mebibyte", seed: state{"schedule": "(k:x=+9m)", "contents": "(" + wrong + ":k:x=0)", "keyed:k:x": due(mebi, "digest="+wrong)}, steps: []when{
			{call: checks(false, CheckEntries, "k:x"), want: "schedule k:x"}}},
		{name: "of another failed task", seed: state{"failed:schedule": "(k:g1=-9m k:g2=-9m)", "failed:contents": "(" + wrong + ":k:g1=0 " + digest(large) + ":k:g2=0)",
			"failed:keyed:k:g1": h(failedOf(large, "-9m"), "digest="+wrong), "failed:keyed:k:g2": h(failedOf(large, "-9m"), "digest="+digest(large))}, steps: []when{
			{call: requeues("k:g1", "k:g2"), want: "requeued=2", heard: []string{"enqueue 2"}, state: state{"queues": "[" + large + " " + large + "]"}}}},
		{name: "of the same one on the list", seed: twice.with("queues", "["+large+"]", "schedule", "(k:x=-1m)", "contents", "("+wrong+":k:x=0)",
			"keyed:k:x", h(waits(large, "-1m", 0, 0), "digest="+wrong)), steps: []when{
			{call: begins(1, "p1", "p2"), want: "started=" + large + "/1@k:x," + large + "/2!1", state: twice.merged(rawP).with("token", "=2", "working:w1", "(p1=1 p2=2)",
				"process:p1", "["+large+"]", "process:p2", "["+large+"]", "entries", "{p1=k:x}", "keyed:k:x", h(runs("p1", 0, 0), "sum=p1:"+wrong))}}},
	})
}

// A task that its key identifies differs from all tasks with its payload, even from one that waits
// under the key.
func TestGuardDigestOfKey(t *testing.T) {
	running := runX.with("keyed:k:x", h(runs("p1", 2, 1), "sum=p1:"+digest("k:x")))
	record := "{finished=0 stopped=0 token=2}"
	run(t, []scenario{
		{name: "it finishes, and is large", seed: running.with("token", "=2", "holders", "(w1=0)", "canceled", "(#a=2)", "cancel:#a", record+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{Size: Large + 1, Digest: digest("a")}), want: "settled=ok seen=2", heard: []string{"done w1 65537:" + digest("a")},
				state: doneX.with("token", "=2", "cancel:#a", record+" +1m")}}},
		{name: "it is tried again, and its name was canceled as a payload", seed: running.with("token", "=2", "holders", "(w1=0)", "canceled", "("+digest("k:x")+"=2)", "cancel:"+digest("k:x"), record+" +1440m"), steps: []when{
			{call: ends(2, "p1", 1, Retry, Outcome{}), want: "settled=ok seen=2", state: doneX.with("token", "=2", "contents", "(#@:k:x=0)", "schedule", "(k:x=now)",
				"keyed:k:x", h(waits("a", "now", 3, 1), "digest="+digest("k:x")), "cancel:"+digest("k:x"), record+" +1m")}}},
		{name: "it gives way", seed: running.with("contents", "(#a:k:x=0)", "keyed:k:x", h(running["keyed:k:x"], waits("a", "+9m", 0, 0), rule(0, 0, "+9m", "+9m"))), steps: []when{
			{call: ends(2, "p1", 1, Stop, Outcome{}), want: "settled=ok", state: backX.with("schedule", "(k:x=+9m)", "keyed:k:x", waits("a", "+9m", 0, 0))}}},
	})
}

// A digest that a worker sends for a payload that isn't large isn't trusted.
func TestGuardDigestOfSmall(t *testing.T) {
	named := Outcome{Size: Large + 1, Digest: strings.Repeat("ab", 20)}
	var all []scenario
	for _, payload := range []string{"a", strings.Repeat("l", Large)} {
		seed, back := runX.with("process:p1", "["+payload+"]"), doneX.with("contents", "("+name(digest(payload)+":k:x")+"=0)")
		all = append(all,
			scenario{name: itoa(len(payload)) + " bytes, stopped", seed: seed, steps: []when{{call: ends(2, "p1", 1, Stop, named), want: "settled=ok",
				state: back.with("schedule", "(k:x=1)", "keyed:k:x", waits(payload, "1", 2, 1))}}},
			scenario{name: itoa(len(payload)) + " bytes, tried again", seed: seed, steps: []when{{call: ends(2, "p1", 1, Retry, named), want: "settled=ok",
				state: back.with("schedule", "(k:x=now)", "keyed:k:x", waits(payload, "now", 3, 1))}}})
	}
	run(t, all)
}
