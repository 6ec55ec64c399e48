package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

func TestHeartbeat(t *testing.T) {
	play(t, []scenario{
		{"an idle member of an idle queue takes seven commands", steps(
			"join round=0", "1", "ZADD idle 1 w", "1",
			"heartbeat judge=1", "now now 0 0 0 0 [] 0", "HGET state look", "now", // when the lease ends
			"commands heartbeat judge=1", "7",
		)},
		{"it renews the lease, and tells what there is", steps(
			"join round=0", "1", "LPUSH queues a b c", "3", "start wanted=1", "*",
			"ZADD ready 1 k:a", "1", "ZADD risky 1 k:b", "1", "ZADD schedule 1 k:c now+60000 k:d", "2",
			"ZADD idle 1 v 2 w", "2", "ZADD workers CH 5 w", "1", "ZADD suspects 7 w", "1",
			"heartbeat", "5 now 1 5 1 2 [] 0",
			"heartbeat", "now now 1 5 1 2 [] 0",
			"EXISTS suspects", "0",
			"heartbeat worker=v", "!EVICTED",
		)},
		{"it names the attempts that must stop", steps(
			"join round=0", "1", "LPUSH queues a b c", "3", "start wanted=3", "*",
			"ZADD working:w XX -1 w.1.9.1 -3 w.1.9.3", "0",
			"heartbeat", "now now 3 0 -1 0 [w.1.9.3 w.1.9.1] 0",
		)},
		{"who may judge is asked to look when it's time, one worker at a time", steps(
			"join round=0", "1", "join worker=v round=0", "1", "join worker=x round=0", "1",
			"ZADD workers XX 5 x", "0", "HSET state look 5", "0",
			"heartbeat", "now now 0 0 -1 0 [] 0",
			"heartbeat judge=1", "now now 0 0 -1 0 [] 1", "HGET state look", "now",
			"heartbeat worker=v judge=1", "now now 0 0 -1 0 [] 0",
			"HSET state look now+99999", "0", // a clock was ahead
			"heartbeat judge=1", "now now 0 0 -1 0 [] 1",
		)},
		{"if all is well when it's time to look, nobody is asked", steps(
			"join round=0", "1", "join worker=v lease=5000 round=0", "1", "HSET state look 5", "0",
			"heartbeat judge=1", "now now 0 0 -1 0 [] 0", "HGET state look", "now",
			"HSET state look 5", "0", "ZADD suspects now+500 v", "1",
			"heartbeat judge=1", "now now 0 0 -1 0 [] 1",
			"HSET state look 5", "0", "ZREM suspects v", "1", "ZADD workers XX now+9000 v", "0", // a clock was ahead
			"heartbeat judge=1", "now now 0 0 -1 0 [] 1",
			"HSET state look 5", "0", "ZADD workers XX 9007199254740991 v", "0", // its lease never ends
			"heartbeat judge=1", "now now 0 0 -1 0 [] 0", "HGET state look", "now",
		)},
		{"a worker whose own lease has expired, or was set by a clock that was ahead, isn't asked", steps(
			"join round=0", "1", "ZADD workers 5 w", "0",
			"heartbeat judge=1", "5 now 0 0 -1 0 [] 0",
			"ZADD workers now+99999 w", "0", "HSET state look 5", "0",
			"heartbeat judge=1", "far now 0 0 -1 0 [] 0", "HGET state look", "5",
			"heartbeat judge=1", "now now 0 0 -1 0 [] 0", "HGET state look", "now",
		)},
		{"while tasks are being returned, all are asked", steps(
			"join round=0", "1", "HSET state look 5", "0", "ZADD leaving 0 v", "1",
			"heartbeat", "now now 0 -2 -1 0 [] 1", "heartbeat", "now now 0 -2 -1 0 [] 0",
		)},
		{"what was enqueued for later isn't in the history yet", steps(
			"join round=0", "1", "add"+task("k:a", "3000000000000", "always", "A"), "*", "heartbeat", "now now 0 0 -1 0 [] 4",
			"record started=0", "1", "heartbeat", "now now 0 0 -1 0 [] 0",
		)},
		{"a schedule that nobody asserts", steps(
			"join round=0", "1", "ZADD recurring now+60000 k:a", "1", "heartbeat", "now now 0 0 -1 0 [] 0",
			"ZADD recurring 5 k:b", "1", "heartbeat judge=1", "now now 0 0 -1 0 [] 2",
			"ZADD suspects 5 v", "1", "HSET state look 5", "0", "heartbeat judge=1", "now now 0 0 -1 0 [] 3",
		)},
		{"a longer lease is noted, and one that never ends isn't", steps(
			"join round=0", "1", "HGET state lease", "3000",
			"heartbeat lease=9000", "*", "HGET state lease", "9000",
			"heartbeat lease=90000 judge=1", "*", "HGET state look", "now", "HSET state lease 9000", "0",
			"heartbeat lease=0", "*", "ZSCORE workers w", "9007199254740991", "HGET state lease", "9000",
		)},
		{"keys of the wrong type don't end a lease", steps(
			"join round=0", "1", "SET queues x", "OK", "SET ready x", "OK", "SET schedule x", "OK", "SET idle x", "OK",
			"SET recurring x", "OK", "SET ages x", "OK", "SET working:w x", "OK", "SET leaving x", "OK",
			"ZADD workers 5 w", "0", "heartbeat", "5 now 0 -2 -1 0 [] 1",
			"DEL state", "1", "SET state x", "OK", "heartbeat", "now now 0 0 -1 0 [] 0",
		)},
	})
}

func TestAges(t *testing.T) {
	second := "now-1000"
	play(t, []scenario{
		{"a note a second, until those have left that were there by then", steps(
			"join round=0", "1", "LPUSH queues a b", "2", "heartbeat", "*", "heartbeat", "*",
			"ZRANGE ages 0 -1 WITHSCORES", "now 2",
			"DEL ages", "1", "ZADD ages 2 "+second, "1", "LPUSH queues c", "3", "heartbeat", "*",
			"ZRANGE ages 0 -1 WITHSCORES", "now 2 now 3",
			"start wanted=2", "*", "heartbeat", "*", "ZRANGE ages 0 -1 WITHSCORES", "now 3",
			"start round=2 wanted=1", "*", "heartbeat", "*", "EXISTS ages", "0",
		)},
		{"after another program has removed tasks, the first note that counts more is lowered", steps(
			"join round=0", "1", "LPUSH queues a b", "2", "ZADD ages 1 1000 5 2000 7 3000", "3",
			"heartbeat", "*", "ZRANGE ages 0 -1 WITHSCORES", "1000 1 2000 2",
		)},
		{"notes of other programs, and of a clock that was ahead, go", steps(
			"join round=0", "1", "LPUSH queues a", "1",
			"ZADD ages 1 nan", "1", "heartbeat", "*", "EXISTS ages", "0",
			"ZADD ages 1 now+99999", "1", "heartbeat", "*", "EXISTS ages", "0",
			"SET ages x", "OK", "heartbeat", "*", "EXISTS ages", "0",
		)},
		{"the older the first note, the less often there's another one", steps(
			"join round=0", "1", "LPUSH queues a b c", "3",
			"ZADD ages 1 now-600000 2 now-15000", "2", "heartbeat", "*", "ZCARD ages", "2", "DEL ages", "1",
			"ZADD ages 1 now-600000 2 now-25000", "2", "heartbeat", "*", "ZCARD ages", "3",
		)},
	})
}

func TestJoin(t *testing.T) {
	play(t, []scenario{
		{"a join of before somebody left is refused", steps(
			"join round=0 asked=0", "1", "join worker=v round=4", "1", "leave worker=v round=4", "0 0",
			"HMGET state token fence lease look", "1 1 3000 0",
			"join worker=v round=4 asked=0", "0", "join worker=v round=5 asked=1", "1", "HGET rounds v", "5",
		)},
		{"a late copy changes nothing", steps(
			"join round=6", "1", "start round=9 wanted=0 idle=0", "*", "ZADD workers XX 5 w", "0",
			"join round=9", "1", "HGET rounds w", "9", "ZSCORE workers w", "5",
			"join round=10", "1", "HGET rounds w", "10", "ZSCORE workers w", "now",
		)},
		{"who is leaving waits", steps("ZADD leaving 0 w", "1", "join", "-1", "EXISTS workers", "0")},
		{"the longest lease is kept, and the first to end is looked at", steps(
			"join worker=v lease=60000", "1", "HSET state look far", "0", "HSET state look now+50000", "0", "join", "1",
			"HMGET state lease look", "60000 now", "join worker=x lease=0", "1", "ZSCORE workers x", "9007199254740991",
			"HMGET state lease look", "60000 now",
		)},
	})
	for _, kind := range []string{"workers", "suspects", "rounds", "leaving", "state"} {
		newQueue(t, redistest.URL()).play(steps("SET "+kind+" x", "OK", "join", "!WRONGTYPE", "leave", "!WRONGTYPE",
			"evict", "!WRONGTYPE"))
	}
}

// Two workers hold a … f: raw tasks and, behind each other, named ones.
func held() [][2]string {
	return steps("join round=0", "1", "join worker=v round=0", "1", "LPUSH queues a b c d e", "5",
		"HSET tasks k:a A k:b B k:c C", "3", "ZADD ready 1 k:a 2 k:b 3 k:c", "3", "HSET state place 3", "1",
		"start wanted=2", "*", "start worker=v wanted=2", "*", "start round=2 wanted=1", "*",
		"start worker=v round=2 wanted=2", "*",
		"LRANGE queues 0 -1", "e", "ZRANGE working:w 0 -1", "w.1.9.1n w.1.9.2 w.2.9.1n", "ZCARD working:v", "4")
}

func TestReturn(t *testing.T) {
	play(t, []scenario{
		{"leave: tasks are back before others; nothing is left of the worker", steps(held(), "ZADD idle 1 w", "1",
			"leave round=2", "3 0",
			"LRANGE queues 0 -1", "e a", "ZRANGE ready 0 -1", "k:a k:c",
			"EXISTS working:w", "0", "EXISTS leaving", "0", "EXISTS process:w.1.9.2", "0", "EXISTS process:w.1.9.1n",
			"0", "HGET state taken", "3", "EXISTS idle", "0",
			"HEXISTS rounds w", "0",
			"HKEYS runs", "k:b", "EXISTS crashes", "0",
			"start worker=v round=3 wanted=9", "9 [[k:a A 0 0 ''] [k:c C 0 0 ''] a e] 12 2 0 -1 now",
		)},
		{"a late copy of leave ends no later membership", steps(held(),
			"leave round=1", "0 0", "ZSCORE workers w", "now", "leave round=2", "3 0", "join round=3 asked=8", "1",
			"leave round=2", "0 0", "ZSCORE workers w", "now",
		)},
		{"who has left leaves again: only the fence rises", steps(held(),
			"leave round=2", "3 0", "leave round=2", "0 0", "HMGET state token fence", "9 9", "ZCARD working:v", "4",
		)},
		{"who was evicted leaves: its crashes count", steps("join round=0", "1", "LPUSH queues a", "1", "start wanted=1", "*",
			"ZADD leaving 1 w", "1", "ZREM workers w", "1", "HDEL rounds w", "1",
			"leave round=1", "1 0", "HGETALL crashes", "<a> 1", "HGET state fence", "-",
		)},
		{"evict: also the crashes are counted, of raw tasks by their payloads", steps(held(),
			"finish w.1.9.2 2 d:<a> retry 0 ''", "[] 0", "start round=3 wanted=2", "*", // r:<a> runs, and e
			"ZADD idle 1 v", "1", "listen", "",
			"evict target=w", "[w 4] 4 -1",
			"HGETALL crashes", "<a> 1 <e> 1", "HGET runs k:a", ":0:1:", "HGET runs r:<a>:4", ":1:0:",
			"heard", "wake:v 4", "start round=4", "!EVICTED", "finish plain=1 w.1.9.2 2", "!EVICTED",
		)},
		{"tasks that must stop, or that were canceled since they started, are dropped", steps(held(),
			"ZADD working:w XX -1 w.1.9.1n", "0", "SET canceled:<a> 7", "OK", "SET canceled:<b> 3", "OK",
			"HSET crashes <a> 1", "1",
			"evict target=w", "[w 3] 1 -1",
			"ZRANGE ready 0 -1", "k:c", "LRANGE queues 0 -1", "e", "EXISTS crashes", "0", "HKEYS tasks", "k:b k:c",
			"EXISTS process:w.1.9.2", "0", "EXISTS process:w.1.9.1n", "0",
			"EXISTS working:w", "0",
		)},
		{"what can't be returned leaves working, and its list stays", steps(held(), "DEL process:w.1.9.2", "1",
			"SET process:w.1.9.2 x", "OK",
			"DEL process:w.2.9.1n", "1", "evict target=w", "[w 3] 1 -1", "ZRANGE ready 0 -1", "k:a", "EXISTS working:w",
			"0", "EXISTS leaving", "0",
			"SET queues x", "OK", "evict target=v", "[v 4] 1 -1", "LRANGE process:v.1.9.2 0 -1", "b", "EXISTS leaving",
			"0",
		)},
		{"keys of named tasks of the wrong type: only raw ones are returned", steps(held(), "DEL schedule", "0",
			"SET schedule x", "OK",
			"leave round=2", "1 0", "HGET runs k:a", "w.1.9.1n:0:0:", "LRANGE process:w.1.9.1n 0 -1", "k:a",
		)},
		{"a working set that can't be read", steps(held(), "DEL working:w", "1", "SET working:w x", "OK",
			"evict target=w", "[w 0] 0 -1",
			"EXISTS leaving", "0")},
		{"what was put behind takes its place, or is merged", steps(held(), "HSET next k:a 0:always:0:0:N", "1",
			"leave round=2", "3 0", "HGET tasks k:a", "N", "ZRANGE ready 0 -1", "k:a k:c", "EXISTS next", "0",
		)},
		{"with the last member go lease and ages, and a claim with its worker", steps(
			"join round=0", "1", "ZADD schedule now+60000 k:a", "1", "start wanted=1", "1 [] 0 0 0 … now",
			"ZADD ages 1 5", "1",
			"leave round=1", "0 0", "EXISTS ages", "0", "HMGET state lease claimed", "- -",
		)},
		{"a call returns 1 MiB; if the caller dies, others go on", steps("join round=0", "1", "join worker=v round=0",
			"1",
			"LPUSH queues a @1048576", "2", "start wanted=2", "*", "HSET state paused me look now+2000", "1",
			"ZADD idle 1 w 2 v", "2",
			"leave round=1", "1 1", "LLEN queues", "1", "ZRANGE idle 0 -1", "v",
			"heartbeat worker=v", "now now 0 -1 0 0 [] 1", "leave round=1", "1 0", "LLEN queues", "2", "ZADD ages 1 5",
			"1",
			"leave worker=v", "0 0", "EXISTS ages", "1",
		)},
		{"crashes of payloads above 16 MiB aren't counted: no handler gets them", steps("join round=0", "1",
			"LPUSH queues @16777217", "1", "start wanted=1", "1 [0] 1 0 0 -1 now",
			"evict target=w", "[w 1] 1 -1", "EXISTS crashes", "0", "LLEN queues", "1",
		)},
		{"nobody who is idle is woken before all are back", steps(held(), "listen", "", "ZADD idle 1 x", "1",
			"ZADD leaving 0 y 1 v", "2",
			"ZADD working:y 99 y.1.9.1", "1", "leave round=2", "7 0", "heard", "wake:x 8",
		)},
	})
}

// If Redis refuses to move a raw task, and not for the type of a key, then the tasks that started after it are back, and
// it stays with its worker until the call is repeated.
func TestReturnIsRefused(t *testing.T) {
	for call, of := range map[string]struct{ answer, repeat, last string }{
		"leave round=2": {"!ERR", "leave round=2", "2 0"}, "evict target=w": {"[w 3] 1 0", "evict", "[] 2 -1"},
	} {
		q := newQueue(t, redistest.URL())
		q.play(held())
		q.edit = func(source string) string { return strings.ReplaceAll(source, "'LMOVE'", "'FORBIDDEN'") }
		q.play(steps(call, of.answer, "LRANGE queues 0 -1", "e", "ZRANGE ready 0 -1", "k:c", "ZRANGE working:w 0 -1",
			"w.1.9.1n w.1.9.2", "EXISTS process:w.2.9.1n", "0", "LRANGE process:w.1.9.2 0 -1", "a", "ZRANGE leaving 0 -1", "w",
			"EXISTS crashes", "0", "HGET state look", "now", call, "!ERR"))
		q.edit = nil
		q.play(steps(of.repeat, of.last, "LRANGE queues 0 -1", "e a", "ZRANGE ready 0 -1", "k:a k:c", "EXISTS leaving", "0"))
	}
}

// Tasks of several workers come back in the order of their starts, over several pages and callers.
func TestReturnPages(t *testing.T) {
	q := newQueue(t, redistest.URL())
	var all []string
	for i := range 150 {
		all = append(all, fmt.Sprintf("%03d", i))
		q.do(fmt.Sprintf("HSET tasks k:%03d A", i))
		q.do(fmt.Sprintf("ZADD ready %d k:%03d", i+1, i))
	}
	q.play(steps("LPUSH queues "+strings.Join(all, " "), "150", "join worker=x round=0", "1"))
	for w := range 3 {
		q.play(steps(fmt.Sprintf("join worker=w%d round=0", w), "1"))
	}
	for i := 1; q.do("EXISTS queues ready") != "0" && i < 100; i++ {
		q.do(fmt.Sprintf("start worker=w%d round=%d wanted=7", i%3, i))
	}
	q.play(steps("ZADD workers XX 1 w0 2 w1 3 w2", "0",
		"evict", "[] 0 -1", // it may not judge
		"ZADD suspects XX 1 w0 1 w1 1 w2", "0",
		"listen", "", "ZADD idle 1 z", "1",
		"evict judge=now+500", "[w0 … w1 … w2 …] 100 0", "heard", "",
		"start worker=x", "… [] … 0 -2 -1 now",
		"heartbeat worker=x", "now now 0 -2 -1 0 [] 1", // the caller died
		"evict", "[] 100 0", "heartbeat worker=x", "now now 0 -2 -1 0 [] 1",
		"evict", "[] 100 -1", "heard", "wake:z 300", "heartbeat worker=x", "now now 0 300 -1 0 [] 0"))
	q.play(steps("LRANGE queues 0 -1", reversed(all), "ZRANGE ready 0 -1",
		"k:"+strings.Join(all, " k:"), "HLEN crashes", "150"))
}

func reversed(all []string) string {
	text := ""
	for _, one := range all {
		text = one + " " + text
	}
	return strings.TrimSpace(text)
}

func TestEvict(t *testing.T) {
	members := steps("join round=0", "1", "join worker=v round=0", "1", "LPUSH queues a", "1",
		"start worker=v wanted=1", "*")
	play(t, []scenario{
		{"a worker is evicted after two looks", steps(members, "ZADD workers XX 1 v", "0",
			"evict judge=now+500", "[] 0 1000", "ZRANGE suspects 0 -1 WITHSCORES", "v now",
			"evict judge=now+500", "[] 0 …", "ZADD suspects XX 5 v", "0",
			"evict judge=now+500", "[v 1] 1 …", "LRANGE queues 0 -1", "a", "ZRANGE workers 0 -1", "w",
			"EXISTS suspects", "0",
			"HGET state look", "now",
		)},
		{"who renews its lease between the looks stays, also without having been forgotten",
			steps(members, "ZADD workers XX 1 v", "0",
				"evict judge=now+500", "[] 0 1000", "heartbeat worker=v", "1 now 1 0 -1 0 [] 0", "EXISTS suspects", "0",
				"ZADD suspects 5 v 5 x", "2", "evict judge=now+500", "[] 0 …", "EXISTS suspects", "0", "ZCARD workers",
				"2",
			)},
		{"nobody is evicted by old knowledge, or by who may not judge", steps(members, "ZADD workers XX 1 v", "0",
			"ZADD suspects 5 v", "1",
			"evict judge=now-100", "[] 0 -1", "evict judge=now+2500", "[] 0 -1", "evict", "[] 0 -1", "ZCARD workers",
			"2",
			"heartbeat judge=1", "now now 0 0 -1 0 [] 1", // another one is asked
		)},
		{"the answer is when the first lease or suspicion ends", steps(members, "ZADD workers XX now+2000 v", "0",
			"evict judge=now+500", "[] 0 …", "ZADD workers XX now+200 v", "0", "evict judge=now+500", "[] 0 …",
			"HGET state look", "now",
			"join worker=x lease=60000", "1", "ZADD workers XX now+50000 w now+50000 v", "0",
			"evict judge=now+500", "[] 0 …", "HGET state look", "far",
		)},
		{"what a clock that was ahead has written", steps(members, "ZADD workers XX now+9000000 v", "0",
			"ZADD suspects now+9000000 x", "1",
			"HSET state look now+9000000", "0",
			"heartbeat judge=1", "now now 0 0 -1 0 [] 1",
			"evict judge=now+500", "[] 0 …", "ZSCORE workers v", "now", "EXISTS suspects", "0", "HGET state look",
			"now",
		)},
		{"leases that never end are never far", steps(members, "join worker=x lease=0", "1",
			"evict judge=now+500", "[] 0 …", "ZSCORE workers x", "9007199254740991", "EXISTS suspects", "0",
		)},
		{"a dead member whose lease was set by a clock that was ahead is evicted",
			steps(members, "ZADD workers XX now+9000000 v", "0",
				"evict judge=now+500", "*", "ZADD workers XX 1 v", "0", "evict judge=now+500", "*",
				"ZADD suspects XX 5 v",
				"0",
				"evict judge=now+500", "[v 1] 1 …",
			)},
		{"a named worker is evicted at once; one that's unknown isn't", steps(members,
			"evict target=v", "[v 1] 1 -1", "evict target=v", "[] 0 -1", "HMGET state token fence", "2 2",
		)},
	})
}

// Many die at once: 1,000 suspects and 200 evictions in a call, and tasks come back when all are fenced.
func TestEvictMany(t *testing.T) {
	q := newQueue(t, redistest.URL())
	for i := range 1300 {
		q.do(fmt.Sprintf("ZADD workers %d v%d", i, i))
	}
	q.play(steps("join round=0", "1", "LPUSH queues a", "1", "ZADD working:v0 1 v0.1.9.1", "1",
		"LPUSH process:v0.1.9.1 b", "1",
		"evict judge=now+500", "[] 0 0", "ZCARD suspects", "1000",
		"evict judge=now+500", "[] 0 …", "ZCARD suspects", "1300"))
	for i := range 1300 {
		q.do(fmt.Sprintf("ZADD suspects XX 5 v%d", i))
	}
	for i := range 6 {
		if got := q.do("evict judge=now+500"); !strings.HasSuffix(got, "] 0 0") {
			t.Fatalf("call %d: %s", i, got)
		}
	}
	q.play(steps("ZCARD leaving", "1200", "evict judge=now+500", "*", "evict judge=now+500", "*", "evict judge=now+500",
		"[] 0 …",
		"LRANGE queues 0 -1", "a b", "EXISTS leaving", "0", "ZCARD workers", "1"))
}
