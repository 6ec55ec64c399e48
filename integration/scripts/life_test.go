package scripts_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

func TestStart(t *testing.T) {
	play(t, []scenario{
		{"plain tasks start in the order of the list, and end", steps(
			"LPUSH queues a b c", "3",
			"join round=0", "1",
			"start wanted=2", "1 [a b] 2 0 1 -1 now",
			"finish plain=2 w.1.9.1 1 w.1.9.2 2", "[] 0",
			"EXISTS working:w", "0",
			"EXISTS process:w.1.9.1", "0",
			"HMGET state token taken", "2 2",
		)},
		{"who is no member starts and ends nothing", steps(
			"LPUSH queues a", "1",
			"start wanted=1", "!EVICTED",
			"finish plain=1 w.1.9.1 1", "!EVICTED",
			"LLEN queues", "1",
		)},
		{"the list and ready take turns, after those that were returned; an even last token begins with ready", steps(
			"join round=0", "1",
			"LPUSH queues a b", "2",
			"HSET tasks k:a A k:b B k:c C k:d D", "4",
			"ZADD ready 1 k:a 2 k:b 3 k:c -9 k:d", "4",
			"start wanted=4", "1 [[k:d D 0 0 ''] a [k:a A 0 0 ''] b] 4 0 2 -1 now",
			"start round=2 wanted=9", "5 [[k:b B 0 0 ''] [k:c C 0 0 '']] 6 1 0 -1 now",
			"EXISTS ready", "0",
			"HGET runs k:d", "w.1.9.1n:0:0:",
		)},
		{"a repeat answers what the round started and still runs, and changes nothing but the lease", steps(
			"join round=0", "1",
			"LPUSH queues a b c", "3",
			"HSET tasks k:a A", "1", "HSET runs k:a :2:1:why", "1", "ZADD ready 1 k:a", "1",
			"start wanted=3", "1 [[k:a A 2 1 why] a b] 3 0 1 -1 now",
			"ZADD working:w CH -2 w.1.9.2", "1", // it must stop
			"start wanted=3", "1 [[k:a A 2 1 why] a b] 3 1 0 -1 now",
			"finish plain=1 w.1.9.2 2", "[] 0",
			"start round=2 wanted=9", "4 [c] 4 1 0 -1 now",
			"ZRANGE idle 0 -1", "w",
			"ZADD workers CH 1 w", "1", "ZADD suspects 1 w", "1",
			"start wanted=3", "1 [[k:a A 2 1 why] - b] 4 2 0 -1 now",
			"ZRANGE workers 0 -1 WITHSCORES", "w now", "EXISTS suspects", "0",
			"ZRANGE idle 0 -1", "w", "HGET rounds w", "2",
		)},
		{"a name without a record, or one that runs, isn't started and goes", steps(
			"join round=0", "1",
			"HSET tasks k:a A", "1", "ZADD ready 1 k:a 2 k:ghost", "2",
			"start wanted=9", "1 [[k:a A 0 0 '']] 1 0 0 -1 now",
			"ZADD ready 1 k:a", "1",
			"start round=2 wanted=9", "2 [] 1 1 0 -1 now",
			"EXISTS ready", "0", "HGET runs k:a", "w.1.9.1n:0:0:",
		)},
		{"payloads and records above 1 MiB are read apart, and a round stops after 1 MiB", steps(
			"join round=0", "1",
			"LPUSH queues @1048577 b", "2", "HSET crashes <@1048577> 1", "1",
			"start wanted=9", "1 [[0 1]] 1 0 1 -1 now",
			"start round=2 wanted=9", "2 [b] 2 1 0 -1 now",
			"HSET tasks k:a @1048577", "1", "ZADD ready 1 k:a", "1", "HSET runs k:a :1:0:why", "1",
			"start round=3 wanted=9", "3 [[k:a 0 1 0 why]] 3 2 0 -1 now",
		)},
		{"those whose time has come go to the end of ready", steps(
			"join round=0", "1", "HSET state place 5", "1",
			"HSET tasks k:a A k:b B k:c C", "3", "ZADD ready 5 k:a", "1", "ZADD schedule 1 k:b now+60000 k:c", "2",
			"start wanted=1", "1 [[k:a A 0 0 '']] 1 0 1 -1 now",
			"ZRANGE ready 0 -1 WITHSCORES", "k:b 6", "ZRANGE schedule 0 -1", "k:c",
		)},
		{"prefetched ones start only beside nothing special, and no idle worker", steps(
			"join round=0", "1", "LPUSH queues a b c d e f g h i j", "10",
			"start wanted=3 ahead=2", "1 [a b c] 3 0 7 -1 now",
			"ZADD risky 1 r:x:1", "1", "start round=2 wanted=3 ahead=2", "4 [d] 4 1 6 -1 now", "DEL risky", "1",
			"HSET tasks k:a A", "1", "ZADD ready -5 k:a", "1", "start round=3 wanted=3 ahead=2",
			"5 [[k:a A 0 0 '']] 5 2 6 -1 now",
			"ZADD idle 1 v", "1", "start round=4 wanted=3 ahead=2", "6 [e] 6 3 5 -1 now",
		)},
		{"one that has crashed isn't prefetched, nor is what follows it; a count that is left over stops nothing", steps(
			"join round=0", "1", "LPUSH queues a b c d", "4", "HSET crashes <x> 2 <c> 1", "2",
			"start wanted=4 ahead=3", "1 [a b] 2 0 2 -1 now",
			"HMGET state token taken", "2 2", "EXISTS process:w.1.9.3", "0", "LRANGE queues 0 -1", "d c",
			"start round=2 wanted=4 ahead=3", "3 [[c 1]] 3 1 1 -1 now",
			"HSET tasks k:a A k:b B k:c C", "3", "HSET runs k:b :0:1:", "1", "ZADD ready 1 k:a 2 k:b 3 k:c", "3",
			"start round=3 wanted=5 ahead=4", "4 [d [k:a A 0 0 '']] 5 2 2 -1 now",
			"ZRANGE ready 0 -1 WITHSCORES", "k:b 2 k:c 3", "HGET runs k:b", ":0:1:",
			"start round=4 wanted=5 ahead=4", "6 [[k:b B 0 1 '']] 6 3 1 -1 now",
		)},
		{"a worker that wants more is idle, also in a pause; the end of a pause wakes it", steps(
			"listen", "", "join round=0", "1",
			"pause who=me", "1",
			"LPUSH queues a", "1",
			"start wanted=1", "1 [] 0 0 -1 -1 now",
			"ZRANGE idle 0 -1", "w",
			"heartbeat", "now now 0 -1 0 0 [] 0",
			"HGET state paused", "now:me",
			"pause", "1", "heard", "wake:w 1",
			"ZADD idle 1 w", "1", "start round=2 wanted=2 ahead=1", "1 [a] 1 1 0 -1 now",
			"EXISTS idle", "0",
		)},
		{"the next time is claimed by an idle worker, or one is woken to claim it", steps(
			"listen", "", "join round=0", "1",
			"HSET tasks k:a A", "1", "ZADD schedule now+60000 k:a", "1",
			"ZADD idle 1 v", "1", "start wanted=0 idle=0", "1 [] 0 0 0 -1 now", "heard", "wake:v 1",
			"start round=2 wanted=1", "1 [] 0 1 0 … now",
			"HGET state claimed", "far",
			"ZADD idle 1 v", "1", "start round=3 wanted=1", "1 [] 0 2 0 -1 now", "heard", "",
			"ZADD schedule now+30000 k:a", "0", // before the claimed one
			"start round=4 wanted=1", "1 [] 0 3 0 … now",
			"HSET state claimed 5", "0", // it has passed
			"start round=5 wanted=1", "1 [] 0 4 0 … now",
		)},
		{"an occurrence that nobody asserts is deleted, unless it has started before", steps(
			"join round=0", "1",
			"HSET tasks k:new 0:50:0:0:1:0:A k:old 0:40:0:0:1:0:B k:own 0:40:0:0:0:0:C", "3",
			"ZADD schedule 50 k:new 90 k:old 90 k:own", "3", "ZADD recurring 60 k:new 60 k:old", "2",
			"HSET recurrence passed:k:new 40 passed:k:old 40", "2",
			"start wanted=9", "1 [[k:old 0:40:0:0:1:0:B 0 0 ''] [k:own 0:40:0:0:0:0:C 0 0 '']] 2 0 0 -1 now",
			"HKEYS tasks", "k:old k:own",
		)},
		{"of the occurrences that nobody asserts, a round reads one beyond 1 MiB; the others are left", steps(
			"join round=0", "1", "HSET tasks k:a 0:5:0:0:1:0:@1048577 k:b 0:6:0:0:1:0:B k:c C", "3",
			"ZADD schedule 5 k:a 6 k:b 7 k:c", "3", "ZADD recurring 1 k:a 1 k:b", "2",
			"start wanted=9", "1 [] 0 0 0 0 now", "ZRANGE schedule 0 -1", "k:b k:c", "HEXISTS tasks k:a", "0",
			"start round=2 wanted=9", "1 [[k:c C 0 0 '']] 1 1 0 -1 now", "HKEYS tasks", "k:c",
		)},
		{"when an occurrence starts, times up to it and up to now have passed", steps(
			"join round=0", "1", "ZADD recurring now+60000 k:a now+60000 k:b", "2",
			"HSET tasks k:a 0:5:0:0:1:0:A k:b 0:99999999999998:0:0:1:0:B", "2", "ZADD ready 1 k:a 2 k:b", "2",
			"HSET recurrence k:a 5~9~99999999999997|0:0:0:0:0:0:A", "1",
			"HSET recurrence k:b 5~99999999999998~99999999999999|0:0:0:0:0:0:B", "1",
			"start wanted=2", "*", "HGET recurrence passed:k:a", "now", "HGET recurrence passed:k:b", "99999999999998",
			"finish w.1.9.1n 1 k:a done 0 '' w.1.9.2n 2 k:b drop 0 canceled", "[] 0",
			"ZRANGE schedule 0 -1 WITHSCORES", "k:a 99999999999997 k:b 99999999999999",
			"HGET tasks k:a", "now:99999999999997:0:0:1:0:A",
		)},
	})
}

func TestRisky(t *testing.T) {
	crashed := steps("join round=0", "1", "LPUSH queues a b", "2", "HSET crashes <a> 2", "1",
		"HSET tasks k:a A", "1", "HSET runs k:a :0:2:why", "1", "ZADD ready 1 k:a", "1")
	play(t, []scenario{
		{"risky tasks run one at a time for each worker; the others wait in risky", steps(crashed,
			"start wanted=9", "1 [b] 1 0 0 -1 now",
			"ZRANGE risky 0 -1", "k:a r:<a>:1", "HGET tasks r:<a>:1", "0:0:0:0:0:0:a", "ZRANGE copies 0 -1", "r:<a>:1",
			"start round=2 wanted=9 solo=1", "2 [[k:a A 0 2 why]] 2 1 0 -1 now",
			"start round=3 wanted=9", "3 [] 2 2 0 -1 now",
			"start round=4 wanted=9 solo=1", "3 [[r:<a>:1 0:0:0:0:0:0:a 0 2 '']] 3 3 0 -1 now",
			"start round=4 wanted=9 solo=1", "3 [[r:<a>:1 0:0:0:0:0:0:a 0 2 '']] 3 4 0 -1 now",
			"finish w.4.9.1n 3 r:<a>:1 done 0 ''", "[] 0",
			"EXISTS crashes", "0", "EXISTS copies", "0", "HKEYS tasks", "k:a",
		)},
		{"the first one starts at once, if the worker may", steps(crashed,
			"start wanted=9 solo=1", "1 [[k:a A 0 2 why] b] 2 0 0 -1 now",
			"ZRANGE risky 0 -1", "r:<a>:1",
		)},
		{"one of risky starts, and then no other risky one", steps(crashed,
			"HSET tasks k:r R", "1", "HSET runs k:r :0:2:", "1", "ZADD risky 1 k:r", "1",
			"start solo=1 wanted=9", "1 [[k:r R 0 2 ''] b] 2 0 0 -1 now", "ZRANGE risky 0 -1", "k:a r:<a>:1",
		)},
		{"the limit 0 is none, and the limit 1 makes tasks risky that have crashed", steps(crashed,
			"start wanted=2 max-crashes=0", "1 [[k:a A 0 2 why] [a 2]] 2 0 1 -1 now",
			"start round=2 wanted=1 max-crashes=1", "3 [b] 3 1 0 -1 now",
			"LPUSH queues c c", "2", "HSET crashes <c> 1", "1", "start round=3 wanted=2 max-crashes=2 solo=1",
			"4 [[c 1]] 4 2 0 -1 now",
			"EXISTS process:w.3.9.2", "0", "ZRANGE risky 0 -1", "r:<c>:1",
		)},
		{"a call moves 1 MiB to risky, and says that more can start", steps("join round=0", "1",
			"LPUSH queues @600000 @600000 @600000 a", "4", "HSET crashes <@600000> 2", "1",
			"start wanted=9", "1 [] 0 0 2 -1 now", "ZCARD risky", "2",
			"start round=2 wanted=9", "1 [a] 1 1 0 -1 now", "ZCARD risky", "3",
			"HSET tasks k:a @600000 k:b @600000 k:c @600000 k:d D", "4", "HSET runs k:a :0:2: k:b :0:2: k:c :0:2:", "3",
			"ZADD ready 1 k:a 2 k:b 3 k:c 4 k:d", "4",
			"start round=3 wanted=9", "2 [] 1 2 2 -1 now", "ZCARD risky", "5",
			"start round=4 wanted=9", "2 [[k:d D 0 0 '']] 2 3 0 -1 now",
		)},
		{"a call that parks one wakes one worker, and nobody is woken by those that can't start it", steps(crashed,
			"listen", "", "ZADD idle 1 v", "1",
			"start wanted=9", "*", "heard", "wake:v 1",
			"ZADD idle 1 v", "1", "start round=2 wanted=9", "*", "heard", "",
		)},
	})
}

func TestFinish(t *testing.T) {
	const a, c = "0:0:0:60000:0:0:A", "5:6:7:0:0:2:mmC"
	named := steps("join round=0", "1", "LPUSH queues b d", "2", "HSET tasks k:a "+a+" k:c "+c, "2",
		"ZADD ready 1 k:a 2 k:c", "2",
		"HSET state place 2", "1", "start wanted=4", "1 [[k:a "+a+" 0 0 ''] b [k:c "+c+" 0 0 ''] d] 4 0 0 -1 now")
	play(t, []scenario{
		{"ends that are gone change nothing, the others end", steps(named,
			"finish plain=3 w.1.9.2 2 w.1.9.4 3 w.1.9.7 7 w.1.9.1n 3 k:a done 0 ''", "[2 gone 3 gone 4 gone] 0",
			"ZRANGE working:w 0 -1", "w.1.9.1n w.1.9.3n w.1.9.4", "EXISTS process:w.1.9.4", "1", "HKEYS tasks",
			"k:a k:c",
		)},
		{"if Redis has lost a start, and a late copy of it has started another task, that one stays", steps(named,
			"DEL process:w.1.9.1n", "1", "HSET tasks k:e E", "1", "RPUSH process:w.1.9.1n k:e", "1", "HSET runs k:e w.1.9.1n:0:0:", "1",
			"HDEL runs k:a", "1", "ZADD ready 1 k:a", "1",
			"finish w.1.9.1n 1 k:a done 0 ''", "[1 gone] 0", "HKEYS tasks", "k:a k:c k:e", "LRANGE process:w.1.9.1n 0 -1", "k:e",
			"finish w.1.9.1n 1 k:e done 0 ''", "[] 0", "HKEYS tasks", "k:a k:c",
			"DEL process:w.1.9.3n", "1", "finish w.1.9.3n 3 k:c done 0 ''", "[] 0", "HKEYS tasks", "k:a", // it has lost only the list
		)},
		{"done: record and run go, the result stays, the event says what it was", steps(named,
			"listen", "", "finish plain=1 w.1.9.2 2 w.1.9.1n 1 k:a done 60000 RES", "[] 0",
			"heard", `done {"task":"b","workerId":"w"} done {"result":"RES","task":"A","workerId":"w"} end:<k:a>`,
			"GET result:k:a", "finished:now:0:RES", "HKEYS tasks", "k:c", "HKEYS runs", "k:c",
			"EXISTS process:w.1.9.1n", "0",
		)},
		{"without a listener, one event is tried", steps(named,
			"commands finish plain=2 w.1.9.2 2 w.1.9.4 4", "7",
		)},
		{"drop: the result says why, and no event", steps(named,
			"listen", "", "finish w.1.9.1n 1 k:a drop 0 expired w.1.9.2 2 d:<b> drop 0 expired", "[] 0",
			"heard", "end:<k:a>", "GET result:k:a", "expired:now:0:", "LLEN queues", "0", "ZCARD working:w", "2",
		)},
		{"stop: all come back before others, in the order in which they started", steps(named,
			"LPUSH queues e", "1", "HSET tasks k:e E", "1", "ZADD ready 3 k:e", "1",
			"finish w.1.9.1n 1 k:a stop 0 - w.1.9.2 2 d:<b> stop 0 - w.1.9.3n 3 k:c stop 0 - w.1.9.4 4 d:<d> stop 0 -",
			"[] 0",
			"LRANGE queues 0 -1", "e d b", "HGET state taken", "0", "ZRANGE ready 0 -1", "k:a k:c k:e",
			"EXISTS runs", "0", "EXISTS working:w", "0", "EXISTS process:w.1.9.2", "0",
		)},
		{"retry and snooze: a retry is counted, and a raw task gets a name", steps(named,
			"finish w.1.9.1n 1 k:a retry 60000 why w.1.9.2 2 d:<b> retry 0 why", "[] 0",
			"finish w.1.9.3n 3 k:c snooze 0 '' w.1.9.4 4 d:<d> snooze 60000 ''", "[] 0",
			"HGETALL runs", "k:a :1:0:why r:<b>:3 :1:0:why",
			"ZRANGE schedule 0 -1", "k:a r:<d>:5", "ZRANGE ready 0 -1 WITHSCORES", "r:<b>:3 4 k:c 6",
			"ZRANGE copies 0 -1", "r:<d>:5 r:<b>:3",
		)},
		{"fail: a task goes to the failed queue, with how it failed", steps(named,
			"HSET crashes <b> 1", "1", "listen", "", "ZADD failed.idle 1 v", "1",
			"finish w.1.9.1n 1 k:a fail 0 failed:why w.1.9.2 2 d:<b> fail 0 crashed:too:often", "[] 0",
			"ZRANGE failed.copies 0 -1", "r:<b>:1", "HGET failed.tasks r:<b>:1",
			"0:0:0:0:0:49:crashed:now:w:w.1.9.2:0:1:0:9:too:oftenb",
			"HGET failed.tasks k:a#2", "0:0:0:60000:0:46:failed:now:w:w.1.9.1n:0:0:3:3:k:awhyA",
			"heard", "end:<k:a> wake:v 1", "GET result:k:a", "failed:now:3:why", "HKEYS tasks", "k:c", "EXISTS crashes",
			"0",
		)},
		{"fail, since it has expired: the result says so", steps(named,
			"finish w.1.9.1n 1 k:a fail 0 expired:why", "[] 0", "GET result:k:a", "expired:now:3:why",
		)},
		{"what must stop, or whose digest was canceled since it started, is dropped instead of coming back",
			steps(named,
				"ZADD working:w CH -1 w.1.9.1n -3 w.1.9.3n", "2", "SET canceled:<b> 2", "OK", "SET canceled:<d> 3",
				"OK",
				"finish w.1.9.1n 1 k:a fail 0 x: w.1.9.2 2 d:<b> stop 0 - w.1.9.3n 3 k:c done 0 - w.1.9.4 4 d:<d> stop 0 -",
				"[2 canceled 1 canceled] 0", "EXISTS tasks", "0", "LRANGE queues 0 -1", "d", "GET result:k:a",
				"canceled:now:0:",
			)},
		{"names and records have large numbers in full", steps(
			"HSET state place 1000000000000000", "1", "HSET failed.state place 1000000000000000", "1", "LPUSH queues a a b", "3",
			"add k:k 0 always:0:0 '' 0:0:0:9000000000000000:0:0:K", "*",
			"join round=0", "1", "start wanted=9", "*", "ZRANGE working:w 0 -1", "w.1.9.1n w.1.9.2 w.1.9.3 w.1.9.4",
			"finish plain=0 w.1.9.1n 1 k:k fail 0 failed:x w.1.9.2 2 d:<a> retry 60000 x w.1.9.3 3 d:<a> retry 60000 x w.1.9.4 4 d:<b> fail 0 failed:x", "[] 0",
			"ZRANGE schedule 0 -1", "r:<a>:1000000000000003 r:<a>:1000000000000004",
			"ZRANGE failed.ready 0 -1", "r:<b>:1000000000000001 k:k#1000000000000002", "ZCARD failed.copies", "1",
			"HGET failed.tasks k:k#1000000000000002", "now:0:0:9000000000000000:0:44:failed:now:w:w.1.9.1n:0:0:3:1:k:kxK",
		)},
		{"every end but stop, retry and snooze deletes the count of crashes", steps(
			"join round=0", "1", "LPUSH queues a b c d e", "5", "HSET crashes <a> 1 <b> 1 <c> 1 <d> 1 <e> 1", "5",
			"start wanted=5", "*", "listen", "", "ZADD idle 1 v", "1",
			"finish plain=1 w.1.9.1 1 w.1.9.2 2 d:<b> done 0 '' w.1.9.3 3 d:<c> drop 0 x", "[] 0", "HKEYS crashes",
			"<d> <e>",
			"finish w.1.9.4 4 d:<d> stop 0 '' w.1.9.5 5 d:<e> fail 0 failed:x", "[] 0", "HKEYS crashes", "<d>",
			"heard", `done {"task":"a","workerId":"w"} done {"task":"b","workerId":"w"} wake:v 1`,
		)},
		{"what Redis has lost ends, and of more than 64 KiB an event has only the size", steps(
			"join round=0", "1", "LPUSH queues a b c @65537", "4", "start wanted=4", "*", "listen", "",
			"DEL process:w.1.9.1", "1", "DEL process:w.1.9.2", "1", "DEL process:w.1.9.3", "1",
			"finish plain=2 w.1.9.1 1 w.1.9.4 4 w.1.9.2 2 d:<b> stop 0 '' w.1.9.3 3 d:<c> retry 0 ''", "[] 0",
			"HGET state taken", "4", "EXISTS working:w", "0", "EXISTS tasks", "0", "heard",
			`done {"taskSize":65537,"workerId":"w"}`,
		)},
		{"a unique task is covered by a cancel of its digest", steps(
			"join round=0", "1", "HSET tasks u:<a> "+a, "1", "ZADD ready 1 u:<a>", "1", "start wanted=1", "*",
			"SET canceled:<a> 1", "OK", "finish w.1.9.1n 1 u:<a> retry 0 ''", "[1 canceled] 0", "EXISTS tasks", "0",
		)},
		{"the next occurrence is planned when one ends, and a failed one is none anymore", steps(
			"join round=0", "1", "HSET tasks k:a 0:50:0:0:1:0:A", "1", "ZADD ready 1 k:a", "1", "HSET state place 1",
			"1",
			"ZADD recurring now+60000 k:a", "1", "HSET recurrence k:a 50~60~now+60000|0:0:0:0:0:1:mA", "1",
			"start wanted=1", "*", "finish w.1.9.1n 1 k:a fail 0 failed:why", "[] 0",
			"HGETALL failed.tasks", "k:a#1 0:50:0:0:0:49:failed:now:w:w.1.9.1n:0:0:6:3:k:a@50whyA",
			"HGET tasks k:a", "now:far:0:0:1:1:mA", "ZRANGE schedule 0 -1", "k:a",
		)},
		{"an attempt that is named twice ends once", steps(named,
			"HSET next k:a now+60000:always:0:0:N", "1",
			"finish w.1.9.1n 1 k:a stop 0 '' w.1.9.1n 1 k:a stop 0 '' w.1.9.4 4 d:<d> retry 60000 x w.1.9.4 4 d:<d> retry 60000 x",
			"[3 gone 1 gone] 0", "ZCARD schedule", "2", "EXISTS ready", "0",
		)},
		{"an end that isn't plain is refused if a key has the wrong type", steps(named,
			"SET schedule x", "OK", "SET queues x", "OK",
			"finish plain=1 w.1.9.2 2 w.1.9.1n 1 k:a done 0 ''", "[2 refused] 0",
			"DEL schedule", "1", "finish w.1.9.4 4 d:<d> stop 0 ''", "[1 refused] 0",
			"SET failed.tasks x", "OK", "finish w.1.9.1n 1 k:a fail 0 failed:why w.1.9.3n 3 k:c done 0 ''",
			"[1 refused] 0",
			"LRANGE process:w.1.9.4 0 -1", "d", "HGET runs k:a", "w.1.9.1n:0:0:", "ZRANGE working:w 0 -1",
			"w.1.9.1n w.1.9.4",
		)},
		{"a failure is refused if the failed queue can't number it", steps(named,
			"HSET failed.state place x", "1", "HSET next k:c now+60000:always:0:0:N", "1",
			"finish w.1.9.1n 1 k:a fail 0 failed:why w.1.9.3n 3 k:c done 0 ''", "[1 refused] 0",
			"HGET runs k:a", "w.1.9.1n:0:0:", "HGET tasks k:c", "*", "ZCARD working:w", "3", "EXISTS failed.tasks", "0",
			"HSET failed.state place 007", "0", "finish w.1.9.1n 1 k:a fail 0 failed:why", "[1 refused] 0",
			"HSET failed.state place 7", "0", "finish w.1.9.1n 1 k:a fail 0 failed:why", "[] 0", "HKEYS failed.tasks", "k:a#8",
		)},
	})
}

// A call moves 1 MiB of what waits behind tasks, or one of them.
func TestNextIsBounded(t *testing.T) {
	behind := steps("join round=0", "1", "HSET tasks k:a A k:b B k:c C", "3", "ZADD ready 1 k:a 2 k:b 3 k:c", "3",
		"LPUSH queues d", "1", "start wanted=4", "1 [[k:a A 0 0 ''] d [k:b B 0 0 ''] [k:c C 0 0 '']] 4 0 0 -1 now",
		"HSET next k:a 0:always:0:0:@600000 k:b 0:always:0:0:@600000 k:c 0:always:0:0:@600000", "3")
	play(t, []scenario{
		{"finish", steps(behind,
			"finish w.1.9.1n 1 k:a done 0 '' w.1.9.3n 3 k:b stop 0 '' w.1.9.4n 4 k:c drop 0 canceled w.1.9.2 2 d:<d> stop 0 ''",
			"[2 postponed 1 postponed] 0", "HLEN next", "2", "HEXISTS next k:c", "0", "ZRANGE working:w 0 -1", "w.1.9.1n w.1.9.3n",
			"LRANGE queues 0 -1", "d", "HSTRLEN tasks k:c", "600000",
			"finish w.1.9.1n 1 k:a done 0 '' w.1.9.3n 3 k:b stop 0 ''", "[1 postponed] 0",
			"finish w.1.9.1n 1 k:a done 0 ''", "[] 0", "EXISTS next", "0", "ZRANGE ready 0 -1", "k:b k:c k:a",
		)},
		{"leave", steps(behind, "leave round=1", "2 1", "HKEYS next", "k:a", "leave round=1", "2 0", "EXISTS next", "0")},
	})
}

// The task k:a runs, and another one is put behind it.
func TestNext(t *testing.T) {
	for _, s := range []struct {
		next, end, ready, schedule, record, run string
	}{
		{"0:always:0:0:N", "done 0 ''", "k:a", "", "N", "-"},
		{"now+60000:always:0:0:N", "drop 0 canceled", "", "k:a", "N", "-"},
		{"0:always:0:0:N", "fail 0 failed:why", "k:a", "", "N", "-"},
		{"0:always:0:0:N", "retry 60000 why", "k:a", "", "N", "-"},
		{"0:always:1:1:N", "retry 60000 why", "k:a", "", "A", ":1:0:why"},
		{"0:never:0:1:N", "retry 60000 why", "", "k:a", "N", ":1:0:why"},
		{"0:later:1:0:N", "retry 60000 why", "", "k:a", "A", "-"},
		{"0:earlier:1:0:N", "retry 60000 why", "k:a", "", "A", "-"},
		{"now+60000:later:0:0:N", "stop 0 ''", "", "k:a", "N", "-"},
		{"now+60000:earlier:0:0:N", "stop 0 ''", "k:a", "", "N", "-"},
		{"now+60000:never:1:0:N", "stop 0 ''", "k:a", "", "A", "-"},
	} {
		t.Run(s.next+" "+s.end, func(t *testing.T) {
			or := func(name string) string {
				if name == "" {
					return ""
				}
				return name
			}
			newQueue(t, redistest.URL()).play(steps("join round=0", "1", "HSET tasks k:a A", "1", "ZADD ready 1 k:a",
				"1",
				"HSET state place 1", "1", "start wanted=1", "*", "HSET next k:a "+s.next, "1",
				"finish w.1.9.1n 1 k:a "+s.end, "[] 0", "EXISTS next", "0",
				"ZRANGE ready 0 -1", or(s.ready), "ZRANGE schedule 0 -1", or(s.schedule),
				"HGET tasks k:a", s.record, "HGET runs k:a", s.run))
		})
	}
}

func TestFailedQueue(t *testing.T) {
	play(t, []scenario{
		{"what fails in the failed queue is set aside, and the oldest of those go", steps(
			"failed.join round=0", "1",
			"HSET failed.tasks k:a#1 A k:b#2 B r:<c>:3 C", "3", "ZADD failed.copies 0 r:<c>:3", "1",
			"ZADD failed.ready 1 k:a#1 2 k:b#2 3 r:<c>:3", "3", "HSET failed.state place 3", "1",
			"LPUSH failed.queues d", "1",
			"failed.start wanted=9", "*",
			"failed.finish w.1.9.1n 1 k:a#1 fail 0 failed:again", "[] 0",
			"ZRANGE failed.aside 0 -1", "k:a#1", "HGET failed.tasks k:a#1", "A", "HGET failed.runs k:a#1", ":0:0:again",
			"failed.finish max-failed=2 w.1.9.2 2 d:<d> fail 0 failed:x w.1.9.3n 3 k:b#2 fail 0 failed:y", "[] 1",
			"HKEYS failed.tasks", "k:b#2 r:<c>:3 r:<d>:6", "ZRANGE failed.aside 0 -1", "k:b#2 r:<d>:6",
		)},
		{"nobody serves it: the oldest that failed go, but not those that were set aside", steps(
			"join round=0", "1", "LPUSH queues a b", "2", "start wanted=2", "*",
			"ZADD failed.ready 1 r:1:1 3 r:1:3", "2", "ZADD failed.aside 2 r:1:2", "1",
			"HSET failed.tasks r:1:1 A r:1:2 B r:1:3 C", "3",
			"HSET failed.runs r:1:1 :1:0:", "1", "ZADD failed.copies 0 r:1:1", "1", "HSET failed.state place 3", "1",
			"HSET failed.crashes 1 2", "1",
			"finish max-failed=2 w.1.9.1 1 d:<a> fail 0 failed:why", "[] 1", "EXISTS failed.crashes", "0",
			"HKEYS failed.tasks", "r:1:2 r:1:3 r:<a>:4", "EXISTS failed.runs", "0", "ZRANGE failed.copies 0 -1", "r:<a>:4", "EXISTS failed.aside", "1",
			"ZADD failed.workers now+9000 v", "1", "finish max-failed=1 w.1.9.2 2 d:<b> fail 0 failed:why", "[] 0",
		)},
		{"a peer that was silent for a while still serves it", steps(
			"join round=0", "1", "LPUSH queues a b", "2", "start wanted=2", "*",
			"HSET failed.tasks r:1:1 A", "1", "ZADD failed.ready 1 r:1:1", "1", "HSET failed.state place 1", "1",
			"ZADD failed.workers now-50000 v", "1", "finish max-failed=1 w.1.9.1 1 d:<a> fail 0 failed:why", "[] 0",
			"ZADD failed.workers now-70000 v", "0", "finish max-failed=1 w.1.9.2 2 d:<b> fail 0 failed:why", "[] 2",
		)},
		{"one whose name has no digest starts beside those that have crashed", steps(
			"failed.join round=0", "1", "HSET failed.crashes <x> 1", "1",
			"HSET failed.tasks r::1 A r:odd:2 B", "2", "ZADD failed.ready 1 r::1 2 r:odd:2", "2",
			"failed.start wanted=9", "1 [[r::1 A 0 0 ''] [r:odd:2 B 0 0 '']] 2 0 0 -1 now",
			"failed.start wanted=9", "1 [[r::1 A 0 0 ''] [r:odd:2 B 0 0 '']] 2 1 0 -1 now",
		)},
		{"an equal payload that another program has put on the failed queue's list gets a name of its own", steps(
			"join round=0", "1", "LPUSH queues a", "1", "HSET state place 1", "1", "start wanted=1", "*",
			"finish w.1.9.1 1 d:<a> fail 0 failed:why", "[] 0",
			"LPUSH failed.queues a", "1", "failed.join round=0", "1", "failed.start wanted=2", "*",
			"failed.finish w.1.9.2 2 d:<a> retry 60000 why", "[] 0", "HKEYS failed.tasks", "r:<a>:1 r:<a>:2",
		)},
	})
}

// A round of named tasks is bounded, so that it doesn't keep Redis for long: what starts, becomes ready or becomes risky.
func TestStartIsBounded(t *testing.T) {
	q := newQueue(t, redistest.URL())
	for i := range 400 {
		q.do(fmt.Sprintf("ZADD schedule %d k:%d", i, i))
		q.do(fmt.Sprintf("HSET tasks k:%d A", i))
		if i >= 256 {
			q.do(fmt.Sprintf("HSET runs k:%d :0:2:", i))
		}
	}
	q.play(steps("join round=0", "1", "start wanted=512", "*", "ZCARD working:w", "256", "ZCARD schedule", "144", "ZCARD ready", "0",
		"start wanted=512 round=2 max-crashes=3", "*", "ZCARD risky", "128", "ZCARD ready", "16"))
}

// By another program's mistake, a name may be risky and ready. Only one of them starts.
func TestStartOfRiskyAndReady(t *testing.T) {
	q := newQueue(t, redistest.URL())
	q.play(steps("join round=0", "1", "HSET tasks k:a A", "1", "ZADD ready 1 k:a", "1", "ZADD risky 1 k:a", "1", "start wanted=4 solo=1", "*", "ZCARD working:w", "1",
		"EXISTS ready risky", "0"))
}

// A start that wants nothing, or few, doesn't read all that is ready.
func TestStartReadsFew(t *testing.T) {
	q := newQueue(t, redistest.URL())
	for i := range 300 {
		q.do(fmt.Sprintf("ZADD ready %d k:%d", i, i))
		q.do(fmt.Sprintf("HSET tasks k:%d A", i))
	}
	q.play(steps("join round=0", "1"))
	for round, wanted := range []int{0, 1, 150} {
		monitor := redistest.Dial(t, redistest.URL())
		redistest.Sure(monitor.Do("MONITOR"))(t)
		q.play(steps(fmt.Sprint("start round=", round+1, " wanted=", wanted), "*", "PING x", "*"))
		read := 0
		for line := ""; !strings.Contains(line, `"PING"`); {
			line = redistest.Sure(redis.String(monitor.Receive()))(t)
			if page := ofReady.FindStringSubmatch(line); page != nil && strings.Contains(line, q.name) {
				first, _ := strconv.Atoi(page[1])
				last, _ := strconv.Atoi(page[2])
				if last < first || last-first >= 100 {
					t.Fatalf("a page of ready is %s to %s", page[1], page[2])
				}
				read += last - first + 1
			}
		}
		if read < wanted || read > wanted+100 || wanted < 2 && read > wanted {
			t.Errorf("%d wanted, and %d read", wanted, read)
		}
	}
}

var ofReady = regexp.MustCompile(`"ZRANGE" "worqr:ready:[^"]*" "(-?\d+)" "(-?\d+)"`)

// A key of the wrong type: start changes nothing, or passes it over.
func TestStartWrongTypes(t *testing.T) {
	for _, kind := range []string{"tasks", "ready", "schedule", "risky", "runs", "copies", "crashes", "recurring",
		"recurrence", "state",
		"working:w", "suspects", "workers"} {
		t.Run(kind, func(t *testing.T) {
			newQueue(t, redistest.URL()).play(steps("join round=0", "1", "LPUSH queues a", "1", "ZADD leaving 0 v", "1",
				"DEL "+kind, "*", "SET "+kind+" x", "OK",
				"start wanted=1", "!WRONGTYPE", "HGET rounds w", "0", "LLEN queues", "1"))
		})
	}
	play(t, []scenario{
		{"numbers", steps("join round=0", "1", "LPUSH queues a", "1",
			"HSET state token x", "1", "start wanted=1", "!WRONGTYPE",
			"HSET state token 1e3", "0", "start wanted=1", "!WRONGTYPE", "HSET state token 9007199254740992", "0", "start wanted=1", "!WRONGTYPE",
			"HSET state token 0 place 007", "1", "add"+task("k:a", "0", "always", "A"), "!WRONGTYPE",
			"HSET state place 9223372036854775807", "0", "add"+task("k:a", "0", "always", "A"), "!WRONGTYPE",
			"HSET state place -5", "0", "add"+task("k:a", "0", "always", "A"), "*", "LLEN queues", "1")},
		{"what the worker runs: not even its suspicion changes", steps("join round=0", "1", "SET working:w x", "OK",
			"ZADD suspects 5 w", "1", "start wanted=1", "!WRONGTYPE", "ZSCORE suspects w", "5")},
		{"the list and hints", steps("join round=0", "1", "SET queues x", "OK", "SET idle x", "OK", "HSET tasks k:a A",
			"1", "ZADD ready 1 k:a", "1",
			"start wanted=2", "1 [[k:a A 0 0 '']] 1 0 0 -1 now")},
	})
}

// On a Redis that is full, all goes on but what adds.
func TestFull(t *testing.T) {
	server := redistest.Start(t)
	q := newQueue(t, server.URL())
	q.play(steps("LPUSH queues a b c d e", "5", "join round=0", "1", "join worker=v round=0", "1",
		"HSET tasks k:a A k:b B k:c C", "3", "ZADD ready 1 k:a 2 k:b 3 k:c", "3"))
	redistest.Sure(q.conn.Do("CONFIG", "SET", "maxmemory", "1"))(t)
	q.play(steps("LPUSH queues f", "!OOM",
		"start wanted=6", "*", "start worker=v wanted=2", "*",
		"finish w.1.9.3n 3 k:b stop 0 '' w.1.9.2 2 d:<a> fail 0 failed:why w.1.9.1n 1 k:a retry 0 why", "[] 0",
		"finish plain=1 w.1.9.4 4", "[] 0",
		"heartbeat", "now now 2 2 -1 0 [] 0",
		"pause who=me", "1", "pause", "1",
		"ZADD workers XX CH 1 v", "!OOM",
		"leave worker=v", "2 0",
		"evict target=w", "[w 2] 2 -1",
		"join worker=x asked=99", "1"))
}
