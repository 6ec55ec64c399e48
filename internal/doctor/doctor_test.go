package doctor

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A ward is a fleet whose keys a test plants.
type ward struct {
	testing.TB
	is     *is.I
	conn   redis.Conn
	prefix string
	Config
}

func newWard(t *testing.T, url string) *ward {
	servers := redistest.Sure(store.Open(url, store.Access{}))(t)
	lines := store.NewLines(servers, logs.New(slog.New(slog.DiscardHandler)), 5*time.Second, time.Second)
	t.Cleanup(lines.Close)
	prefix := redistest.Prefix(t)
	return &ward{t, is.New(t), redistest.Dial(t, url), prefix,
		Config{Runner: lines.Calls, Space: store.SpaceOf(prefix), Lease: 100 * time.Millisecond, Prefix: prefix,
			Limits: inspect.CheckOptions{Ignore: []inspect.FindingKind{policy, persistence, replication, version, clock, memory, long, stalled, starved, late, jobLate}}}}
}

// plant runs commands on keys without their prefix: HSET tasks:{q} k:a A. now+9 stands for a time in ms.
func (w *ward) plant(commands ...string) {
	w.Helper()
	for _, c := range commands {
		words := strings.Fields(c)
		args := redis.Args{w.prefix + ":" + words[1]}
		for _, word := range words[2:] {
			if ms, ok := strings.CutPrefix(word, "now+"); ok {
				n := redistest.Sure(strconv.ParseInt(ms, 10, 64))(w)
				word = strconv.FormatInt(time.Now().UnixMilli()+n, 10)
			}
			args = args.Add(word)
		}
		redistest.Do(w, w.conn, words[0], args...)
	}
}

// examine returns the findings about keys, workers and tasks.
func (w *ward) examine(repair bool) (found []inspect.Finding, returned int) {
	w.Helper()
	w.Repair = repair
	r, returned, err := Examine(w.Context(), w.Config)
	w.is.NoErr(err)
	if strings.Contains(r.String(), "canary") {
		w.Errorf("the report shows what is secret:\n%s", r)
	}
	return r.Findings, returned
}

// dump returns all keys, byte for byte.
func (w *ward) dump() (all []string) {
	w.Helper()
	for _, key := range redistest.Keys(w, w.conn, w.prefix) {
		all = append(all, key+" "+redistest.Sure(redis.String(w.conn.Do("DUMP", key)))(w))
	}
	return all
}

// served is a queue that worker w1 serves. It runs a raw task and one with a key.
var served = []string{
	"SADD registry q", "SADD workers w1", "HSET worker:w1 name n host h pid 7 lease 60000",
	"HSET state:{q} token 5 place 5 lease 60000", "ZADD workers:{q} now+50000 w1", "HSET rounds:{q} w1 1", "ZADD idle:{q} 1 w1",
	"ZADD working:{q}:w1 1 w1.1.9.1 2 w1.1.9.2n", "RPUSH process:{q}:w1.1.9.1 canary-a", "RPUSH process:{q}:w1.1.9.2n k:canary-run",
	"HSET tasks:{q} k:canary-run 1:0:0:0:0:0:canary-b", "HSET runs:{q} k:canary-run w1.1.9.2n:0:0:",
}

// Check finds each damage, and changes nothing. Repair mends what it can, and Check then finds nothing. No
// secret is shown.
func TestExamineDamages(t *testing.T) {
	t.Parallel()
	const named = "HSET tasks:{q} k:canary 1:0:0:0:0:0:canary"
	for _, d := range []struct {
		plant    string
		kind     inspect.FindingKind
		severity inspect.Severity
		key      string
		heals    bool
		returned int
	}{
		{"RPUSH process:{q}:w1.1.8.1 canary", orphan, "stuck", "process:{q}:w1.1.8.1", true, 1},
		{"RPUSH failed:process:{q}:w1.1.8.1 canary", orphan, "stuck", "failed:process:{q}:w1.1.8.1", true, 1},
		{named + " ; HSET runs:{q} k:canary w1.1.8.1n:0:0:", orphan, "stuck", "runs:{q}", true, 1},
		{"ZADD working:{q}:w9 3 w9.1.9.1 4 w9.1.9.2 ; RPUSH process:{q}:w9.1.9.1 canary ; RPUSH process:{q}:w9.1.9.2 canary", orphan, "stuck", "working:{q}:w9", true, 2},
		{"ZADD working:{q}:w1 3 w1.1.8.1", lost, "lost", "process:{q}:w1.1.8.1", false, 0},
		{"ZADD ready:{q} 3 k:canary", lost, "lost", "ready:{q}", false, 0},
		{"HSET state:{q} token 1", token, "stopped", "state:{q}", true, 0},
		{"HSET state:{q} token x", token, "stopped", "state:{q}", false, 0},
		{"HSET state:{q} look 1.5", token, "stopped", "state:{q}", false, 0},
		{named + " ; ZADD ready:{q} 7 k:canary", token, "stopped", "state:{q}", true, 0},
		{"ZADD recurring:{q} 9e15 k:canary ; HSET recurrence:{q} k:canary 2|0:0:0:0:0:0: passed:k:canary 1 prints:k:canary 1", recurring, "stuck", "recurring:{q}", true, 0},
		{"ZADD recurring:{q} 1 k:canary", disagree, "stuck", "recurring:{q}", false, 0},
		{named, disagree, "stuck", "tasks:{q}", false, 0},
		{named + " ; ZADD ready:{q} 1 k:canary ; ZADD schedule:{q} now+50000 k:canary", disagree, "stuck", "tasks:{q}", false, 0},
		{"HSET tasks:{q} k:canary canary ; ZADD ready:{q} 1 k:canary", disagree, "stuck", "tasks:{q}", false, 0},
		{"ZADD copies:{q} 0 r:canary:1", disagree, "stuck", "copies:{q}", false, 0},
		{"ZADD idle:{q} 1 w9", disagree, "stuck", "idle:{q}", false, 0},
		{"ZADD suspects:{q} 1 w9", disagree, "stuck", "suspects:{q}", false, 0},
		{"SET crashes:{q} x", foreign, "stopped", "crashes:{q}", false, 0},
		{"SET worker:w9 x", foreign, "stopped", "worker:w9", false, 0},
		{"SET protocol:{q} x", unknown, "notice", "protocol:{q}", false, 0},
		{"LPUSH queues:q x", unknown, "stuck", "queues:q", false, 0}, // without braces
		{"SET x:queues:{q} x", "", "", "", false, 0},                 // of another fleet
		{"SET once:{q}:n k:a ; SET result:{q}:k:a x ; SET canceled:{q}:x 1 ; HSET crashes:{q} x 1 ; ZADD ages:{q} 1 1", "", "", "", false, 0},
		{"ZADD workers:{q} 9e15 w9 ; HSET rounds:{q} w9 1", deadWorker, "stuck", "workers:{q}", true, 0},
	} {
		t.Run(d.plant, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, redistest.URL())
			w.plant(served...)
			before, _ := w.examine(false)
			w.is.Equal(before, nil)
			w.plant(strings.Split(d.plant, " ; ")...)
			dump := w.dump()
			found, _ := w.examine(false)
			w.is.Equal(w.dump(), dump)
			if d.kind == "" {
				w.is.Equal(found, nil)
				return
			}
			if len(found) != 1 {
				t.Fatalf("found: %v", found)
			}
			f := found[0]
			w.is.Equal([]any{f.Kind, f.Severity, f.Key, f.Repaired}, []any{d.kind, d.severity, w.prefix + ":" + d.key, false})
			found, returned := w.examine(true)
			if len(found) != 1 || found[0].Repaired != d.heals {
				t.Fatalf("repaired: %v", found)
			}
			w.is.Equal(returned, d.returned)
			if d.heals {
				found, _ = w.examine(false)
				w.is.Equal(found, nil)
			}
		})
	}
}

// If nobody serves a queue, Repair evicts dead workers and ends returns that nobody ends. What waits is
// reported, with the key of those who would serve it.
func TestExamineUnserved(t *testing.T) {
	t.Parallel()
	held := []string{"HSET state:{q} token 5 place 5 lease 60000", "ZADD working:{q}:w9 1 w9.1.9.1", "RPUSH process:{q}:w9.1.9.1 canary", "SADD workers w9", "HSET worker:w9 name n"}
	for _, d := range []struct {
		plant []string
		kinds []inspect.FindingKind
		key   string
		heals bool
	}{
		{append(slices.Clone(held), "ZADD workers:{q} 1 w9", "HSET rounds:{q} w9 1"), []inspect.FindingKind{unserved, deadWorker}, "workers:{q}", true},
		{append(slices.Clone(held), "ZADD leaving:{q} 1 w9"), []inspect.FindingKind{deadWorker}, "leaving:{q}", true},
		{[]string{"LPUSH queues:{q} canary"}, []inspect.FindingKind{unserved}, "workers:{q}", false},
		{[]string{"HSET state:{q} place 1", "HSET tasks:{q} k:canary 1:0:0:0:0:0:x", "ZADD ready:{q} 1 k:canary"}, []inspect.FindingKind{unserved}, "workers:{q}", false},
		{[]string{"HSET tasks:{q} k:canary 1:0:0:0:0:0:x", "ZADD schedule:{q} 1 k:canary"}, []inspect.FindingKind{unserved}, "workers:{q}", false},
		{[]string{"LPUSH queues:{q} canary", "HSET state:{q} paused 1:me"}, []inspect.FindingKind{unserved, paused}, "workers:{q}", false},
		{[]string{"HSET failed:tasks:{q} r:x:1 0:0:0:0:0:31:crashed:9:w:w.1.1.1:0:0:0:3:whya", "ZADD failed:ready:{q} 1 r:x:1", "ZADD failed:copies:{q} 0 r:x:1", "HSET failed:state:{q} place 1"},
			[]inspect.FindingKind{failed}, "failed:ready:{q}", false},
	} {
		t.Run(strings.Join(d.plant, " ; "), func(t *testing.T) {
			t.Parallel()
			w := newWard(t, redistest.URL())
			w.plant(d.plant...)
			for _, repair := range []bool{false, true} {
				found, _ := w.examine(repair)
				var kinds []inspect.FindingKind
				for _, f := range found {
					kinds = append(kinds, f.Kind)
				}
				w.is.Equal(kinds, d.kinds)
				w.is.Equal(found[0].Key, w.prefix+":"+d.key)
				w.is.Equal(found[len(found)-1].Repaired, repair && d.heals)
			}
			found, _ := w.examine(false)
			if d.heals { // the task waits, and its worker is gone
				w.is.Equal(len(found), 1)
				w.is.Equal(found[0].Kind, unserved)
				w.is.Equal(redistest.Do(t, w.conn, "EXISTS", w.prefix+":workers:{q}", w.prefix+":leaving:{q}", w.prefix+":process:{q}:w9.1.9.1"), int64(0))
			}
		})
	}
}

// A worker that has sent a heartbeat before the second look isn't dead.
func TestSecondLook(t *testing.T) {
	t.Parallel()
	for deadline, evicted := range map[string]bool{"1": true, "2": false} {
		w := newWard(t, redistest.URL())
		w.plant("ZADD workers:{q} "+deadline+" w1", "HSET rounds:{q} w1 1", "HSET state:{q} token 1")
		w.Repair = true
		q := w.Space.Queue("q")
		c := &checkup{Config: w.Config, ctx: t.Context(), exams: map[store.Keys]*exam{}, said: map[string]bool{}}
		w.is.NoErr(c.secondLook(c.exam(store.Key{Queue: &q, Name: "q"}), invariants.Found{Flaw: invariants.Dead, Name: "w1", Detail: "1"}))
		w.is.Equal(len(c.report.Findings) == 1, evicted)
		w.is.Equal(redistest.Do(t, w.conn, "ZSCORE", w.prefix+":workers:{q}", "w1") == nil, evicted)
	}
}

// Repair gives the oldest of several orphans back to the front.
func TestRepairOrder(t *testing.T) {
	t.Parallel()
	w := newWard(t, redistest.URL())
	w.plant(served...)
	w.plant("LPUSH queues:{q} z", "RPUSH process:{q}:w1.1.30.1 c", "RPUSH process:{q}:w1.1.20.1 b", "RPUSH process:{q}:w1.1.10.1 a")
	_, returned := w.examine(true)
	w.is.Equal(returned, 3)
	w.is.Equal(fmt.Sprintf("%s", redistest.Do(t, w.conn, "LRANGE", w.prefix+":queues:{q}", 0, -1)), "[z c b a]")
}
