package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

const t1, t2, t3 = "2000000000000", "2000000060000", "2000000120000" // far from now

// asserts returns the arguments of recur for the schedule of k:a: its since, its prints, its times, and its payload if
// it sends the times.
func asserts(since, prints, times, payload string) string {
	record := "''"
	if payload != "" {
		record = "0:0:0:0:0:0:" + payload
	}
	words := []string{"k:a", since, prints, times, record}
	for i, w := range words {
		if w = strings.ReplaceAll(w, " ", "~"); w == "" {
			w = "''"
		}
		words[i] = w
	}
	return "recur period=10000 " + strings.Join(words, " ")
}

// inForce is a step after which a schedule with the print 1:aa and the payload A, which has passed at 5, is in force.
func inForce(times string) [][2]string {
	return steps(
		"HSET recurrence passed:k:a 5", "1",
		asserts("7", "1:aa", times, "A"), "[[7 held '']] [] now",
	)
}

// begun are the steps in which the occurrence of t1 starts early.
func begun() [][2]string {
	return steps(inForce(t1+" "+t2), "ZADD schedule 1 k:a", "0", taken(1), "HGET recurrence passed:k:a", t1)
}

func TestRecur(t *testing.T) {
	play(t, []scenario{
		{"Redis asks for the times of a schedule that it doesn't know, and plans the first", steps(
			asserts("0", "", "", ""), "[[now wanted now]] [] now",
			"ZADD idle 1 v", "1", "listen", "",
			asserts("7", "1:aa", t1+" "+t2, "A"), "[[7 held '']] [] now", "heard", "wake:v 1",
			"ZRANGE schedule 0 -1 WITHSCORES", "k:a "+t1, "HGET tasks k:a", "now:"+t1+":0:0:1:0:A",
			"HGET recurrence k:a", t1+" "+t2+"|0:0:0:0:0:0:A", "ZSCORE recurring k:a", "now",
		)},
		{"another peer compares its print after the same instant, and learns since when it has it", steps(
			inForce(t1),
			asserts("0", "9:ff", "", ""), "[[0 compare 1]] [] now",
			asserts("0", "9:ff 1:aa", "", ""), "[[7 held '']] [] now",
			asserts("7", "1:aa", "", ""), "[[7 held '']] [] now",
			asserts("-1", "1:aa", "", ""), "[[7 held '']] [] now",
			asserts(t1, "1:bb", "", ""), "[[now wanted now]] [] now", // a since that lies far ahead is none
		)},
		{"times that lie thousands of years ahead", steps(
			inForce("300000000000000"), "ZADD recurring 5 k:a", "0",
			asserts("7", "1:aa", "", ""), "[[7 held '']] [] now",
		)},
		{"its times run out: those after the last one that has come are wanted; the print moves on", steps(
			inForce("1000 "+t1),
			"HSET recurrence prints:k:a 0~1:aa:7", "0", "ZADD recurring 5 k:a", "0",
			asserts("7", "1:aa", "", ""), "[[7 more 1000]] [] now", "ZSCORE recurring k:a", "now",
			asserts("7", "1:aa 1000:ab", t1+" "+t2, "A"), "[[7 held '']] [] now",
			"HGET recurrence k:a", "1000 "+t1+" "+t2+"|0:0:0:0:0:0:A",
			asserts("7", "1:aa", "", ""), "[[7 compare 1000]] [] now",
			asserts("7", "1:aa 1000:ab", "", ""), "[[7 held '']] [] now",
		)},
		{"all times have come: those after now are wanted", steps(
			inForce("1000 2000"),
			asserts("7", "1:aa", "", ""), "[[7 more now]] [] now",
		)},
		{"the newer one of two schedules is in force; a peer of the older one that restarts doesn't change that", steps(
			inForce(t1),
			asserts("0", "1:bb", "", ""), "[[now wanted now]] [] now",
			asserts("9", "1:bb 4:bc", t2, "B"), "[[9 held '']] [] now",
			"HGET tasks k:a", "now:"+t2+":0:0:1:0:B", "ZSCORE schedule k:a", t2, "HGET recurrence passed:k:a", "now",
			asserts("7", "1:aa", "", ""), "[[7 compare 4]] [] now",
			asserts("7", "1:aa 4:ab", "", ""), "[[7 older '']] [] now",
			asserts("0", "", "", ""), "[[0 compare 4 1]] [] now",
			asserts("0", "4:ab 1:aa", "", ""), "[[7 older '']] [] now",
		)},
		{"once no peer asserts the newer one, the older one is in force again", steps(
			inForce(t1), asserts("9", "1:bb 4:bc", t2, "B"), "[[9 held '']] [] now",
			"ZADD recurring 5 k:a", "0",
			asserts("7", "1:aa 4:ab", "", ""), "[[7 wanted now]] [] now",
			asserts("7", "1:aa 4:ab", t1, "A"), "[[7 held '']] [] now",
			"HGET tasks k:a", "now:"+t1+":0:0:1:0:A", "HGET recurrence prints:k:a", "far 4:ab:7 4:bc:9",
			asserts("9", "1:bb 4:bc", "", ""), "[[9 wanted now]] [] now", // it's back, and newer
		)},
		{"who changes its schedule has the newest one, also if it changes it back", steps(
			inForce(t1), asserts("9", "1:bb 4:bc", t2, "B"), "[[9 held '']] [] now",
			"HSET recurrence prints:k:a "+t1+"~4:bc:now+5000~1:aa:7", "0",
			asserts("-1", "4:ab 1:aa", "", ""), "[[now wanted now]] [] now",
			asserts("-1", "1:aa 4:ab", t1, "A"), "[[now held '']] [] now",
			asserts("9", "4:bc 1:aa", "", ""), "[[now older '']] [] now",
		)},
		{"a due occurrence of a replaced schedule still starts", steps(
			inForce(t1+" "+t2),
			"HSET tasks k:a 1:1000:0:0:1:0:A", "0", "ZADD schedule 1000 k:a", "0",
			asserts("9", "1:bb 4:bc", t3, "B"), "[[9 held '']] [] now",
			"HGET tasks k:a", "1:1000:0:0:1:0:A", "HGET recurrence passed:k:a", "5",
			taken(1), "finish plain=0 w.1.9.1n 1 k:a done 0 ''", "[] 0",
			"HGET tasks k:a", "now:"+t3+":0:0:1:0:B",
		)},
		{"a later one was removed: it doesn't come back with more times", steps(
			inForce(t1+" "+t2), "remove name=k:a how=removed", "1 ''",
			"HSET recurrence prints:k:a 0~1:aa:7", "0", asserts("7", "1:aa", "", ""), "[[7 more 1]] [] now",
			asserts("7", "1:aa 1:aa", t1+" "+t2+" "+t3, "A"), "[[7 held '']] [] now",
			"HGET tasks k:a", "now:"+t2+":0:0:1:0:A", "HGET recurrence passed:k:a", t1,
			"ZADD recurring now k:a", "0", asserts("7", "1:aa", "", ""), "[[7 held '']] [] now",
			"HGET recurrence passed:k:a", t1,
		)},
		{"if the clock was ahead, all is made again", steps(
			inForce(t3), "ZADD recurring "+t1+" k:a", "0",
			asserts("7", "1:aa", "", ""), "[[7 wanted 5]] [] now",
			asserts("7", "9:aa", "1000 "+t2, "A"), "[[7 held '']] [] now",
			"HGET tasks k:a", "now:1000:0:0:1:0:A", "ZCARD ready", "1", "EXISTS schedule", "0",
			"HSET recurrence passed:k:a "+t3, "0",
			asserts("7", "9:aa", "", ""), "[[7 wanted now]] [] now",
			asserts("7", "9:aa", t1, "A"), "[[7 held '']] [] now",
			"HGET recurrence passed:k:a", "now",
		)},
		{"of several missed times, one occurs", steps(
			asserts("0", "", "", ""), "*", "HSET recurrence passed:k:a 1000", "1",
			asserts("7", "1:aa", "1000 2000 3000 "+t1, "A"), "*",
			"HGET recurrence k:a", "2000 "+t1+"|0:0:0:0:0:0:A", "ZCARD ready", "1",
		)},
		{"a key of the wrong type", steps("SET recurrence x", "OK", asserts("0", "", "", ""), "!WRONGTYPE")},
	})
}

func TestOccurrences(t *testing.T) {
	end := func(id, token, verb string) string { return "finish plain=0 " + id + " " + token + " k:a " + verb }
	planned := func(at string) [][2]string {
		return steps("HGET tasks k:a", "now:"+at+":0:0:1:0:A", "ZSCORE schedule k:a", at)
	}
	nothing := steps("HEXISTS tasks k:a", "0", "EXISTS schedule ready", "0")
	play(t, []scenario{
		{"the next one is planned when one ends, not before", steps(
			begun(), "EXISTS schedule ready", "0", asserts("9", "1:bb", t3, "B"), "*", "EXISTS schedule ready", "0",
			end("w.1.9.1n", "1", "done 0 ''"), "[] 0", "HGET tasks k:a", "now:"+t3+":0:0:1:0:B",
		)},
		{"one is removed: the next one is planned", steps(
			inForce(t1+" "+t2), "remove name=k:a how=removed", "1 ''", planned(t2), "HGET recurrence passed:k:a", t1,
			"remove name=k:a how=removed", "1 ''", nothing, "remove name=k:a how=removed", "0 ''",
		)},
		{"one is removed whose schedule has ended: nothing is noted", steps(
			"HSET tasks k:a 1:"+t1+":0:0:1:0:A", "1", "ZADD schedule "+t1+" k:a", "1",
			"remove name=k:a how=removed", "1 ''", "EXISTS recurrence", "0",
		)},
		{"one is canceled while it waits", steps(
			inForce(t1+" "+t2), "ZADD idle 1 v", "1", "listen", "",
			"remove name=k:a how=canceled", "1 ''", planned(t2), "heard", "wake:v 1",
		)},
		{"one is canceled while it runs: the next one is planned when it ends", steps(
			begun(), "remove name=k:a how=canceled", "0 w.1.9.1n", nothing[1:],
			end("w.1.9.1n", "1", "retry 9 why"), "[1 canceled] 0", planned(t2),
		)},
		{"the queue is deleted: the next one is planned by recur", steps(
			inForce(t1+" "+t2), "delete first=1", "0", nothing, "HGET recurrence passed:k:a", t1,
			"ZADD recurring now+1000 k:a", "0", asserts("7", "1:aa", "", ""), "*", planned(t2),
		)},
		{"one fails: the next one is planned, and the failed one can be requeued at any time", steps(
			begun(), end("w.1.9.1n", "1", "fail 0 failed:why"), "[] 0", planned(t2),
			"HKEYS failed.tasks", "k:a#1",
			"requeue k:a#1", "requeued",
			"HGET tasks k:a@"+t1, "now:"+t1+":0:0:0:0:A", "ZRANGE ready 0 -1", "k:a@"+t1,
		)},
		{"the retry of one starts, even if nobody asserts its schedule meanwhile", steps(
			begun(), end("w.1.9.1n", "1", "retry 0 why"), "[] 0", "ZADD recurring 5 k:a", "0",
			"start round=2 wanted=1", "*", "LRANGE process:w.2.9.1n 0 -1", "k:a",
		)},
		{"one that nobody asserts doesn't start, and is planned again once somebody does", steps(
			inForce("1000 "+t1), "HGET tasks k:a", "now:1000:0:0:1:0:A",
			"ZREM ready k:a", "1", "ZADD schedule 1000 k:a", "1", "ZADD recurring 5 k:a", "0", taken(1), nothing,
			"HGET recurrence passed:k:a", "5",
			asserts("7", "1:aa", "", ""), "[[7 held '']] [] now",
			"HGET tasks k:a", "now:1000:0:0:1:0:A", "ZCARD ready", "1",
		)},
		{"nothing is left of what it was after a failure, if its time hasn't passed since a clock was ahead", steps(
			inForce("1000 "+t1), "ZREM ready k:a", "1", "ZADD schedule 1000 k:a", "1", "HSET runs k:a :1:0:why", "1",
			"ZADD recurring 5 k:a", "0", taken(1), nothing, "EXISTS runs", "0",
		)},
		{"one more at once: no time passes", steps(
			inForce(t1+" "+t2), "add"+task("k:a", "0", "always", "A"), "[k:a] [] 0", taken(1),
			"HGET recurrence passed:k:a", "5", end("w.1.9.1n", "1", "done 0 ''"), "[] 0", planned(t1),
		)},
		{"one more at once while one runs", steps(
			begun(), "add"+task("k:a", "0", "always", "A"), "[k:a] [] 0", end("w.1.9.1n", "1", "done 0 ''"), "*",
			"HGET tasks k:a", "now:0:0:0:0:0:A", "start round=2 wanted=1", "*",
			end("w.2.9.1n", "2", "done 0 ''"), "*", planned(t2),
		)},
		{"an add that keeps the payload moves the next one", steps(
			inForce(t1+" "+t2), "add"+task("k:a", "0", "always+keep", "X"), "[k:a] [] 0", taken(1),
			"HGET recurrence passed:k:a", t1, end("w.1.9.1n", "1", "done 0 ''"), "[] 0", planned(t2),
		)},
	})
}

// The ends of five occurrences are kept, newest first; what another program has written is cut.
func TestEnds(t *testing.T) {
	after := func(before, ends string) [][2]string {
		return steps(inForce(t1+" "+t2), "HSET recurrence last:k:a "+before, "1", "ZADD schedule 1 k:a", "0", taken(1),
			"finish w.1.9.1n 1 k:a done 0 ''", "[] 0", "HGET recurrence last:k:a", "finished:"+t1+":now"+ends)
	}
	play(t, []scenario{
		{"one", after("failed:1:1", " failed:1:1")},
		{"five", after("a:5:5~b:4:4~c:3:3~d:2:2~e:1:1", " a:5:5 b:4:4 c:3:3 d:2:2")},
		{"none that is one", after("~x", "")},
		{"a long one", after(strings.Repeat("x", 300), " "+strings.Repeat("x", 200))},
	})
}

// The last outcome is that of an occurrence, or that a later task under its name has finished.
func TestLastOutcome(t *testing.T) {
	last := func(outcome string) [][2]string {
		return steps("HGET recurrence last:k:a", outcome+":"+t1+":now")
	}
	none := steps("HEXISTS recurrence last:k:a", "0")
	end := func(verb string) [][2]string { return steps("finish w.1.9.1n 1 k:a "+verb, "[] 0") }
	play(t, []scenario{
		{"finished", steps(begun(), none, end("done 0 ''"), last("finished"))},
		{"failed", steps(begun(), end("fail 0 failed:why"), last("failed"))},
		{"crashed", steps(begun(), end("fail 0 crashed:why"), last("crashed"))},
		{"canceled while it runs", steps(
			begun(), "remove name=k:a how=canceled", "0 w.1.9.1n", none,
			"finish w.1.9.1n 1 k:a stop 0 -", "[1 canceled] 0", last("canceled"),
		)},
		{"canceled while it runs, and its worker is evicted", steps(
			begun(), "remove name=k:a how=canceled", "0 w.1.9.1n", "evict target=w", "*", last("canceled"),
		)},
		{"removed while it waits", steps(inForce(t1+" "+t2), "remove name=k:a how=removed", "1 ''", last("canceled"))},
		{"removed while it waits for a retry", steps(
			begun(), end("retry 60000 why"), none, "remove name=k:a how=removed", "1 ''", last("canceled"),
		)},
		{"deleted with its queue", steps(inForce(t1), "delete first=1", "0", last("canceled"))},
		{"a task that was added has finished", steps(
			inForce(t1), "add"+task("k:a", "0", "always", "A"), "*", taken(1), end("done 0 ''"), "HGET recurrence last:k:a", "finished:0:now",
			"HGET recurrence passed:k:a", "5", "add"+task("k:b", "0", "always", "A"), "*", "start round=2 wanted=1", "*",
			"finish w.2.9.1n 2 k:b done 0 ''", "[] 0", "HEXISTS recurrence last:k:b", "0",
		)},
		{"a task that was added hasn't finished", steps(
			inForce(t1), "add"+task("k:a", "0", "always", "A"), "*", taken(1), end("fail 0 failed:why"), none,
		)},
		{"its schedule ends: nothing is left, also if it ends later", steps(
			begun(), "HSET recurrence last:k:a finished:1:1", "1", "ZADD recurring 5 k:a", "0",
			"recur judge=now+1000", "[] [k:a] now", end("done 0 ''"), "EXISTS recurrence", "0",
		)},
	})
}

// A schedule may say how late an occurrence may start.
func TestLate(t *testing.T) {
	// due is a schedule whose occurrence is due for some ms, and may be 60 s late.
	due := func(late string) [][2]string {
		return steps(
			"HSET recurrence passed:k:a 5", "1", asserts("7", "1:aa", "1000 "+t1, "A"), "*",
			"HSET recurrence k:a now-"+late+"~"+t1+"|0:0:60000:0:0:0:A", "0",
			"HSET tasks k:a 1:now-"+late+":0:0:1:0:A", "0",
		)
	}
	skipped := steps("HGET tasks k:a", "now:"+t1+":0:0:1:0:A", "ZSCORE schedule k:a", t1, "EXISTS ready runs", "0")
	play(t, []scenario{
		{"one that is too late is skipped, and the next one is planned", steps(
			due("61000"), "join round=0", "1", "start wanted=1", "1 [] 0 0 0 … now", skipped,
			"HGET recurrence passed:k:a", "now",
		)},
		{"what follows it starts", steps(
			due("61000"), "join round=0", "1", "LPUSH queues b", "1", "start wanted=1", "1 [b] 1 0 0 -1 now", skipped,
		)},
		{"one that isn't starts; it never expires", steps(
			due("50000"), taken(1), "HGET tasks k:a", "*", "LRANGE process:w.1.9.1n 0 -1", "k:a",
		)},
		{"one that has started before starts again", steps(
			due("61000"), "HSET recurrence passed:k:a now", "0", taken(1), "LRANGE process:w.1.9.1n 0 -1", "k:a",
		)},
		{"one without a limit starts", steps(
			inForce("1000 "+t1), taken(1), "LRANGE process:w.1.9.1n 0 -1", "k:a",
		)},
	})
}

func TestEndOfSchedules(t *testing.T) {
	over := func(last string) [][2]string {
		return steps(inForce(t1), "ZADD recurring 5 k:a", "0", "recur judge="+last, "[] [k:a] now")
	}
	gone := steps("EXISTS recurring recurrence", "0")
	play(t, []scenario{
		{"a schedule that nobody asserts ends, with its waiting occurrence", steps(
			over("now+1000"), gone, "EXISTS tasks schedule", "0",
		)},
		{"not if the call comes late, or the schedule is asserted", steps(
			inForce(t1), "recur judge=now+1000", "[] [] now",
			"ZADD recurring 5 k:a", "0", "recur judge=now-1", "[] [] now", "ZCARD schedule", "1",
		)},
		{"who waits for the result of the occurrence learns that it was removed", steps(
			inForce(t1), "HSET tasks k:a 1:"+t1+":0:60000:1:0:A", "0", "ZADD recurring 5 k:a", "0",
			"recur judge=now+1000", "[] [k:a] now", "GET result:k:a", "removed:now:0:",
		)},
		{"one that waits for a retry, or was added, stays", steps(
			inForce(t1), "HSET recurrence passed:k:a "+t1, "0", "ZADD recurring 5 k:a", "0",
			"recur judge=now+1000", "[] [k:a] now", gone, "ZCARD schedule", "1",
		)},
		{"one that runs stays", steps(
			begun(), "ZADD recurring 5 k:a", "0", "recur judge=now+1000", "[] [k:a] now", gone,
			"finish plain=0 w.1.9.1n 1 k:a done 0 ''", "[] 0", "EXISTS tasks", "0",
		)},
	})
	t.Run("50 for each call", func(t *testing.T) {
		q := newQueue(t, redistest.URL())
		q.do("ZADD recurring" + strings.Join(numbers(70), ""))
		for _, want := range []int{50, 20, 0} {
			if n := strings.Count(q.do("recur judge=now+1000"), "v"); n != want {
				t.Errorf("%d schedules ended, not %d", n, want)
			}
		}
	})
	t.Run("1 MiB of records for each call", func(t *testing.T) {
		q := newQueue(t, redistest.URL())
		assert := "recur period=10000"
		for i := range 3 {
			name := fmt.Sprint("k:", i)
			q.do("HSET recurrence " + name + " " + t1 + "|0:0:0:0:0:0:@600000 passed:" + name + " 5")
			q.do("HSET recurrence prints:" + name + " " + t1 + "~1:aa:7")
			q.do("ZADD recurring now " + name)
			assert += " " + name + " 7 1:aa '' ''"
		}
		q.do("HSET recurrence k:s " + t1 + "|0:0:0:0:0:0:S passed:k:s 5 prints:k:s " + t1 + "~1:aa:7")
		q.do("ZADD recurring now k:s")
		assert += " k:s 7 1:aa '' ''"
		for want := range 3 {
			q.play(steps(assert, "[[7 held ''] [7 held ''] [7 held ''] [7 held '']] [] now",
				"ZCARD schedule", fmt.Sprint(want+2)))
			q.do("ZADD recurring now k:0 now k:1 now k:2 now k:s")
		}
		q.play(steps("HSET tasks k:x @1100000 k:y @1100000", "2", asserts("7", "1:aa", t1, "A")+
			" k:x 7 1:aa "+t1+" 0:0:0:0:0:0:X k:y 7 1:aa "+t1+" 0:0:0:0:0:0:Y",
			"[[7 held ''] [7 held ''] [7 wanted now]] [] now"))
	})
	t.Run("a schedule is replaced often: the last four are known", func(t *testing.T) {
		q := newQueue(t, redistest.URL())
		for i := range 8 {
			q.do(asserts("-1", fmt.Sprint("1:a", i), t1, "A"))
		}
		all := q.do("HGET recurrence prints:k:a")
		if strings.Count(all, " 1:") != 5 || !strings.Contains(all, " 1:a7:") {
			t.Errorf("known are %s", all)
		}
	})
}
