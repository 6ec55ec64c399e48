package next_test

import (
	"fmt"
	"testing"
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
			"GET canceled:<a>", "7",
			"GET result:u:<a>", "canceled:now:0:",
		)},
		{"a large payload is announced by its digest", steps(
			"listen", "",
			"cancel payload=@2000", "0 - 0 []",
			"heard", "cancel sha1:<@2000>:2000",
			"cancel payload=a", "0 - 0 []",
			"heard", "cancel a",
		)},
		{"what runs goes on until it is stopped, and then is dropped by whatever end but done", steps(
			"LPUSH queues a a a a a", "5", taken(5),
			"cancel payload=a", "0 - 5 [w]",
			"LPUSH queues a", "1", "start round=2 wanted=1", "*",
			"stop payload=a token=5 worker=w", "5 [w.1.9.1 w.1.9.2 w.1.9.3 w.1.9.4 w.1.9.5]",
			"finish plain=0 w.1.9.1 1 d:<a> retry 9 '' w.1.9.2 2 d:<a> stop 0 '' w.1.9.3 3 d:<a> snooze 9 '' w.1.9.4 4 d:<a> fail 0 failed:x"+
				" w.1.9.5 5 d:<a> done 0 '' w.2.9.1 6 d:<a> stop 0 ''", "*",
			"LRANGE queues 0 -1", "a",
			"EXISTS tasks failed.tasks working:w", "0",
		)},
	})
}

