package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// damage is planted under the prefix p, next to a queue that worker w1 serves.
type damage struct {
	name     string
	plant    []string
	kind     inspect.FindingKind
	severity inspect.Severity
	heals    bool     // Repair repairs it
	alone    bool     // no worker serves the queue
	tasks    []string // in the queue afterwards, sorted
	also     []inspect.FindingKind
}

var (
	a, b, k = canary + "a", canary + "b", "k:" + canary + "k"

	waitsK  = "HSET p:keyed:{q}:" + k + " payload " + a + " due " + far + " retries 0 crashes 0"
	planK   = "ZADD p:schedule:{q} " + far + " " + k
	holdsK  = "ZADD p:contents:{q} 0 " + sha(a) + ":" + k
	runsK   = "HSET p:keyed:{q}:" + k + " process p1 tried 0 died 0"
	heldP   = "ZADD p:working:{q}:w1 1 p1"
	holdsW1 = "ZADD p:holders:{q} 0 w1"
	holdsW9 = "ZADD p:holders:{q} 0 w9"
	listP   = "LPUSH p:process:{q}:p1 " + a
	tokens  = "SET p:token:{q} 5"
	recursK = "HSET p:recurrence:{q}:" + k + " print 1:1a since 1 passed 1 late 0 more 1 times 2"
	marksP  = "HSET p:entries:{q} p1 " + k
)

var damages = []damage{
	{name: "orphan", plant: []string{tokens, listP, "LPUSH p:queues:{q} " + b}, kind: "orphan", severity: inspect.SeverityError, heals: true, tasks: []string{a, b}},
	{name: "orphan in the failed queue", plant: []string{"LPUSH p:failed:process:{q}:p1 " + a}, kind: "orphan", severity: inspect.SeverityError, heals: true},
	{name: "twice", plant: []string{tokens, listP, heldP, holdsW1, "ZADD p:working:{q}:w9 2 p1", holdsW9, "ZADD p:suspects:{q} -1 w9"}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "lost", plant: []string{tokens, heldP, holdsW1}, kind: "no-payload", severity: inspect.SeverityError},
	{name: "stray", plant: []string{tokens, listP, "ZADD p:working:{q}:w9 1 p1", holdsW9}, kind: "orphan", severity: inspect.SeverityError, heals: true, tasks: []string{a}},
	{name: "not planned", plant: []string{waitsK, holdsK}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "planned, and not there", plant: []string{planK}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "in contents, and not there", plant: []string{holdsK}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "blocked by nothing", plant: []string{tokens, waitsK, holdsK, runsK, marksP}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "runs without its entry", plant: []string{tokens, listP, heldP, holdsW1, marksP}, kind: "inconsistent", severity: inspect.SeverityError, tasks: []string{a}},
	{name: "runs without a mark", plant: []string{tokens, listP, heldP, holdsW1, runsK}, kind: "inconsistent", severity: inspect.SeverityError, tasks: []string{a}},
	{name: "cancel in the log though nothing runs", plant: []string{"ZADD p:canceled:{q} 1 " + sha(a)}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "cancel of a key in the log though nothing runs", plant: []string{"ZADD p:canceled:{q} 1 " + k}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "of a fleet whose prefix is a part of ours and :worker", plant: []string{"SET p:worker:queues:{q} x", "SADD p:worker:worker:w1 x", "SET p:worker:keyed:{q}:k:x x"}},
	{name: "cancel with a token to come", plant: []string{tokens, listP, heldP, holdsW1, "ZADD p:canceled:{q} 9 " + sha(b)}, kind: "inconsistent", severity: inspect.SeverityError, tasks: []string{a}},
	{name: "holds something and is not known to", plant: []string{tokens, listP, heldP}, kind: "inconsistent", severity: inspect.SeverityError, tasks: []string{a}},
	{name: "holds nothing and is known to", plant: []string{tokens, holdsW9}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "recurs without a record", plant: []string{"ZADD p:recurring:{q} 1 " + k}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "recurs forever", plant: []string{"ZADD p:recurring:{q} 9e15 " + k, recursK}, kind: "recurring", severity: inspect.SeverityError, heals: true},
	{name: "recurs, and is not known to", plant: []string{recursK}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "recurs at no times", plant: []string{"ZADD p:recurring:{q} 1 " + k, recursK, "HDEL p:recurrence:{q}:" + k + " times print"}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "idle", plant: []string{"ZADD p:idle:{q} 1 w9"}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "suspect", plant: []string{"ZADD p:suspects:{q} 1 w9"}, kind: "inconsistent", severity: inspect.SeverityError},
	{name: "token behind", plant: []string{"ZADD p:working:{q}:w1 9 p1", holdsW1, listP, tokens}, kind: "token", severity: inspect.SeverityError, heals: true, tasks: []string{a}},
	{name: "token that is none", plant: []string{"SET p:token:{q} x"}, kind: "token", severity: inspect.SeverityError},
	{name: "the list is a string", plant: []string{"SET p:queues:{q} x"}, kind: "wrong-type", severity: inspect.SeverityError},
	{name: "schedule is a list", plant: []string{"LPUSH p:schedule:{q} x"}, kind: "wrong-type", severity: inspect.SeverityError},
	{name: "workers of the failed queue is a list", plant: []string{"LPUSH p:failed:workers:{q} x"}, kind: "wrong-type", severity: inspect.SeverityError},
	{name: "suspects is a list", plant: []string{"LPUSH p:suspects:{q} x"}, kind: "wrong-type", severity: inspect.SeverityError},
	{name: "an entry is a string", plant: []string{"SET p:keyed:{q}:" + k + " x"}, kind: "wrong-type", severity: inspect.SeverityError},
	{name: "a registration is a string", plant: []string{"SET p:worker:w9 x"}, kind: "wrong-type", severity: inspect.SeverityError},
	{name: "unknown", plant: []string{"SET p:jobs:{q} x"}, kind: "unknown-key", severity: inspect.SeverityNotice},
	{name: "of another fleet", plant: []string{"SET p:x:queues:{q} x"}},
	{name: "dead", alone: true, plant: []string{tokens, listP, "ZADD p:working:{q}:w9 1 p1", holdsW9, "ZADD p:workers:{q} 1 w9", "SADD p:registry q"}, kind: "expired-worker", severity: inspect.SeverityWarning, heals: true,
		tasks: []string{a}, also: []inspect.FindingKind{"no-worker"}},
	{name: "unfinished", alone: true, plant: []string{tokens, listP, "ZADD p:working:{q}:w9 1 p1", holdsW9, "ZADD p:suspects:{q} 0 w9", "SADD p:registry q"}, kind: "expired-worker", severity: inspect.SeverityWarning, heals: true,
		tasks: []string{a}, also: []inspect.FindingKind{"no-worker"}},
	{name: "unserved", alone: true, plant: []string{"LPUSH p:queues:{q} " + a, "SADD p:registry q"}, kind: "no-worker", severity: inspect.SeverityWarning, tasks: []string{a}},
	{name: "failed tasks may stay", alone: true, plant: []string{"SADD p:registry q",
		"HSET p:failed:keyed:{q}:" + k + " payload " + a + " due 1 retries 0 crashes 0 kind failed reason r", "ZADD p:failed:schedule:{q} 1 " + k, "ZADD p:failed:contents:{q} 0 " + sha(a) + ":" + k}},
}

// A queue that is listed, or has keys, is never reported as unknown.
func TestExplainKnownQueue(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: "key", Payload: []byte("a")}))(t)
	looker := open(t, worqr.Options{Prefix: prefix})
	unknown := func() bool {
		t.Helper()
		for i := range 20 {
			if sure(looker.Queue("q").Explain(t.Context(), worqr.Query{Key: fmt.Sprint("other", i)}))(t).NoSuchQueue {
				return true
			}
		}
		return sure(looker.Queue("q").Explain(t.Context(), worqr.Query{Payload: []byte("b")}))(t).NoSuchQueue
	}
	var names []string
	for name := range redistest.Each(t, looker.Queues(t.Context())) {
		names = append(names, name)
	}
	is.Equal(names, []string{"q"})
	is.True(!unknown())
	is.True(sure(q.RemoveKey(t.Context(), "key"))(t))
	is.True(!unknown())
	redistest.Do(t, redistest.Conn(t), "DEL", prefix+":registry")
	is.True(unknown())
	sure(looker.Queue("q").Add(t.Context(), worqr.TaskSpec{Payload: []byte("c")}))(t)
	redistest.Do(t, redistest.Conn(t), "DEL", prefix+":registry") // a producer may lack the permission to list it
	is.True(!unknown())
}

// If no worker serves a queue, the finding names a key that has tasks.
func TestUnservedKey(t *testing.T) {
	t.Parallel()
	for kind, enqueue := range map[string]func(ctx context.Context, q *worqr.Queue) error{
		"queues": func(ctx context.Context, q *worqr.Queue) error { return q.Enqueue(ctx, []byte("a")) },
		"added": func(ctx context.Context, q *worqr.Queue) error {
			_, err := q.Add(ctx, worqr.TaskSpec{Payload: []byte("a")})
			return err
		},
		"schedule": func(ctx context.Context, q *worqr.Queue) error {
			return failure(q.Add(ctx, worqr.TaskSpec{Key: "key", Payload: []byte("a")}))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			p := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
			is.NoErr(enqueue(t.Context(), p.Queue("q")))
			for _, f := range sure(p.Check(t.Context(), nil))(t).Findings {
				if f.Kind == "no-worker" {
					is.Equal(f.Key, prefix+":"+kind+":{q}")
					return
				}
			}
			t.Error("it isn't found")
		})
	}
}

// Check finds all damage and changes nothing. Repair repairs what it can, and Check then finds
// nothing. No task is lost, and no secret is shown.
func TestCheckDamages(t *testing.T) {
	t.Parallel()
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
			q, conn := doctor.Queue("q"), redistest.Conn(t)
			plant := d.plant
			if !d.alone {
				plant = append(slices.Clone(member), plant...)
			}
			for _, line := range plant {
				words := strings.Fields(line)
				args := []any{prefix + strings.TrimPrefix(words[1], "p")}
				for _, w := range words[2:] {
					args = append(args, w)
				}
				redistest.Do(t, conn, words[0], args...)
			}
			look := func(do func(context.Context, *inspect.CheckOptions) (*inspect.CheckReport, error)) (found []inspect.Finding) {
				report := sure(do(t.Context(), nil))(t)
				if strings.Contains(report.String(), canary) {
					t.Errorf("the report tells what is secret:\n%s", report)
				}
				return ills(report)
			}
			before := dump(t, conn, prefix)
			for range 2 {
				found := look(doctor.Check)
				if d.kind == "" {
					is.Equal(len(found), 0)
					continue
				}
				if len(found) != 1 {
					t.Fatalf("found %v, want one %s", found, d.kind)
				}
				f := found[0]
				is.Equal(f.Kind, d.kind)
				is.Equal(f.Severity, d.severity)
				is.True(!f.Repaired)
				is.True(strings.HasPrefix(f.Key, prefix+":")) // a key in Redis
			}
			is.Equal(dump(t, conn, prefix), before) // Check changes nothing
			if d.kind == "" {
				return
			}
			found := slices.DeleteFunc(look(doctor.Repair), func(f inspect.Finding) bool { return slices.Contains(d.also, f.Kind) })
			is.Equal(len(found), 1)
			is.Equal(found[0].Repaired, d.heals)
			if d.heals {
				left := slices.DeleteFunc(look(doctor.Check), func(f inspect.Finding) bool { return slices.Contains(d.also, f.Kind) })
				is.Equal(len(left), 0)
				left = slices.DeleteFunc(look(doctor.Repair), func(f inspect.Finding) bool { return slices.Contains(d.also, f.Kind) })
				is.Equal(len(left), 0)
			}
			if d.tasks != nil {
				all := waiting(t, q)
				for r := range each(t, q.Running(t.Context())) {
					all = append(all, string(r.Payload))
				}
				is.Equal(slices.Sorted(slices.Values(all)), d.tasks)
			}
		})
	}
}

// dump returns the keyspace, byte for byte.
func dump(t testing.TB, conn redis.Conn, prefix string) (all []string) {
	t.Helper()
	for _, key := range redistest.Keys(t, conn, prefix) {
		value := sure(redis.String(conn.Do("DUMP", key)))(t)
		all = append(all, key+" "+value)
	}
	return all
}

// After Redis has stalled, all leases have expired, but no worker is dead.
func TestCheckAfterStall(t *testing.T) {
	is := parallel(t)
	const lease = time.Second
	server := redistest.Start(t)
	for range 2 {
		q := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease})
		working(t, q, "q")
	}
	doctor := openDoctor(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease})
	for range 3 {
		server.Pause(t)
		time.Sleep(2 * lease) // meanwhile, all leases expire
		var report *inspect.CheckReport
		done := make(chan error, 1)
		go func() {
			var err error
			report, err = doctor.Repair(context.Background(), nil)
			done <- err
		}()
		server.Resume(t)
		is.NoErr(receive(t, done, 1)[0])
		for _, f := range ills(report) {
			t.Errorf("after a stall: %v", f)
		}
	}
	is.Equal(sure(doctor.Queue("q").Stats(t.Context()))(t).Workers, 2)
}

// severities returns the severities of the other findings, one for each kind.
func severities(r *inspect.CheckReport) map[inspect.FindingKind]inspect.Severity {
	all := map[inspect.FindingKind]inspect.Severity{}
	for _, f := range ills(r) {
		all[f.Kind] = f.Severity
	}
	return all
}

// A pause with waiting tasks is a notice, and a warning while the backlog grows. It doesn't hide
// that no worker serves the queue.
func TestCheckPaused(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, p, "q")
	is.NoErr(q.Pause(t.Context()))
	report, err := doctor.Check(t.Context(), nil)
	is.NoErr(err)
	is.Equal(len(ills(report)), 0) // nothing waits

	enqueue(t, q, "a")
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityNotice})
	is.True(report.OK())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	growing := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = q.Enqueue(context.Background(), []byte("a"))
		}
		growing <- err
	}()
	report, err = doctor.Check(t.Context(), nil)
	stop()
	is.NoErr(<-growing)
	is.NoErr(err)
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityWarning})
	is.True(report.OK())

	must(t, p.StopWorker(t.Context()))
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityNotice, "no-worker": inspect.SeverityWarning})
}

// Findings beyond the limit of a report are counted, and Repair repairs them.
func TestCheckMany(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	for i := range 1000 + 500 {
		is.NoErr(conn.Send("LPUSH", fmt.Sprintf("%s:process:{q}:p%05d", prefix, i), fmt.Sprint(i)))
	}
	redistest.Do(t, conn, "")
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	report := sure(doctor.Check(t.Context(), nil))(t)
	is.True(!report.OK())
	is.Equal(len(report.Findings), 1000)
	is.True(report.Omitted >= 500)
	report = sure(doctor.Repair(t.Context(), nil))(t)
	is.True(report.OK())
	is.Equal(len(waiting(t, doctor.Queue("q"))), 1000+500)
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.True(report.OK())
}

// Explain covers each state of a task.
func TestExplain(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	looker := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	payload := []byte(canary)
	explain := func(want ...string) *inspect.Explanation {
		t.Helper()
		e := sure(looker.Explain(t.Context(), worqr.Query{Payload: payload}))(t)
		is.Equal(told(e), want)
		if s := e.String(); s == "" || strings.Contains(s, canary) {
			t.Errorf("it says %q", s)
		}
		return e
	}
	e := explain()
	is.True(e.NoSuchQueue)
	is.True(strings.Contains(e.String(), fmt.Sprintf("No queue \"q\" exists under the prefix %q", prefix)))
	add(t, looker, worqr.TaskSpec{Key: "key", Payload: payload, At: time.Now().Add(time.Hour)})
	e = explain("scheduled not-due no-worker")
	is.True(!e.NoSuchQueue)
	is.True(strings.Contains(e.String(), "No worker serves this queue"))
	is.NoErr(looker.Pause(t.Context()))
	explain("scheduled not-due paused")
	is.NoErr(looker.Resume(t.Context()))
	sure(looker.RemoveKey(t.Context(), "key"))(t)
	e = explain() // none of its keys exists anymore; only its name is listed
	is.True(!e.NoSuchQueue)
	is.True(strings.Contains(e.String(), "No copy"))
	enqueue(t, looker, "first", canary)
	e = explain("waiting no-worker behind")
	is.Equal(e.Copies[0].Before, 1)
	is.True(strings.Contains(e.String(), "No worker serves this queue"))
	is.NoErr(looker.Pause(t.Context()))
	explain("waiting paused behind")
	is.NoErr(looker.Resume(t.Context()))

	peer := open(t, worqr.Options{Prefix: prefix, Lease: 500 * time.Millisecond, Name: "the worker"})
	q := working(t, peer, "q")
	explain("waiting busy behind")
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	c := explain("running").Copies[0]
	host, _ := os.Hostname()
	is.Equal(c.AttemptID, tasks[1].AttemptID)
	is.Equal(c.Token, tasks[1].Token)
	is.Equal(c.WorkerID, peer.WorkerID())
	is.Equal(c.WorkerName, "the worker")
	is.Equal(c.Host, host)
	is.Equal(c.PID, os.Getpid())
	is.True(time.Since(c.StartedAt) < patience)
	says := explain("running").String() // "process" could mean an attempt or an OS process, so the text avoids it
	is.True(strings.Contains(says, fmt.Sprintf("(the worker, pid %d on %s)", os.Getpid(), host)))
	is.True(strings.Contains(says, fmt.Sprintf("as attempt %s with token %d.", c.AttemptID, c.Token)))
	is.True(!strings.Contains(says, "process"))
	is.NoErr(tasks[1].Retry(t.Context(), time.Hour))
	c = explain("scheduled not-due").Copies[0]
	is.Equal(c.Retries, 1)
	is.True(c.DueAt.After(time.Now().Add(50 * time.Minute)))
	enqueue(t, looker, canary)
	task := sure(q.StartTask(t.Context()))(t)
	explain("scheduled not-due", "running")
	is.NoErr(task.Fail(t.Context(), errors.New("a reason")))
	e = explain("scheduled not-due", "failed failed")
	is.Equal(e.Copies[1].Error, "a reason")
	is.Equal(e.Copies[1].WorkerID, peer.WorkerID())
	is.True(strings.Contains(e.String(), `"a reason"`))
	is.NoErr(tasks[0].Finish(t.Context()))
}

// A task that one more crash would fail doesn't start while another such task runs on the peer, and
// the explanation says so.
func TestExplainSuspect(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	other := open(t, worqr.Options{Prefix: prefix})
	first := open(t, worqr.Options{Prefix: prefix})
	q := working(t, first, "q")
	enqueue(t, q, "a", "b")
	is.Equal(len(sure(q.StartTasks(t.Context(), 2))(t)), 2)
	sure(other.FailWorker(t.Context(), first.WorkerID()))(t)
	is.NoErr(first.StopWorker(t.Context()))

	p := open(t, worqr.Options{Prefix: prefix})
	starts, finish := make(chan string, 2), make(chan struct{})
	p.Queue("q").Handle(holding(starts, finish), &worqr.HandleOptions{Concurrency: 2, MaxCrashes: 2})
	run(t, p)
	is.Equal(receive(t, starts, 1), []string{"a"})
	var e *inspect.Explanation
	eventually(t, "the other one is passed over", func() bool {
		e = sure(other.Queue("q").Explain(t.Context(), worqr.Query{Payload: []byte("b")}))(t)
		return slices.Equal(told(e), []string{"scheduled suspect"})
	})
	is.Equal(e.Copies[0].Crashes, 1)
	is.True(strings.Contains(e.String(), "1 worker died holding it"))
	is.True(!strings.Contains(e.String(), "about to start"))
	close(finish)
	is.Equal(receive(t, starts, 1), []string{"b"})
}

// Explain finds every task with the key.
func TestExplainByKey(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	peer := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, peer, "q")
	explain := func(want ...string) *inspect.Explanation {
		t.Helper()
		e := sure(q.Explain(t.Context(), worqr.Query{Key: canary}))(t)
		is.Equal(told(e), want)
		is.True(!strings.Contains(e.String(), canary))
		return e
	}
	explain()
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: "other", Payload: []byte("x"), At: time.Now().Add(-time.Minute)}))(t)
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: canary, Payload: []byte(canary)}))(t)
	is.Equal(explain("scheduled busy behind").Copies[0].Before, 1)
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	is.Equal(explain("running").Copies[0].AttemptID, tasks[1].AttemptID)
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: canary, Payload: []byte(canary)}))(t)
	explain("blocked blocked", "running")
	is.Equal(told(sure(q.Explain(t.Context(), worqr.Query{Payload: []byte(canary)}))(t)), []string{"blocked blocked", "running"})
	is.NoErr(tasks[1].Fail(t.Context(), errors.New("a reason")))
	explain("scheduled busy", "failed failed")
	for name, bad := range map[string]worqr.Query{
		"nothing": {}, "value": {Value: "x"}, "two": {Payload: []byte{}, Key: "x"}, "others": {Key: "x", Header: "x"}, "value of a key": {Key: "x", Value: "x"},
	} {
		if err := failure(q.Explain(t.Context(), bad)); !errors.Is(err, worqr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	is.True(errors.Is(failure(q.Explain(t.Context(), worqr.Query{Key: strings.Repeat("k", worqr.MaxKeySize+1)})), worqr.ErrTooLarge))
	is.NoErr(failure(q.Explain(t.Context(), worqr.Query{Payload: []byte{}})))
	is.True(errors.Is(failure(peer.Queue("").Explain(t.Context(), worqr.Query{})), worqr.ErrBadName))
}

// Explain returns at most ten copies, and searches only the front of a long list.
func TestExplainMany(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	enqueue(t, q, "first")
	enqueue(t, q, slices.Repeat([]string{"a"}, 120_000)...)
	enqueue(t, q, "last")
	e := sure(q.Explain(t.Context(), worqr.Query{Payload: []byte("a")}))(t)
	is.Equal(len(e.Copies), 10)
	is.Equal(e.Copies[9].Before, 10)
	e = sure(q.Explain(t.Context(), worqr.Query{Payload: []byte("last")}))(t)
	is.Equal(len(e.Copies), 0) // too far back, and the explanation says so
	is.Equal(e.NotSearched, 20_002)
	is.True(strings.Contains(e.String(), "20002"))
	for i := range 30 {
		sure(q.Add(t.Context(), worqr.TaskSpec{Key: fmt.Sprint(i), Payload: []byte("b")}))(t)
	}
	e = sure(q.Explain(context.Background(), worqr.Query{Payload: []byte("b")}))(t)
	is.Equal(len(e.Copies), 10)
}
