package worqr_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// As many as one call may enqueue arrive in order, also while they are taken and others
// enqueue; and once with a nonce.
func TestEnqueueOfMany(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	const many = 20_000
	payloads := make([][]byte, many)
	for i := range payloads {
		payloads[i] = fmt.Append(nil, i)
	}
	done := make(chan error, 1)
	go func() { done <- q.Enqueue(t.Context(), payloads...) }()
	others := 0
	for next := 0; next < many; {
		tasks, err := q.StartTasks(t.Context(), 1000)
		if is_(err, worqr.ErrNoTask) {
			enqueue(t, q, "other")
			others++
			continue
		}
		is.NoErr(err)
		for _, task := range tasks {
			if string(task.Payload) == "other" {
				others--
			} else {
				is.Equal(string(task.Payload), fmt.Sprint(next))
				next++
			}
			is.NoErr(task.Finish(t.Context()))
		}
	}
	is.NoErr(<-done)
	n, err := q.Len(t.Context())
	is.NoErr(err)
	is.Equal(n, others)
	is.NoErr(q.Delete(t.Context()))
	for fresh := range 2 {
		is.Equal(value(q.EnqueueOnce(t.Context(), "nonce", payloads...)), fresh == 0)
	}
	n, err = q.Len(t.Context())
	is.NoErr(err)
	is.Equal(n, many)
	for _, key := range redistest.Keys(t, redistest.Conn(t), prefix+":batch*") {
		t.Errorf("%s is left", key)
	}
}

// What a producer had enqueued when it died is done by whoever serves the queue, with
// the next heartbeat; and canceled or deleted like everything that waits.
func TestEnqueueOfADeadProducer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	q := p.Queue("q")
	accepted := func() {
		for i := range 3000 {
			is.NoErr(c.Send("LPUSH", prefix+":batch:{q}:id", fmt.Sprint(i)))
		}
		_, err := c.Do("LPUSH", prefix+":batches:{q}", "id")
		is.NoErr(err)
		_, err = c.Do("")
		is.NoErr(err)
	}
	accepted()
	report, err := q.Cancel(t.Context(), []byte("2999"))
	is.NoErr(err)
	is.Equal(report.Removed, 1)
	accepted()
	is.NoErr(q.Delete(t.Context()))
	n, err := q.Len(t.Context())
	is.NoErr(err)
	is.Equal(n, 0)

	accepted()
	working(t, p, "q")
	for next := 0; next < 3000; {
		tasks, err := q.StartTasks(t.Context(), 1000)
		if is_(err, worqr.ErrNoTask) {
			continue // until the next heartbeat
		}
		is.NoErr(err)
		for _, task := range tasks {
			is.Equal(string(task.Payload), fmt.Sprint(next))
			next++
			is.NoErr(task.Finish(t.Context()))
		}
	}
	is.Equal(len(redistest.Keys(t, c, prefix+":batch*")), 0)
}

// What is accepted and not in the queue yet is no finding, but that the queue is not listed.
func TestCheckBesideBatch(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	for _, cmd := range [][]any{
		{"LPUSH", prefix + ":batch:{q}:open", "a"}, {"PEXPIRE", prefix + ":batch:{q}:open", 600_000},
		{"LPUSH", prefix + ":batch:{q}:id", "a"}, {"LPUSH", prefix + ":batches:{q}", "id"},
	} {
		_, err := c.Do(cmd[0].(string), cmd[1:]...)
		is.NoErr(err)
	}
	about := &worqr.CheckOptions{Ignore: []worqr.FindingKind{worqr.FindingPersistence, worqr.FindingReplication, worqr.FindingVulnerable}}
	report, err := doctor.Repair(t.Context(), about)
	is.NoErr(err)
	is.True(report.OK())
	is.Equal(report.Keys, 3)
	for _, f := range report.Findings {
		if f.Queue != "" && f.Kind != worqr.FindingRegistry || f.Kind == worqr.FindingUnknown {
			t.Errorf("%+v", f)
		}
	}
	listed, err := redis.Bool(c.Do("SISMEMBER", prefix+":registry", "q"))
	is.NoErr(err)
	is.True(listed)
}

// On a full Redis none is enqueued, and nothing is left.
func TestEnqueueOfManyWhenFull(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	c := redistest.Dial(t, server.URL())
	p, err := worqr.Open(server.URL(), &worqr.Options{Prefix: "p"})
	is.NoErr(err)
	defer p.Close()
	used, err := redis.String(c.Do("INFO", "memory"))
	is.NoErr(err)
	_, after, _ := strings.Cut(used, "used_memory:")
	bytes := 0
	_, err = fmt.Sscan(after, &bytes)
	is.NoErr(err)
	_, err = c.Do("CONFIG", "SET", "maxmemory", bytes+12<<20)
	is.NoErr(err)
	payloads := make([][]byte, 20)
	for i := range payloads {
		payloads[i] = make([]byte, 1<<20)
	}
	err = p.Queue("q").Enqueue(t.Context(), payloads...)
	is.True(err != nil && strings.Contains(err.Error(), "OOM"))
	is.Equal(len(redistest.Keys(t, c, "p:*")), 0)
}
