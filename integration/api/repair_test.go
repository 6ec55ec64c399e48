package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Repair returns orphaned tasks in the order in which they had started, and they run again.
func TestRepairRuns(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	gone := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, gone, "q")
	enqueue(t, q, numbers("t", 300)...)
	is.NoErr(q.Put(t.Context(), "x", []byte("keyed"), nil))
	is.Equal(len(sure(q.StartTasks(t.Context(), 251))(t)), 251)
	for _, key := range []string{"workers", "working", "rounds"} { // Redis loses the worker
		name := prefix + ":" + key + ":{q}"
		if key == "working" {
			name += ":" + gone.WorkerID()
		}
		redistest.Do(t, conn, "DEL", name)
	}
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	report := sure(doctor.Repair(t.Context(), nil))(t)
	is.True(report.OK())
	is.Equal(count(report, "orphan"), 251)
	is.Equal(waiting(t, doctor.Queue("q")), append([]string{"keyed"}, numbers("t", 300)...))
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.True(report.OK())
	is.NoErr(doctor.Queue("q").Put(t.Context(), "x", []byte("again"), nil)) // the key is free
	got := make(chan string, 400)
	p := open(t, worqr.Options{Prefix: prefix})
	p.Queue("q").Handle(tell(got), &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	is.Equal(receive(t, got, 301), append([]string{"again"}, numbers("t", 300)...))
}

// Repair fixes all damage to the data about tasks: a second check finds nothing, and no payload is
// lost.
func TestRepairDamage(t *testing.T) {
	eachSeed(t, 2, func(t *testing.T, seed uint64) {
		f := newFleet(t, rand.NewPCG(seed, 0))
		for range 80 {
			f.step()
		}
		before := f.payloads()
		var done []string
		for range 1 + f.r.IntN(4) {
			done = append(done, f.harm())
		}
		defer func() {
			if t.Failed() {
				t.Logf("to repeat it: -run TestRepairDamage -random.seed %d -random.seeds 1; the damage was\n%s", seed, strings.Join(done, "\n"))
			}
		}()
		doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: f.prefix, Lease: 150 * time.Millisecond})
		repaired := sure(doctor.Repair(t.Context(), nil))(t)
		checked := sure(doctor.Check(t.Context(), nil))(t)
		for _, ill := range ills(checked) {
			if ill.Kind != "no-worker" && ill.Kind != "paused" && ill.Kind != "worker-list" { // live workers write these again
				t.Errorf("after the repair, %v", ill)
			}
		}
		after := f.payloads()
		for payload, n := range before {
			if after[payload] < n {
				t.Errorf("%d of %q are left of %d", after[payload], payload, n)
			}
		}
		if t.Failed() {
			t.Log(repaired)
		}
	})
}

// A task that can't be returned because its key has the wrong type isn't reported as repaired. Once
// the key is free, it is.
func TestRepairBesideForeignType(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	for _, c := range [][]any{{"LPUSH", ":process:{q}:p1", "a"}, {"ZADD", ":working:{q}:w9", 1, "p1"}, {"ZADD", ":holders:{q}", 0, "w9"}, {"SET", ":token:{q}", 1}, {"SET", ":queues:{q}", "x"}, {"SADD", ":registry", "q"}} {
		c[1] = prefix + c[1].(string)
		redistest.Do(t, conn, c[0].(string), c[1:]...)
	}
	for range 2 {
		report := sure(doctor.Repair(t.Context(), nil))(t)
		is.True(!report.OK())
		is.Equal(count(report, "wrong-type"), 1)
		for _, f := range ills(report) {
			is.True(!f.Repaired)
		}
	}
	redistest.Do(t, conn, "DEL", prefix+":queues:{q}")
	is.True(sure(doctor.Repair(t.Context(), nil))(t).OK())
	is.Equal(waiting(t, doctor.Queue("q")), []string{"a"})
}

// Repair continues the return of a leaving worker's tasks, and stops if the worker has rejoined.
func TestRepairOfWhoComesBack(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	half, rest := make(chan struct{}), make(chan struct{})
	var first sync.Once
	link := &tamper{Url: server.URL(), After: func(verb string, _ []any) {
		if verb == "leave" {
			first.Do(func() { close(half); hold(t, rest) })
		}
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, numbers("", 150)...) // more than one call can return
	sure(q.StartTasks(t.Context(), 150))(t)
	left := make(chan error, 1)
	go func() { left <- q.StopWork(context.Background()) }()
	receiveClosed(t, half)

	fails, back := make(chan struct{}), make(chan struct{})
	var once sync.Once
	tool := &tamper{Url: redistest.Doctor(t, server.URL(), "p"), Before: func(verb string, _ []any) error {
		if verb == "fail" {
			once.Do(func() { close(fails); hold(t, back) })
		}
		return nil
	}}
	doctor := tool.Open(t, worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	repaired := make(chan error, 1)
	go func() { _, err := doctor.Repair(context.Background(), nil); repaired <- err }()
	receiveClosed(t, fails)
	close(rest)
	is.Equal(receive(t, left, 1), []error{nil})
	is.NoErr(q.StartWork(t.Context()))
	task := take(t, q)
	close(back)
	is.Equal(receive(t, repaired, 1), []error{nil})
	is.NoErr(task.Finish(t.Context()))
	is.Equal(p.Stats().TimesEvicted, int64(0))
}

// payloads counts the payloads in Redis, except those that a cancel covers and those that will be
// replaced when a running task with a key returns.
func (f *fleet) payloads() map[string]int {
	f.t.Helper()
	all := map[string]int{}
	strs := func(v any, err error) []string { return sure(redis.Strings(v, err))(f.t) }
	replaced, canceled := map[string]bool{}, map[string]bool{}
	keys := redistest.Keys(f.t, f.c, f.prefix)
	for _, key := range keys {
		switch rest := strings.TrimPrefix(strings.TrimPrefix(key, f.prefix), ":failed"); {
		case strings.HasPrefix(rest, ":keyed:"):
			fields := sure(redis.StringMap(f.c.Do("HGETALL", key)))(f.t)
			payload, waits := fields["payload"]
			switch {
			case waits && fields["keep"] == "1": // the running one replaces it
			case waits:
				all[payload]++
				replaced[strings.Replace(strings.SplitN(key, "{q}", 2)[0], "keyed", "process", 1)+"{q}:"+fields["process"]] = true
			}
		case strings.HasPrefix(rest, ":added:"):
			for _, item := range sure(redis.Values(f.c.Do("XRANGE", key, "-", "+")))(f.t) {
				pair := strs(sure(redis.Values(item, nil))(f.t)[1], nil)
				all[pair[1]]++
			}
		case strings.HasPrefix(rest, ":canceled:"):
			for _, name := range strs(f.c.Do("ZRANGE", key, 0, -1)) {
				canceled[name] = true
			}
		}
	}
	entries := sure(redis.StringMap(f.c.Do("HGETALL", f.prefix+":entries:{q}")))(f.t)
	for _, key := range keys {
		rest := strings.TrimPrefix(strings.TrimPrefix(key, f.prefix), ":failed")
		if !strings.HasPrefix(rest, ":queues:") && !strings.HasPrefix(rest, ":process:") || replaced[key] {
			continue
		}
		_, id, _ := strings.Cut(rest, "{q}:")
		for _, payload := range strs(f.c.Do("LRANGE", key, 0, -1)) {
			if !canceled[sha(payload)] && !canceled[entries[id]] {
				all[payload]++
			}
		}
	}
	return all
}

// harm damages data that isn't a task.
func (f *fleet) harm() string {
	f.t.Helper()
	var keys []string
	for _, key := range redistest.Keys(f.t, f.c, f.prefix) {
		rest := strings.TrimPrefix(strings.TrimPrefix(key, f.prefix), ":failed")
		if !strings.HasPrefix(rest, ":queues:") && !strings.HasPrefix(rest, ":process:") && !strings.HasPrefix(rest, ":added:") {
			keys = append(keys, key)
		}
	}
	key := keys[f.r.IntN(len(keys))]
	do := func(command string, args ...any) string {
		redistest.Do(f.t, f.c, command, append([]any{key}, args...)...)
		return fmt.Sprintln(command, key, args)
	}
	kind := sure(redis.String(f.c.Do("TYPE", key)))(f.t)
	if strings.Contains(key, ":keyed:") {
		return do("HDEL", []any{"process", "due", "tried", "low"}[f.r.IntN(4)])
	}
	if f.r.IntN(2) == 0 || kind == "string" {
		return do("DEL")
	}
	remove := map[string][2]string{"zset": {"ZRANGE", "ZREM"}, "hash": {"HKEYS", "HDEL"}, "set": {"SMEMBERS", "SREM"}}[kind]
	args := []any{key}
	if kind == "zset" {
		args = append(args, 0, -1)
	}
	members := sure(redis.Strings(f.c.Do(remove[0], args...)))(f.t)
	slices.Sort(members)
	if kind == "zset" && f.r.IntN(3) == 0 {
		return do("ZADD", f.r.IntN(100), members[f.r.IntN(len(members))])
	}
	return do(remove[1], members[f.r.IntN(len(members))])
}
