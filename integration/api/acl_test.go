package api

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// ruled is the prefix in the rules of docs/security.md, and letters the queue in its
// producer's rule.
const ruled, letters = "worqr", "emails"

// as returns a peer that connects as a role of docs/security.md.
func as(t testing.TB, server *redistest.Server, role string) *worqr.Peer {
	t.Helper()
	p := sure(worqr.Open(redistest.As(t, server.URL(), role, ruled), &worqr.Options{
		Prefix: ruled, Lease: 300 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// undenied fails the test if a user was denied anything since ACL LOG RESET.
func undenied(t testing.TB, c redis.Conn) {
	t.Helper()
	for _, e := range sure(redis.Values(c.Do("ACL", "LOG")))(t) {
		t.Errorf("denied: %s", e)
	}
}

// The producer of docs/security.md can enqueue without being denied anything, even if the queue
// is long, scripts were flushed, or a worker is idle.
func TestProducerRule(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	worker := as(t, server, "worker")
	q := as(t, server, "producer").Queue(letters)
	listed := func() []string { return sure(redis.Strings(c.Do("SMEMBERS", ruled+":registry")))(t) }
	for range 2 { // without a worker; then after the queue was deleted
		enqueue(t, q, "first")
		is.Equal(listed(), []string{letters})
		is.NoErr(worker.Queue(letters).Delete(t.Context()))
		is.Equal(listed(), []string{})
	}
	starts, _ := counting(t, worker, letters, nil)
	idle(t, worker.Queue(letters), 1)
	enqueue(t, q, "a")
	receive(t, starts, 1)
	idle(t, worker.Queue(letters), 1)
	redistest.Do(t, c, "SCRIPT", "FLUSH")
	for i := range 2 {
		is.Equal(sure(q.EnqueueOnce(t.Context(), "nonce", []byte("b")))(t), i == 0)
	}
	receive(t, starts, 1)
	is.NoErr(worker.Queue(letters).Pause(t.Context()))
	enqueue(t, q, numbers("", 150)...)
	enqueue(t, q, "long") // without a script
	is.NoErr(worker.Queue(letters).Delete(t.Context()))
	enqueue(t, q, "drained") // the queue is empty now, so a worker must be woken
	is.NoErr(worker.Queue(letters).Resume(t.Context()))
	receive(t, starts, 1)
	enqueue(t, q, numbers("", 5001)...) // in pages
	receive(t, starts, 5001)
	is.Equal(listed(), []string{letters})
	undenied(t, c)
}

// A producer that may not add the queue to the list of queues is denied once. It doesn't fail,
// and doesn't reconnect for each task.
func TestProducerWithoutRegistry(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	rule := slices.DeleteFunc(redistest.Rule(t, "producer", ruled), func(w string) bool { return strings.Contains(w, "registry") })
	redistest.Do(t, c, "ACL", redis.Args{"SETUSER", "app"}.AddFlat(rule)...)
	q := openAt(t, "redis://app:SECRET@"+server.Addr(), worqr.Options{Prefix: ruled}).Queue(letters)
	for range 5 {
		enqueue(t, q, "a")
	}
	entries := sure(redis.Values(c.Do("ACL", "LOG")))(t)
	is.Equal(len(entries), 1)
	is.Equal(sure(redis.Values(entries[0], nil))(t)[:2], []any{[]byte("count"), int64(1)})
}

// The observer of docs/security.md can read everything.
func TestObserverRule(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	worker := as(t, server, "worker")
	q := working(t, worker, letters)
	enqueue(t, q, "a", "b", "c")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("later"), At: time.Now().Add(time.Hour)})
	must(t, take(t, q).Fail(t.Context(), errors.New("no")))
	running := take(t, q)
	defer func() { is.NoErr(running.Finish(t.Context())) }()

	p := as(t, server, "observer")
	seen := p.Queue(letters)
	eventually(t, "a heartbeat has seen what waits", func() bool { return stats(t, seen).Oldest > 0 })
	counts := stats(t, seen)
	counts.Oldest, counts.Silent = 0, false // a stall outlasts the worker's lease
	is.Equal(counts, inspect.QueueStats{Waiting: 1, Scheduled: 1, Running: 1, Failed: 1, Workers: 1})
	is.Equal(waiting(t, seen), []string{"c"})
	is.Equal(failedPayloads(t, seen), []string{"a"})
	for r := range each(t, seen.Running(t.Context())) {
		is.Equal(string(r.Payload), "b")
	}
	for w := range each(t, p.Workers(t.Context())) {
		is.Equal(w.ID, worker.WorkerID())
	}
	for name := range each(t, p.Queues(t.Context())) {
		is.Equal(name, letters)
	}
	for _, queues := range [][]string{nil, {letters}} {
		for e := range each(t, p.Events(t.Context(), queues...)) {
			if e.Kind == inspect.EventSync {
				enqueue(t, q, "d")
				continue
			}
			is.Equal(e, inspect.Event{Kind: inspect.EventWork, Queue: letters, Count: 1})
			break
		}
	}
	add(t, q, worqr.TaskSpec{Payload: []byte("added"), Headers: map[string]string{"type": "t"}})
	added := slices.Collect(each(t, seen.Named(t.Context())))
	is.Equal(len(added), 2)
	is.Equal(added[0].Headers, map[string]string{"type": "t"})
	recurs := as(t, server, "worker")
	is.NoErr(recurs.Queue(letters).Every("daily", worqr.Interval(24*time.Hour), nil, nil))
	counting(t, recurs, "other", nil)
	eventually(t, "its schedule is listed", func() bool {
		for r := range each(t, seen.Recurring(t.Context())) {
			return r.Key == "daily" && r.Asserted
		}
		return false
	})
	undenied(t, c)
}

// Each role is denied commands beyond its rule, as an attacker with its password would send them.
func TestDenials(t *testing.T) {
	t.Parallel()
	server, c := redistest.StartAndDial(t)
	for _, cmd := range []string{
		"LPUSH worqr:queues:{emails} task", "LPUSH worqr:queues:{other} task", "LPUSH other:queues:{emails} task",
		"HSET worqr:tasks:{emails} k:ann 0:0:0:0:0:0:task",
	} {
		redistest.Do(t, c, "EVAL", redis.Args{"return redis.call(unpack(ARGV))", 0}.AddFlat(strings.Fields(cmd))...)
	}
	before := redistest.Keys(t, c, "*")
	for role, commands := range map[string]string{
		"producer": `
			LRANGE worqr:queues:{emails} 0 -1
			LINDEX worqr:queues:{emails} -1
			LPOS worqr:queues:{emails} task
			LLEN worqr:queues:{emails}
			RPOP worqr:queues:{emails}
			LMOVE worqr:queues:{emails} worqr:queues:{emails} LEFT RIGHT
			RPOPLPUSH worqr:queues:{emails} worqr:idle:{emails}
			LREM worqr:queues:{emails} 0 task
			DEL worqr:queues:{emails}
			SET worqr:queues:{emails} x
			HGET worqr:state:{emails} paused
			RPUSH worqr:queues:{emails} task
			LPUSH worqr:queues:{other} task
			LPUSH other:queues:{emails} task
			LPUSH worqr:process:{emails}:id task
			LPUSH worqr:idle:{emails} x
			ZPOPMIN worqr:workers:{emails}
			ZRANGE worqr:workers:{emails} 0 -1
			ZREM worqr:workers:{emails} x
			ZADD worqr:idle:{emails} 1 x
			HGET worqr:tasks:{emails} k:ann
			SREM worqr:registry emails
			SMEMBERS worqr:registry
			PUBLISH worqr_{emails}_cancel task
			PUBLISH worqr_{emails}_done {}
			PUBLISH worqr_{emails}_delete x
			PUBLISH worqr_{other}_work 1
			SUBSCRIBE worqr_{emails}_cancel
			PSUBSCRIBE *`,
		"worker": `
			LPUSH other:queues:{emails} task
			LRANGE other:queues:{emails} 0 -1
			LMOVE worqr:queues:{emails} other:queues:{emails} LEFT RIGHT
			GET worqrs
			SET elsewhere x
			PUBLISH other_{emails}_work 1
			SUBSCRIBE other_{emails}_work
			SUBSCRIBE __keyspace@0__:x
			PSUBSCRIBE *
			RENAME worqr:queues:{emails} worqr:aside
			COPY worqr:queues:{emails} worqr:aside
			MIGRATE 127.0.0.1 1 worqr:queues:{emails} 0 1
			MONITOR`,
		"observer": `
			DEL worqr:queues:{emails}
			LPUSH worqr:queues:{emails} task
			RPOP worqr:queues:{emails}
			HSET worqr:state:{emails} paused 1
			HSET worqr:tasks:{emails} k:ann x
			SADD worqr:registry x
			LRANGE other:queues:{emails} 0 -1
			PUBLISH worqr_{emails}_cancel task
			PUBLISH worqr_{emails}_work 1
			SUBSCRIBE other_{emails}_work
			PSUBSCRIBE *
			EVAL x 0
			EVALSHA x 0`,
	} {
		everybody := `
			KEYS *
			SCAN 0
			FLUSHALL
			FLUSHDB
			CONFIG GET *
			CONFIG SET maxmemory 1
			ACL LIST
			ACL SETUSER me +@all
			CLIENT LIST
			SCRIPT FLUSH
			FUNCTION FLUSH
			SHUTDOWN NOSAVE
			REPLICAOF NO ONE
			SAVE
			SWAPDB 0 1`
		url := redistest.As(t, server.URL(), role, ruled)
		for command := range strings.Lines(strings.TrimSpace(commands + everybody)) {
			command = strings.TrimSpace(command)
			t.Run(role+"/"+command, func(t *testing.T) {
				words := strings.Fields(command)
				_, err := redistest.Dial(t, url).Do(words[0], redis.Args{}.AddFlat(words[1:])...)
				if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
					t.Errorf("the %s: %v", role, err)
				}
				// The same applies inside a script, if the role may run scripts.
				_, err = redistest.Dial(t, url).Do("EVAL", redis.Args{"return redis.call(unpack(ARGV))", 0}.AddFlat(words)...)
				if err == nil || !regexp.MustCompile(`NOPERM|not allowed from script|user executing the script can't|ACL failure in script`).MatchString(err.Error()) {
					t.Errorf("the %s, in a script: %v", role, err)
				}
			})
		}
	}
	is.New(t).Equal(redistest.Keys(t, c, "*"), before)
}

// siblings are prefixes that begin like the prefix of the rules.
var siblings = []string{"worqr_b", "worqr:b", "worqrb", "worqr_", "worqr:failed_b", "worqr:failed:b", "worqr:queues", "worqr:workers", "worqr:queues:b"}

// keysOf returns all keys of a namespace: one of each kind for a queue and its failed queue, and
// those of the fleet.
func keysOf(s keys.Space, name, part string) (all []string) {
	for _, row := range keys.Table {
		all = append(all, row.Of(s.Queue(name), part))
		if !row.Fleet {
			all = append(all, row.Of(s.Queue(name).Failed(), part))
		}
	}
	return all
}

// Each rule names each kind of key, and nothing else. The producer's names only the keys of the
// producer's verbs.
func TestRulesNameKeys(t *testing.T) {
	is := parallel(t)
	named := func(role string) (all []string) {
		for _, w := range redistest.Rule(t, role, ruled) {
			if _, key, ok := strings.Cut(w, "~"); ok && !strings.HasPrefix(w, "(") {
				all = append(all, key)
			}
		}
		slices.Sort(all)
		return all
	}
	var every []string
	for _, key := range keysOf(keys.NewSpace(ruled), "*", "*") {
		before, _, ok := strings.Cut(key, ":{*}")
		if ok {
			before += ":{*"
		}
		every = append(every, before)
	}
	slices.Sort(every)
	for _, role := range []string{"worker", "doctor", "observer"} {
		is.Equal(named(role), every)
	}
	reached := map[string]bool{}
	for _, v := range store.Verbs() {
		header := regexp.MustCompile(`\w+`).FindAllString(regexp.MustCompile(`(?m)^-- KEYS .*`).FindString(v.Source()), -1)
		for _, row := range keys.Table {
			if v.Name == "enqueue" && !row.Fleet && slices.Contains(header, row.Kind) {
				reached[row.Of(keys.NewSpace(ruled).Queue(letters), "*")] = true
			}
		}
	}
	is.Equal(named("producer"), slices.Sorted(maps.Keys(reached)))
}

// A role can use every key and channel of its prefix, and none of a prefix that begins the
// same way.
func TestSiblingPrefixes(t *testing.T) {
	t.Parallel()
	_, c := redistest.StartAndDial(t)
	for _, role := range []string{"worker", "doctor", "observer"} {
		redistest.Do(t, c, "ACL", redis.Args{"SETUSER", role}.AddFlat(redistest.Rule(t, role, ruled))...)
		for _, prefix := range append(siblings, ruled) {
			s := keys.NewSpace(prefix)
			must(t, keys.CheckPrefix(prefix))
			var asked [][]any
			for _, key := range keysOf(s, "q", "019a2b3c-0000-7000-8000-000000000001") {
				asked = append(asked, []any{"EXISTS", key})
			}
			for _, k := range []keys.Kind{keys.KindWork, keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete} {
				asked = append(asked, []any{"PSUBSCRIBE", s.Pattern(k)},
					[]any{"SUBSCRIBE", s.Queue("q").Channel(k)}, []any{"SUBSCRIBE", s.Queue("q").Failed().Channel(k)})
			}
			asked = append(asked, []any{"SUBSCRIBE", s.Queue("q").Wake("w")}, []any{"SUBSCRIBE", s.Queue("q").Failed().Wake("w")})
			for _, command := range asked {
				says := sure(redis.String(c.Do("ACL", append([]any{"DRYRUN", role}, command...)...)))(t)
				if (says == "OK") != (prefix == ruled) {
					t.Errorf("the %s and %q: %s", role, command, says)
				}
			}
		}
	}
}

// Verbs that a role may not use fail with ErrDenied and Redis's NOPERM, and change nothing.
func TestDeniedVerbs(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	enqueue(t, as(t, server, "worker").Queue(letters), "task")
	before := redistest.Keys(t, c, ruled)
	may := map[string][]string{
		"producer": {"Enqueue", "EnqueueOnce"},
		"observer": {"Stats", "Tasks", "Named", "Running", "Queues", "Workers"},
	}
	for _, role := range []string{"producer", "observer"} { // the observer may not Forget the producer's nonce
		allowed := may[role]
		p := as(t, server, role)
		for verb, err := range verbs(t.Context(), p, p.Queue(letters)) {
			denied := errors.Is(err, worqr.ErrDenied) && strings.Contains(err.Error(), "NOPERM")
			if allowed := slices.Contains(allowed, verb); allowed && err != nil || !allowed && !denied {
				t.Errorf("the %s: %s: %v", role, verb, err)
			}
		}
	}
	is.Equal(slices.DeleteFunc(redistest.Keys(t, c, ruled), func(k string) bool { return strings.Contains(k, ":once:") }), before)
}

// With the worker's rule, Check and Repair fail with an error that names the denied command and
// the rule that allows it.
func TestCheckAsWorker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := as(t, server, "worker")
	for verb, call := range map[string]func(context.Context, *inspect.CheckOptions) (*inspect.CheckReport, error){"check": p.Check, "repair": p.Repair} {
		t.Run(verb, func(t *testing.T) {
			is := is.New(t)
			_, err := call(t.Context(), nil)
			is.True(errors.Is(err, worqr.ErrDenied))
			_, ok := errors.AsType[redis.Error](err)
			is.True(ok) // Redis's error is wrapped, too
			is.True(strings.HasPrefix(err.Error(), "worqr: "+verb+": permission denied: the Redis user may not run SCAN; "+
				"grant it the rule \"Doctor\" in docs/security.md: NOPERM "))
		})
	}
}

// The worker's rule has exactly the commands that the scripts, the Go code and the driver use.
// The doctor has those and its own. The other roles have a subset.
func TestRulesAreLeast(t *testing.T) {
	is := parallel(t)
	used := map[string]bool{}
	for _, w := range strings.Fields("AUTH SELECT ROLE PING ECHO EVAL EVALSHA SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE") {
		used[w] = true // redigo's pool sends ECHO to reuse a subscribed connection; ROLE is sent to masters named by sentinels
	}
	var code []string
	for _, f := range slices.Concat(matching(t, "../../*.go"), matching(t, "../../internal/*/*.go"), matching(t, "../../internal/store/*.lua")) {
		if slices.Contains([]string{"keyspace.go", "check.lua"}, filepath.Base(f)) {
			continue // only the doctor uses these
		}
		if !strings.HasSuffix(f, "_test.go") && !strings.HasPrefix(f, "../../internal/redistest/") && !strings.HasPrefix(f, "../../internal/peertest/") {
			code = append(code, f)
		}
	}
	named := regexp.MustCompile(`(?:Command\("|members\(ctx, r, "|call\('|size\(')([A-Z]+)["']`)
	for _, m := range named.FindAllStringSubmatch(contents(t, code...), -1) {
		used[m[1]] = true
	}
	allowed := func(role string) (all []string) {
		for _, w := range redistest.Rule(t, role, ruled) {
			for _, m := range regexp.MustCompile(`\+([a-z]+)`).FindAllStringSubmatch(w, -1) {
				all = append(all, strings.ToUpper(m[1]))
			}
		}
		slices.Sort(all)
		return all
	}
	for _, w := range []string{"ASKING", "CLUSTER", "SPUBLISH"} { // a separate rule in the document: see TestClusterUsers
		is.True(used[w])
		delete(used, w)
	}
	is.Equal(allowed("worker"), slices.Sorted(maps.Keys(used)))
	for _, role := range []string{"producer", "observer"} {
		for _, w := range allowed(role) {
			is.True(used[w])
		}
	}
	// A worker that also checks needs the doctor's rule.
	doctors := slices.Concat(slices.Collect(maps.Keys(used)), []string{"CONFIG", "HSCAN", "SCAN", "TYPE"})
	slices.Sort(doctors)
	is.Equal(allowed("doctor"), doctors)
	for _, v := range store.Verbs() {
		for _, m := range named.FindAllStringSubmatch(v.Source(), -1) {
			if v.Name == "enqueue" && !slices.Contains(allowed("producer"), m[1]) {
				t.Errorf("%s is for producers and uses %s, which they may not", v.Name, m[1])
			}
		}
	}
}

// A script can't use a command that its user's rule lacks. Redis 7.0, Redis 7.2 and Valkey 8.0
// word the error differently.
func TestDeniedInScript(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	redistest.Do(t, redistest.Dial(t, server.URL()), "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-hset")
	q := openAt(t, strings.Replace(server.URL(), "://", "://app:pw@", 1), worqr.Options{Prefix: "p"}).Queue("q")
	is.True(is_(failure(q.Add(t.Context(), worqr.TaskSpec{Key: "key", Payload: []byte("a")})), worqr.ErrDenied))
}
