package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

func TestEnqueue(t *testing.T) {
	play(t, []scenario{
		{"payloads wait in order, and idle workers are woken", steps(
			"listen", "", "ZADD idle 1 v 2 w", "2", "enqueue a b c", "2", "LRANGE queues 0 -1", "c b a",
			"heard", "wake:v 3 wake:w 3 enqueue 3", "enqueue d", "1", "heard", "enqueue 1",
		)},
		{"a repeat changes nothing while its nonce is known", steps(
			"enqueue nonce=n window=60000 a", "2", "enqueue nonce=n window=60000 a", "0", "LLEN queues", "1",
			"DEL once:n", "1", "enqueue nonce=n window=60000 a", "1", "LLEN queues", "2",
		)},
		{"producers don't see a pause: they wake a worker, which becomes idle again", steps(
			"ZADD idle 1 w", "1", "HSET state paused me", "1", "enqueue a", "2", "ZCARD idle", "0",
			"join round=1", "1", "start round=2 wanted=1", "*", "ZCARD idle", "1",
		)},
		{"a key of the wrong type: nothing is added, and the nonce isn't known", steps(
			"SET queues x", "OK", "enqueue nonce=n window=60000 a", "!WRONGTYPE", "EXISTS once:n", "0",
		)},
	})
}

// task returns the arguments of add for one task, "keep" and "counts" being among the words of how.
func task(name, at, how, payload string) string {
	flag := func(word string) string { return map[bool]string{true: "1", false: "0"}[strings.Contains(how, word)] }
	rule, _, _ := strings.Cut(how, "+")
	return fmt.Sprintf(" %s %s %s:%s:%s '' 0:0:0:0:0:0:%s", name, at, rule, flag("keep"), flag("counts"), payload)
}

// once returns them for a task with a nonce.
func once(name, nonce, payload string) string {
	return fmt.Sprintf(" %s 0 always:0:0 60000:%s 0:0:0:0:0:0:%s", name, nonce, payload)
}

func TestAdd(t *testing.T) {
	soon := "2000000000000"
	play(t, []scenario{
		{"tasks wait in order, or until their time", steps(
			"listen", "", "ZADD idle 1 v 2 w", "2",
			"add"+task("k:b", "0", "always", "B")+task("k:t", soon, "always", "T")+
				task("k:a", "5", "always", "A"), "[k:b k:t k:a] [] 1",
			"ZRANGE ready 0 -1", "k:b k:a", "ZRANGE schedule 0 -1 WITHSCORES", "k:t "+soon,
			"HGET tasks k:b", "now:0:0:0:0:0:B", "EXISTS runs next", "0",
			"heard", "wake:v 2 wake:w 2 enqueue 3",
			"add"+task("k:c", "0", "always", "C"), "[k:c] [] 0",
			"ZRANGE ready 0 -1", "k:b k:a k:c",
		)},
		{"a time before the claimed one wakes an idle worker, a later one none", steps(
			"listen", "", "ZADD idle 1 v", "1", "HSET state claimed 3000000000000", "1",
			"add"+task("k:a", "4000000000000", "always", "A"), "[k:a] [] 1",
			"heard", "enqueue 1",
			"add"+task("k:b", soon, "always", "B"), "[k:b] [] 0",
			"heard", "wake:v 1 enqueue 1",
		)},
		{"tasks with known nonces are skipped, the others are added", steps(
			"add"+once("k:a", "n", "A"), "[k:a] [] 1",
			"add"+once("k:b", "m", "B")+once("k:c", "n", "C")+once("k:d", "o", "D"), "[k:b k:a k:d] [2] 0",
			"HKEYS tasks", "k:a k:b k:d", "ZRANGE ready 0 -1", "k:a k:b k:d",
			"add"+once("k:e", "m", "B")+once("k:f", "n", "C"), "[k:b k:a] [1 2] 0",
			"HLEN tasks", "3",
		)},
		{"a unique task is added once, also while it runs, with nothing else of the call", steps(
			"add"+task("u:<a>", "0", "unique", "a"), "[u:<a>] [] 1",
			"add"+once("k:b", "n", "B")+task("u:<a>", "0", "unique", "a"), "!DUPLICATE",
			"HLEN tasks", "1", "EXISTS once:n", "0", "join round=0", "1", "start wanted=1", "*",
			"add"+task("u:<a>", "0", "unique", "a"), "!DUPLICATE",
			"finish plain=0 w.1.9.1n 1 u:<a> done 0 ''", "[] 0",
			"add"+task("u:<a>", "0", "unique", "a"), "[u:<a>] [] 0",
		)},
		{"a unique task with a known nonce is skipped", steps(
			"add u:<a> 0 unique:0:0 60000:n 0:0:0:0:0:0:a", "[u:<a>] [] 1",
			"add u:<a> 0 unique:0:0 60000:n 0:0:0:0:0:0:a", "[u:<a>] [1] 0",
		)},
		{"what can't be right adds nothing", steps(
			"add"+task("k:a", "0", "always", "A")+task("k:a", "0", "always", "B"), "!INVALID",
			"add"+once("k:a", "n", "A")+once("k:b", "n", "B"), "!INVALID",
			"add k:a 0 always:0:0 '' A", "!INVALID",
			"add k:a 0 always:0:0 '' 0:0:0:0:1:0:A", "!INVALID",
			"add k:a nan always:0:0 '' 0:0:0:0:0:0:A", "!INVALID",
			"add"+task("''", "0", "always", "A"), "!INVALID", "add"+task("k:", "0", "always", "A"), "!INVALID",
			"add"+task("a", "0", "always", "A"), "!INVALID", "add"+task("r:<a>:1", "0", "always", "A"), "!INVALID",
			"add"+once("k:b", "n", "B")+" k:a 0 always:0:0 9999999999999999999:m 0:0:0:0:0:0:A", "!INVALID",
			"add"+task("k:a", "0", "always", "A")+" k:b 0 always", "!INVALID",
			"add"+strings.Repeat(task("k:a", "0", "always", "A"), 1001), "!TOOLARGE",
			"EXISTS tasks state ready once:n", "0",
		)},
		{"more than 4 MiB of waiting records are replaced one by one only", steps(
			"HSET tasks k:a @3000000 k:b @3000000 k:c x", "3", "ZADD ready 1 k:a 2 k:b 3 k:c", "3",
			"add"+task("k:c", "0", "always", "C")+task("k:a", "0", "always", "A")+
				task("k:b", "0", "always", "B"), "!TOOLARGE",
			"HGET tasks k:c", "x",
			"add"+task("k:a", "0", "always", "A"), "[k:a] [] 0",
			"add"+task("k:c", "0", "always", "C")+task("k:b", "0", "always", "B"), "[k:c k:b] [] 0",
			"HMGET tasks k:b k:c", "now:0:0:0:0:0:B now:0:0:0:0:0:C",
		)},
		{"a single task may replace one of any size", steps(
			"HSET tasks k:a @5000000", "1", "ZADD ready 1 k:a", "1",
			"add"+task("k:a", "0", "always", "A"), "[k:a] [] 0",
		)},
		{"a name that waits nowhere is ready again", steps(
			"HSET tasks k:a x", "1",
			"add"+task("k:a", soon, "never+keep", "A"), "[k:a] [] 0",
			"ZRANGE ready 0 -1", "k:a",
		)},
		{"who waits for the result of a replaced task learns it, unless the new one has a result", steps(
			"listen", "",
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:A", "[k:a] [] 1",
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:B", "[k:a] [] 0",
			"EXISTS result:k:a", "0",
			"add k:a 0 always:1:0 '' 0:0:0:0:0:0:C", "[k:a] [] 0",
			"EXISTS result:k:a", "0",
			"add k:a 0 always:0:0 '' 0:0:0:0:0:0:D", "[k:a] [] 0",
			"GET result:k:a", "replaced:now:0:", "heard", "enqueue 1 end:<k:a>",
		)},
		{"a waiting occurrence that keeps its time stays one, also with another payload", steps(
			"HSET tasks k:a 1:"+soon+":0:0:1:0:OLD", "1", "ZADD schedule "+soon+" k:a", "1",
			"add"+task("k:a", "0", "never", "NEW"), "[k:a] [] 0",
			"HGET tasks k:a", "now:"+soon+":0:0:1:0:NEW",
			"add"+task("k:a", "0", "always", "EXTRA"), "[k:a] [] 0",
			"HGET tasks k:a", "now:0:0:0:0:0:EXTRA",
		)},
	})
}

var (
	ways = []string{"always", "never", "later", "earlier"}
	hows = []string{"", "+keep", "+counts"}
)

// both returns when the one of two tasks starts that stays.
func both(rule, old, added string) string {
	n := func(s string) int { i, _ := strconv.Atoi(s); return i }
	if rule == "always" || rule == "later" && n(added) > n(old) || rule == "earlier" && n(added) < n(old) {
		return added
	}
	return old
}

// Each rule, for a task that waits in each of the places where it can.
func TestRules(t *testing.T) {
	const first, middle, last = "2000000000000", "3000000000000", "4000000000000"
	for _, where := range []string{"ready", "schedule", "risky"} {
		for _, rule := range ways {
			for _, how := range hows {
				for _, at := range []string{"0", first, middle, last} {
					old := map[string]string{"schedule": middle}[where]
					record, run, set, score := "NEW", "-", where, "7"
					if how == "+keep" {
						record = "OLD"
					}
					if how != "" {
						run = ":1:2:why"
					} else if where == "risky" {
						set = "ready"
					}
					if old == "" {
						old = "0"
					} else {
						score = old
					}
					before := score
					if wanted := both(rule, old, at); wanted != old {
						set, score = "schedule", wanted
						if wanted == "0" {
							set, score = "ready", "9"
						}
					}
					steps := [][2]string{
						{"HSET state place 8", "1"},
						{"HSET tasks k:a 1:0:0:0:0:0:OLD", "1"},
						{"HSET runs k:a :1:2:why", "1"},
						{"ZADD " + where + " " + before + " k:a", "1"},
						{"add" + task("k:a", at, rule+how, "NEW"), "[k:a] [] 0"},
						{"ZSCORE " + set + " k:a", score},
						{"HGET runs k:a", run},
					}
					for _, other := range []string{"ready", "schedule", "risky"} {
						if other != set {
							steps = append(steps, [2]string{"EXISTS " + other, "0"})
						}
					}
					q := newQueue(t, redistest.URL())
					q.play(steps)
					if got := q.do("HGET tasks k:a"); !strings.HasSuffix(got, ":"+record) {
						t.Errorf("%s %s%s at %s: the record is %s", where, rule, how, at, got)
					}
				}
			}
		}
	}
}

// A task that was added while another one ran under its name: the rules say which of them stays if that one comes back.
func TestBehind(t *testing.T) {
	const old, added = "3000000000000", "2000000000000"
	ends := map[string]string{ // when the running task would wait again; none: it's gone
		"done 0 ''": "", "drop 0 ''": "", "fail 0 failed:x": "",
		"retry 3600000 why": "far", "stop 0 ''": "0", "snooze 3600000 ''": "far",
	}
	for end, back := range ends {
		for _, rule := range ways {
			for _, how := range hows {
				q := newQueue(t, redistest.URL())
				q.play(steps(
					"HSET tasks k:a 1:0:0:0:0:0:OLD", "1", "HSET runs k:a :1:2:before", "1",
					"ZADD ready 5 k:a", "1", taken(1),
					"add"+task("k:a", added, rule+how, "NEW"), "[k:a] [] 0",
					"finish plain=0 w.1.9.1n 1 k:a "+end, "*",
					"EXISTS next", "0",
				))
				score, run, record := q.do("ZSCORE schedule k:a"), q.do("HGET runs k:a"), q.do("HGET tasks k:a")
				record = record[strings.LastIndex(record, ":")+1:]
				wanted, kept := added, "-"
				if back != "" {
					wanted = map[string]string{"always": added, "never": back, "later": added, "earlier": back}[rule]
				}
				if back != "" && how != "" {
					kept = map[string]string{"r": ":2:2:why", "s": ":1:2:before"}[end[:1]]
				}
				if wanted == "0" {
					wanted = "-"
					q.play(steps("ZSCORE ready k:a", "-4503599627370495"))
				}
				if score != wanted || run != kept || record == "OLD" != (back != "" && how == "+keep") {
					t.Errorf("%s, %s%s: %s waits until %s, having run %s; want %s, %s",
						end, rule, how, record, score, run, wanted, kept)
				}
			}
		}
	}
	play(t, []scenario{
		{"of two put behind a running task, the second one's rule holds", steps(
			"add"+task("k:a", "0", "always", "A"), "*", taken(1),
			"listen", "", "add"+task("k:a", old, "always+counts", "B"), "[k:a] [] 0", "heard", "enqueue 1",
			"HGET next k:a", old+":always:0:1:now:0:0:0:0:0:B",
			"add"+task("k:a", added, "never+keep", "C"), "[k:a] [] 0",
			"HGET next k:a", old+":never:0:1:now:0:0:0:0:0:B",
			"add"+task("k:a", added, "earlier", "D"), "[k:a] [] 0",
			"HGET next k:a", added+":earlier:0:0:now:0:0:0:0:0:D", "heard", "",
			"add"+task("k:a", added, "never+keep", "E"), "[k:a] [] 0",
			"HGET next k:a", added+":never:0:0:now:0:0:0:0:0:D",
			"HLEN tasks", "1",
		)},
		{"who waits for what is behind a running task learns that it was replaced", steps(
			"add"+task("k:a", "0", "always", "A"), "*", taken(1),
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:B", "*",
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:C", "*",
			"EXISTS result:k:a", "0",
			"add"+task("k:a", "0", "always", "D"), "*",
			"GET result:k:a", "replaced:now:0:",
		)},
		{"but not while one runs whose result is kept", steps(
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:A", "*", taken(1),
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:B", "*", "add"+task("k:a", "0", "always", "C"), "*",
			"EXISTS result:k:a", "0",
			"remove name=k:a how=removed", "1 ''", "EXISTS result:k:a", "0",
		)},
		{"who waits for the result of a removed task learns that, also if it was behind another", steps(
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:A", "*",
			"remove name=k:a how=removed", "1 ''", "GET result:k:a", "removed:now:0:",
			"add"+task("k:a", "0", "always", "B"), "*", taken(1),
			"add k:a 0 always:0:0 '' 0:0:0:60000:0:0:C", "*",
			"remove name=k:a how=canceled", "1 w.1.9.1n", "GET result:k:a", "canceled:now:0:",
		)},
	})
}

// failedRecord returns the record of a failed task, with the name to go back to.
func failedRecord(back, expires, metadata, payload string) string {
	failure := fmt.Sprintf("failed:5:w:w.1.9.1:2:1:%d:3:%sno.%s", len(back), back, metadata)
	return fmt.Sprintf("1:7:%s:60000:0:%d:%s%s", expires, len(failure), failure, payload)
}

func TestRequeue(t *testing.T) {
	raw, named := failedRecord("", "0", "", "a"), failedRecord("k:b", "9", "HEAD", "B")
	play(t, []scenario{
		{"raw tasks go to the back of the list, others under their names, without counts", steps(
			"LPUSH queues x", "1", "SET result:k:b x", "OK", "ZADD idle 1 v 2 w", "2",
			"HSET failed.tasks r:<a>:1 "+raw+" k:b#2 "+named, "2", "ZADD failed.ready 1 r:<a>:1", "1",
			"ZADD failed.aside 2 k:b#2", "1",
			"ZADD failed.copies 0 r:<a>:1", "1", "HSET failed.runs k:b#2 :3:0:why", "1",
			"HSET failed.crashes <a> 1", "1",
			"listen", "",
			"requeue r:<a>:1 k:b#2 k:c#3 r:<a>:1", "requeued requeued gone gone",
			"heard", "wake:v 2 wake:w 2 enqueue 2",
			"LRANGE queues 0 -1", "a x", "HGET tasks k:b", "1:7:0:60000:0:4:HEADB", "ZRANGE ready 0 -1", "k:b",
			"EXISTS runs result:k:b failed.tasks failed.ready failed.aside failed.copies failed.runs", "0",
			"EXISTS failed.crashes", "0",
		)},
		{"a task stays failed while another has its name, or a handler of the failed queue runs it", steps(
			"HSET failed.tasks k:b#1 "+named+" k:b#2 "+named+" k:b#3 "+named, "3",
			"ZADD failed.ready 1 k:b#1 2 k:b#2 3 k:b#3", "3",
			"HSET failed.runs k:b#3 v.1.9.1n:0:0:", "1",
			"requeue k:b#1 k:b#2 k:b#3", "requeued taken running", "ZCARD failed.ready", "2",
		)},
		{"1 MiB for each call", steps(
			"HSET failed.tasks k:a#1 "+failedRecord("k:a", "0", "", "@600000"), "1",
			"HSET failed.tasks k:b#1 "+failedRecord("k:b", "0", "", "@600000"), "1",
			"requeue k:a#1 k:b#1", "requeued", "requeue k:b#1", "requeued", "HLEN tasks", "2",
			"HSET failed.tasks k:c#1 "+failedRecord("k:c", "0", "", "@1100000"), "1", "requeue k:c#1", "requeued",
		)},
	})
}

func TestResult(t *testing.T) {
	play(t, []scenario{
		{"how tasks ended, and whether they wait or run", steps(
			"SET result:k:done finished:5:0:yes", "OK",
			"add"+task("k:runs", "0", "always", "R"), "*", taken(1),
			"add k:runs 0 always:0:0 '' 0:0:0:2000:0:0:R k:waits 0 always:0:0 '' 0:0:0:1000:0:0:W", "*",
			"result k:done k:runs k:waits k:none", "finished:5:0:yes -1 -1 '' 2000 0 '' 1000 -1 '' -1 -1",
		)},
		{"1 MiB for each call", steps(
			"SET result:k:a @600000", "OK", "HSET tasks k:b @600000 k:c @9", "2",
			"result k:a k:b k:c", "@600000 -1 -1 '' 0 -1", "result k:c", "'' 0 -1",
			"HSET runs k:c w.1.9.1n:0:0:", "1", "HSET next k:c 0:always:0:0:@1048577", "1",
			"result k:c k:b", "'' 0 0",
		)},
	})
}

// unlisted are the verbs that only read, repair, or aren't about queues.
const unlisted = " result check repair register agree list"

// everyVerb fails for a verb that has neither a call here nor a test of its own elsewhere.
func everyVerb(t *testing.T, calls []string, elsewhere string) {
	t.Helper()
	known := strings.Fields(elsewhere)
	for _, call := range calls {
		known = append(known, strings.Fields(call)[0])
	}
	for _, v := range store.Verbs() {
		if !slices.Contains(known, v.Name) {
			t.Errorf("add a call of %s", v.Name)
		}
	}
}

// On a full Redis, ways in refuse the whole call, and ways out work.
func TestFullWays(t *testing.T) {
	redistest.OneServer(t, redistest.OwnServer)
	server, conn := redistest.StartAndDial(t)
	q := newQueue(t, server.URL())
	q.play(steps(
		inForce(t1+" "+t2), "add"+task("k:w", t1, "always", "W")+task("k:r", "0", "always", "R"), "*",
		taken(1), "enqueue a a b", "*",
		"add"+task("u:<a>", "0", "unique", "a"), "*", "HSET failed.tasks k:f#1 "+failedRecord("k:f", "0", "", "F"), "1",
		"ZADD failed.ready 1 k:f#1", "1", "ZADD recurring now+2000 k:a", "0",
	))
	redistest.Sure(conn.Do("CONFIG", "SET", "maxmemory", "1"))(t)
	all := steps(
		"enqueue nonce=n window=60000 c", "!OOM",
		"add"+once("k:x", "n", "X")+once("k:y", "m", "Y"), "!OOM",
		asserts("9", "1:bb", t3, "B"), "!OOM",
		"record started=1", "!OOM", "LLEN queues", "3", "HLEN tasks", "4", "EXISTS once:n once:m", "0", "HGET state place", "3",
		asserts("7", "1:aa", "", ""), "[[7 held '']] [] now",
		"cancel payload=a", "3 - 1 [w]", "mark payload=a token=1 worker=w", "1 []",
		"remove name=k:w how=removed", "1 ''", "remove name=k:r how=canceled", "0 w.1.9.1n",
		"remove name=k:a how=removed", "1 ''", "HGET tasks k:a", "now:"+t2+":0:0:1:0:A",
		"delete", "0", "HKEYS tasks", "k:r", "requeue k:f#1", "requeued",
	)
	q.play(all)
	var calls []string
	for _, s := range all {
		calls = append(calls, s[0])
	}
	everyVerb(t, calls, "start finish heartbeat pause join leave evict"+unlisted) // they're in TestFull
}

// If a key has the wrong type, a call fails, and nothing else changes.
func TestWrongTypes(t *testing.T) {
	waiting := "tasks next runs ready schedule risky aside copies crashes recurring recurrence "
	calls := map[string]string{
		"enqueue a":                    "queues",
		"add" + once("k:a", "n", "A"):  "tasks ready state",
		asserts("7", "1:aa", t1, "A"):  waiting + "state",
		"remove name=k:a how=canceled": waiting + "state",
		"delete first=1":               waiting + "queues",
		"requeue k:a#1": "queues tasks ready state failed.tasks failed.runs failed.ready failed.schedule" +
			" failed.risky failed.aside failed.copies failed.crashes",
		"pause who=me": "state", "record started=1": "state",
	}
	everyVerb(t, slices.Collect(maps.Keys(calls)), "start finish heartbeat join leave evict cancel mark"+unlisted)
	for call, kinds := range calls {
		for _, kind := range strings.Fields(kinds) {
			q := newQueue(t, redistest.URL())
			q.play(steps("SET "+kind+" x", "OK", call, "!WRONGTYPE", "KEYS *", q.key(kind)))
		}
	}
	for _, kind := range []string{"schedule", "next", "runs", "risky"} { // they matter if a task has the name
		q := newQueue(t, redistest.URL())
		q.play(steps("HSET tasks k:a A", "1", "SET "+kind+" x", "OK", "add"+once("k:a", "n", "B"), "!WRONGTYPE",
			"HVALS tasks", "A", "EXISTS ready state", "0"))
	}
}
