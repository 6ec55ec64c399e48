package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// taken returns the steps in which worker w joins and starts what waits.
func taken(wanted int) [][2]string {
	return [][2]string{{"join round=0", "1"}, {fmt.Sprint("start solo=1 wanted=", wanted), "*"}}
}

// steps returns steps given as lists, or as what is done and what that answers.
func steps(all ...any) (flat [][2]string) {
	for i := 0; i < len(all); i++ {
		switch one := all[i].(type) {
		case [][2]string:
			flat = append(flat, one...)
		case string:
			i++
			flat = append(flat, [2]string{one, all[i].(string)})
		}
	}
	return flat
}

func TestCancel(t *testing.T) {
	play(t, []scenario{
		{"what waits goes: copies on the list, those outside of it, the unique task", steps(
			"ZADD workers 1 w", "1", "ZADD leaving 1 v", "1",
			"LPUSH queues a b a a", "4",
			"HSET tasks r:<a>:1 0:0:0:0:0:0:a r:<b>:2 0:0:0:0:0:0:b u:<a> 1:0:0:60000:0:0:a k:a 1:0:0:0:0:0:a", "4",
			"ZADD copies 0 r:<a>:1 0 r:<b>:2", "2", "ZADD risky 1 r:<a>:1", "1", "ZADD schedule 1 r:<b>:2", "1",
			"ZADD ready 3 u:<a> 4 k:a", "2",
			"HSET runs r:<a>:1 :1:0:why", "1",
			"HSET crashes <a> 2 <b> 1", "2",
			"HSET state token 7 taken 2", "2",
			"cancel payload=a", "5 - 7 [w v]",
			"LRANGE queues 0 -1", "b",
			"HGET state taken", "5",
			"HKEYS tasks", "r:<b>:2 k:a",
			"ZRANGE copies 0 -1", "r:<b>:2", "ZRANGE ready 0 -1", "k:a", "EXISTS risky runs", "0",
			"HKEYS crashes", "<b>",
			"HSET crashes <c> 1", "1", "cancel payload=c", "0 - 7 [w v]", "HKEYS crashes", "<b>",
			"GET canceled:<a>", "7",
			"GET result:u:<a>", "canceled:now:0:",
		)},
		{"a large payload is announced by its digest", steps(
			"listen", "",
			"cancel payload=@2000", "0 - 0 []",
			"heard", "cancel sha1:<@2000>:2000",
			"cancel payload=sha1:ab:1", "0 - 0 []",
			"heard", "cancel sha1:<sha1:ab:1>:9",
		)},
		{"what runs goes on until it is stopped, and then is dropped by whatever end but done", steps(
			"LPUSH queues a a a a a", "5", taken(5),
			"cancel payload=a", "0 - 5 [w]",
			"LPUSH queues a", "1", "start round=2 wanted=1", "*", "listen", "",
			"mark payload=b token=5 worker=w", "!LOST", "mark payload=a token=0 worker=w", "0 []", "heard", "",
			"mark payload=a token=5 worker=w", "5 [w.1.9.1 w.1.9.2 w.1.9.3 w.1.9.4 w.1.9.5]", "heard", "wake:w 0",
			"finish plain=0 w.1.9.1 1 d:<a> retry 9 '' w.1.9.2 2 d:<a> stop 0 '' w.1.9.3 3 d:<a> snooze 9 ''"+
				" w.1.9.4 4 d:<a> fail 0 failed:x"+
				" w.1.9.5 5 d:<a> done 0 '' w.2.9.1 6 d:<a> stop 0 ''", "*",
			"LRANGE queues 0 -1", "a",
			"EXISTS tasks failed.tasks working:w", "0",
		)},
	})
}

// A retry, a stop and a return of what a cancel covers: whichever comes first, the task doesn't run again.
func TestCancelBesideEnds(t *testing.T) {
	for _, end := range []string{"retry 9 why", "snooze 9 ''", "stop 0 ''", "fail 0 failed:x"} {
		failed := end[:4] == "fail"
		play(t, []scenario{
			{"a name is canceled before its attempt ends: " + end, steps(
				"add"+task("k:a", "0", "always", "A"), "*", taken(1),
				"add"+task("k:a", "0", "always", "B"), "*",
				"listen", "",
				"remove name=k:a how=canceled", "1 w.1.9.1n",
				"heard", "wake:w 0",
				"remove name=k:a how=canceled", "0 w.1.9.1n",
				"ZSCORE working:w w.1.9.1n", "-1",
				"finish plain=0 w.1.9.1n 1 k:a "+end, "[1 canceled] 0",
				"EXISTS tasks runs next ready schedule working:w failed.tasks", "0",
			)},
			{"a name is canceled after its attempt has ended: " + end, steps(
				"add"+task("k:a", "0", "always", "A"), "*", taken(1),
				"finish plain=0 w.1.9.1n 1 k:a "+end, "*",
				"remove name=k:a how=canceled", map[bool]string{true: "0 ''", false: "1 ''"}[failed],
				"EXISTS tasks runs next ready schedule working:w", "0",
			)},
			{"a unique task is canceled by its payload before its attempt ends: " + end, steps(
				"add"+task("u:<a>", "0", "unique", "a"), "*", taken(1),
				"cancel payload=a", "0 - 1 [w]",
				"finish plain=0 w.1.9.1n 1 u:<a> "+end, "[1 canceled] 0",
				"mark payload=a token=1 worker=w", "1 []",
				"EXISTS tasks runs ready schedule working:w failed.tasks", "0",
			)},
			{"a retried copy is canceled before its attempt ends: " + end, steps(
				"LPUSH queues a", "1", taken(1),
				"finish plain=0 w.1.9.1 1 d:<a> retry 0 why", "*", "start round=2 wanted=1", "*",
				"cancel payload=a", "0 - 2 [w]",
				"mark payload=a token=2 worker=w", "2 [w.2.9.1n]",
				"finish plain=0 w.2.9.1n 2 r:<a>:1 "+end, "[1 canceled] 0",
				"EXISTS tasks runs copies ready schedule working:w failed.tasks", "0",
			)},
		})
	}
}

func TestCancelBesideReturn(t *testing.T) {
	play(t, []scenario{
		{"a worker that is evicted, or leaves, returns nothing that was canceled", steps(
			"LPUSH queues a b", "2", "add"+task("k:a", "0", "always", "A")+task("u:<a>", "0", "unique", "a"), "*",
			taken(4),
			"cancel payload=a", "0 - 4 [w]", "remove name=k:a how=canceled", "0 w.1.9.1n",
			"evict target=w", "*",
			"LRANGE queues 0 -1", "b", "EXISTS tasks runs ready leaving working:w", "0",
		)},
		{"a cancel finds the worker whose tasks are being returned", steps(
			"LPUSH queues a", "1", taken(1), "ZREM workers w", "1", "ZADD leaving 0 w", "1",
			"cancel payload=a", "0 - 1 [w]", "mark payload=a token=1 worker=w", "1 [w.1.9.1]",
		)},
	})
}

func TestCancelPages(t *testing.T) {
	large := "@1048576"
	play(t, []scenario{
		{"10,000 copies of a small payload, the oldest first", steps(
			"enqueue"+strings.Repeat(" a", 5000), "*", "enqueue"+strings.Repeat(" a", 5000), "*", "enqueue b a", "*",
			"cancel payload=a", "10000 '' 0 []", "LRANGE queues 0 -1", "a b", "cancel payload=a", "1 - 0 []",
		)},
		{"4 MiB of a large one; a copy that becomes a retry between two pages goes with the next", steps(
			"enqueue"+strings.Repeat(" "+large, 5), "*",
			"cancel payload="+large, "4 '' 0 []", taken(1),
			"finish plain=0 w.1.9.1 1 d:<"+large+"> retry 60000 why", "[] 0",
			"cancel payload="+large, "1 r:<"+large+">:1 1 []",
			"cancel after=r:<"+large+">:1 payload="+large, "0 - 1 [w]",
			"EXISTS queues tasks copies schedule runs", "0",
		)},
		{"one that becomes risky", steps(
			"enqueue"+strings.Repeat(" "+large, 5), "*",
			"cancel payload="+large, "4 '' 0 []",
			"HSET crashes <"+large+"> 2", "1", "join round=0", "1", "start wanted=1", "*", "ZCARD risky", "1",
			"cancel payload="+large, "1 r:<"+large+">:1 0 []",
			"EXISTS queues tasks copies risky crashes", "0",
		)},
		{"one that runs is stopped, and one that starts after the last page runs on", steps(
			"enqueue"+strings.Repeat(" "+large, 6), "*",
			"cancel payload="+large, "4 '' 0 []", taken(1),
			"cancel payload="+large, "1 - 1 [w]",
			"enqueue "+large, "*", "start round=2 wanted=1", "*",
			"mark worker=w token=1 payload="+large, "1 [w.1.9.1]",
			"ZRANGE working:w 0 -1 WITHSCORES", "w.1.9.1 -1 w.2.9.1 2",
		)},
	})

	t.Run("100 retries for each call, past those that run", func(t *testing.T) {
		q := newQueue(t, redistest.URL())
		for i := 100; i < 350; i++ {
			name := fmt.Sprint("r:<a>:", i)
			q.do("HSET tasks " + name + " 0:0:0:0:0:0:a")
			q.do("ZADD copies 0 " + name)
			q.do("ZADD ready " + strconv.Itoa(i) + " " + name)
		}
		q.play(taken(120))
		q.play(steps(
			"cancel payload=a", "0 r:<a>:199 120 []",
			"cancel payload=a after=r:<a>:199", "80 r:<a>:299 120 []",
			"cancel payload=a after=r:<a>:299", "50 - 120 [w]",
			"HLEN tasks", "120", "ZCARD ready", "0",
		))
	})

	t.Run("a worker's attempts, 500 for each call, also those that were marked before", func(t *testing.T) {
		q := newQueue(t, redistest.URL())
		for range 3 {
			q.do("enqueue" + strings.Repeat(" a b a", 85))
		}
		q.do("join round=0")
		for round := range 4 {
			q.do(fmt.Sprint("start wanted=512 round=", round+1))
		}
		q.play(steps("ZCARD working:w", "765", "cancel payload=a", "0 - 765 [w]"))
		for round := range 3 {
			if round == 2 {
				q.play(steps("enqueue a", "*", "start wanted=1 round=9", "*", "cancel payload=a", "0 - 766 [w]"))
			}
			last, want := 765+round/2, 510+round/2
			first, rest, _ := strings.Cut(q.do(fmt.Sprint("mark payload=a worker=w token=", last)), " ")
			found := strings.Fields(rest)
			next := fmt.Sprint("mark payload=a worker=w token=", last, " after=", first)
			after, more, _ := strings.Cut(q.do(next), " ")
			found = append(found, strings.Fields(more)...)
			if first == fmt.Sprint(last) || after != fmt.Sprint(last) || len(found) != want {
				t.Fatalf("the pages end at %s and %s, with %d attempts", first, after, len(found))
			}
		}
		q.play(steps("ZCOUNT working:w -inf 0", "511"))
	})
}

func TestCancelRefuses(t *testing.T) {
	play(t, []scenario{
		{"Redis has lost the cancel: the caller learns it", steps(
			"LPUSH queues a", "1", taken(1), "cancel payload=a", "0 - 1 [w]", "DEL canceled:<a>", "1",
			"mark payload=a token=1 worker=w", "!LOST", "ZSCORE working:w w.1.9.1", "1",
		)},
		{"attempts that can't be read aren't marked", steps(
			"cancel payload=a", "0 - 0 []", "SET working:w x", "OK", "mark payload=a token=1 worker=w", "!WRONGTYPE",
		)},
		{"an attempt that Redis has lost isn't found", steps(
			"add"+task("k:a", "0", "always", "A"), "*", taken(1), "DEL working:w", "1",
			"remove name=k:a how=canceled", "0 ''",
		)},
	})
	kinds := "queues tasks next runs ready schedule risky aside copies crashes workers leaving"
	for _, kind := range strings.Fields(kinds) {
		play(t, []scenario{{"nothing changes if this key has the wrong type: " + kind, steps(
			"LPUSH queues a", "1", "HSET tasks u:<a> 1:0:0:0:0:0:a", "1", "ZADD ready 1 u:<a>", "1",
			"DEL "+kind, "*", "SET "+kind+" x", "OK",
			"cancel payload=a", "!WRONGTYPE",
			"EXISTS canceled:<a>", "0",
		)}})
	}
}

func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(" %d v%d", i, i)
	}
	return all
}

func TestDelete(t *testing.T) {
	play(t, []scenario{
		{"what waits goes; what runs and what failed stays", steps(
			"add"+task("k:r", "0", "always", "R"), "*", "LPUSH queues a b", "2",
			taken(1), "LRANGE process:w.1.9.1n 0 -1", "k:r",
			"add"+task("k:r", "0", "always", "R2")+task("k:t", t1, "always", "T"), "*",
			"add k:w 0 always:0:0 '' 0:0:0:60000:0:0:W", "*",
			"HSET crashes <a> 1", "1", "ZADD ages 1 1", "1", "HSET failed.tasks k:f#1 F", "1",
			"listen", "",
			"delete first=1", "0",
			"heard", "delete end:<k:w>",
			"HKEYS tasks", "k:r", "EXISTS queues next ready schedule crashes ages", "0", "EXISTS failed.tasks", "1",
			"finish plain=0 w.1.9.1n 1 k:r done 0 ''", "*", "EXISTS tasks runs", "0",
		)},
		{"50 named tasks for each call, the list only in the first", steps(
			"ZADD schedule"+strings.Join(numbers(70), ""), "70",
			"LPUSH queues a", "1",
			"ZADD risky 1 r:<a>:1", "1", "HSET crashes <a> 1", "1",
			"delete", "21", "delete", "0", "LLEN queues", "1", "EXISTS crashes", "0",
		)},
		{"1 MiB for each call, and what waits behind others", steps(
			"HSET tasks k:a @600000 k:b @600000 k:c @600000", "3", "ZADD ready 1 k:a 2 k:b 3 k:c", "3",
			"HSET next k:d 0:always:0:0:@600000 k:e 0:always:0:0:@600000 k:f 0:always:0:0:@600000", "3",
			"delete", "4", "delete", "2", "delete", "0", "EXISTS tasks ready next", "0",
		)},
	})
}
