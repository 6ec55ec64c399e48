package scripts_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// TestCluster runs each script of a queue on a node of a cluster, in its variant for clusters: it declares its keys, and
// only those who subscribe to the shards' channels hear it.
func TestCluster(t *testing.T) {
	node := redistest.StartCluster(t, 1, 0).Nodes[0]
	q := newQueue(t, node.URL())
	tell := string(redistest.Sure(os.ReadFile("../../internal/store/lib_tell.lua"))(t))
	ran := map[string]bool{}
	q.edit = func(source string) string {
		return tell + strings.ReplaceAll(source, "redis.pcall('PUBLISH', ", "publish(")
	}
	ear := redistest.Dial(t, node.URL())
	for _, channel := range []string{"wake:w", "done", "cancel", "enqueue", "delete"} {
		redistest.Must(t, ear.Send("SSUBSCRIBE", "worqr_"+q.name+"_"+channel))
		redistest.Must(t, ear.Flush())
		redistest.Sure(ear.Receive())(t)
	}
	play := func(all ...any) {
		for _, s := range steps(all...) {
			verb, _, _ := strings.Cut(strings.TrimPrefix(s[0], "failed."), " ")
			ran[verb] = true
		}
		q.play(steps(all...))
	}
	heard := func(want ...string) {
		t.Helper()
		for _, message := range want {
			m := redistest.Sure(redis.Strings(ear.Receive()))(t)
			if got := m[1][strings.LastIndex(m[1], "_")+1:] + " " + m[2]; m[0] != "smessage" || got != message {
				t.Fatalf("heard %v instead of %s", m, message)
			}
		}
	}

	play("join round=0", "1", "start wanted=1", "1 [] 0 0 0 -1 now", "enqueue a b", "1")
	heard("wake:w 2", "enqueue 2")
	play("add"+task("k:a", "0", "always", "A"), "*", "start round=2 wanted=3", "*")
	heard("enqueue 1")
	play("finish plain=1 w.2.9.2 2 w.2.9.1n 1 k:a fail 0 failed:why w.2.9.3 3 d:<b> retry 60000 why", "[] 0")
	heard(`done {"task":"a","workerId":"w"}`)
	play("failed.join worker=v round=0", "1", "failed.start worker=v wanted=1", "*", "failed.finish worker=v v.1.9.1n 1 k:a#1 stop 0 ''",
		"[] 0", "failed.leave worker=v round=1", "0 0", "requeue k:a#1", "requeued")
	heard("enqueue 1")
	play("heartbeat judge=1", "*", "cancel payload=b", "1 - 3 [w]", "mark payload=b token=3 worker=w", "3 []")
	heard("cancel b")
	play("add"+task("k:c", "0", "always", "C"), "*", "remove name=k:c how=removed", "1 ''", asserts("7", "1:aa", t1, "A"), "*",
		"pause who=me", "1", "pause", "1", "result k:a", "'' 0 -1", "check kind=tasks cursor=0", "*",
		"repair flaw=token", "*", "record started=1", "1", "evict judge=now+500", "*", "delete first=1", "*", "evict target=w", "*", "leave round=2", "0 0")
	heard("enqueue 1", "delete ")

	entries := redistest.Sure(os.ReadDir("../../internal/store"))(t)
	ofFleet := []string{"register", "agree", "list"}
	for _, e := range entries {
		verb, isScript := strings.CutSuffix(e.Name(), ".lua")
		if isScript && !strings.HasPrefix(verb, "lib_") && !ran[verb] && !slices.Contains(ofFleet, verb) {
			t.Errorf("%s isn't run", verb)
		}
	}
}
