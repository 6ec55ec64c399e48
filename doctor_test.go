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

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

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
	redistest.Do(t, redistest.Conn(t), "DEL", prefix+":registry", prefix+":state:{q}")
	is.True(unknown())
	sure(looker.Queue("q").Add(t.Context(), worqr.TaskSpec{Payload: []byte("c")}))(t)
	redistest.Do(t, redistest.Conn(t), "DEL", prefix+":registry") // a producer may lack the permission to list it
	is.True(!unknown())
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

// A pause is a notice, and worse while the backlog grows. It doesn't hide that no worker serves the queue.
func TestCheckPaused(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, p, "q")
	is.NoErr(q.Pause(t.Context()))
	report, err := doctor.Check(t.Context(), nil)
	is.NoErr(err)
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityNotice}) // nothing waits

	enqueue(t, q, "a")
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityNotice})

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
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityStopped})

	must(t, p.StopWorker(t.Context()))
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.Equal(severities(report), map[inspect.FindingKind]inspect.Severity{"paused": inspect.SeverityNotice, "no-worker": inspect.SeverityStopped})
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
	is.True(!intact(report))
	is.Equal(len(report.Findings), 1000)
	is.True(report.Omitted >= 500 && report.Unwell)
	for _, l := range inspect.Fold(report.Findings) {
		is.NoErr(doctor.Silence(t.Context(), inspect.Silence{Kind: l.Kind, Reason: "known", Until: time.Now().Add(time.Hour)}))
	}
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.True(report.Omitted >= 500 && report.OK())
	report = sure(doctor.Repair(t.Context(), nil))(t)
	is.True(intact(report))
	is.Equal(len(waiting(t, doctor.Queue("q"))), 1000+500)
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.True(intact(report))
}

// Explain covers each state of a task, in words. TestExplainStates of internal/doctor has all reasons.
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
	add(t, looker, worqr.TaskSpec{Unique: true, Payload: payload, At: time.Now().Add(time.Hour)})
	e = explain("scheduled not-due no-worker")
	is.True(!e.NoSuchQueue)
	is.True(strings.Contains(e.String(), "No worker serves this queue"))
	sure(looker.Cancel(t.Context(), payload))(t)
	e = explain()
	is.True(!e.NoSuchQueue)
	is.True(strings.Contains(e.String(), "No copy"))
	enqueue(t, looker, "first", canary)
	e = explain("waiting no-worker behind")
	is.Equal(e.Copies[0].Before, 1)
	is.True(strings.Contains(e.String(), "No worker serves this queue"))

	peer := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour, Name: "the worker"})
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
	is.Equal(explain("waiting busy behind").Copies[0].Before, 1)
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	is.Equal(explain("running").Copies[0].AttemptID, tasks[1].AttemptID)
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: canary, Payload: []byte(canary)}))(t)
	explain("running", "blocked blocked")
	is.Equal(told(sure(q.Explain(t.Context(), worqr.Query{Payload: []byte(canary)}))(t)), nil) // it's known by its key
	is.NoErr(tasks[1].Fail(t.Context(), errors.New("a reason")))
	explain("waiting busy", "failed failed")
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
	is.True(strings.Contains(e.String(), "20,002"))
	for i := range 30 {
		sure(q.Add(t.Context(), worqr.TaskSpec{Key: fmt.Sprint(i), Headers: map[string]string{"of": "b"}}))(t)
	}
	e = sure(q.Explain(context.Background(), worqr.Query{Header: "of", Value: "b"}))(t)
	is.Equal(len(e.Copies), 10)
}
