package api

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Each call loses its reply once, in turn: Redis has carried it out and we do
// not know. What may be repeated is repeated, and has no further effect; what
// may not says that it is unknown.
func TestLostReplies(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p, q := openQueueAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	ctx := t.Context()
	// lose calls f while the reply to its request is lost.
	lose := func(request string, f func() error) error {
		t.Helper()
		lost := link.LoseReplyTo(request)
		err := f()
		select {
		case <-lost:
		case <-time.After(patience):
			t.Fatal("the reply was not lost")
		}
		return err
	}
	// Redis knows the scripts already, so that no NOSCRIPT is lost instead.
	primer := openAt(t, server.URL(), worqr.Options{Prefix: "primer"})
	pq := working(t, primer, "q")
	for verb, err := range verbs(ctx, primer, pq) {
		if err != nil && !is_(err, worqr.ErrNoTask) {
			t.Fatal(verb, err)
		}
	}
	_, err := pq.StartTask(ctx)
	is.True(is_(err, worqr.ErrNoTask))
	must(t, primer.StopWorker(ctx))

	must(t, p.StartWorker(ctx))
	is.True(is_(lose("p:suspects:{q}", func() error { return q.StartWork(ctx) }), worqr.ErrUnknownOutcome))
	is.NoErr(q.StartWork(ctx)) // again

	is.True(is_(lose("uno", func() error { return q.Enqueue(ctx, []byte("uno")) }), worqr.ErrUnknownOutcome))
	is.Equal(waiting(t, q), []string{"uno"})
	sure(q.EnqueueOnce(ctx, "nonce", []byte("two"), []byte("three")))(t)
	once := func() error {
		fresh, err := q.EnqueueOnce(ctx, "second", []byte("four"))
		is.True(!fresh)
		return err
	}
	is.True(is_(lose("four", once), worqr.ErrUnknownOutcome))
	is.NoErr(once()) // may be repeated
	is.Equal(waiting(t, q), []string{"uno", "two", "three", "four"})

	step := "p:working:{q}:"
	var tasks []*worqr.Task
	is.NoErr(lose(step, func() (err error) { tasks, err = q.StartTasks(ctx, 3); return err }))
	is.Equal(payloads(tasks), []string{"uno", "two", "three"})
	is.Equal(waiting(t, q), []string{"four"})
	is.NoErr(lose(step, func() error { return tasks[0].Finish(ctx) }))
	is.NoErr(tasks[0].Finish(ctx))
	is.True(is_(tasks[0].Stop(ctx), worqr.ErrNotOwner))
	is.NoErr(lose(step, func() error { return tasks[1].Stop(ctx) }))
	is.Equal(waiting(t, q), []string{"two", "four"})
	is.True(is_(tasks[1].Finish(ctx), worqr.ErrNotOwner))

	var report *worqr.CancelReport
	is.True(is_(lose("p_{q}_cancel", func() (err error) { report, err = q.Cancel(ctx, []byte("three")); return err }), worqr.ErrUnknownOutcome))
	report = cancel(t, q, "three") // again
	<-tasks[2].Context().Done()
	is.NoErr(lose(step, func() error { return tasks[2].Stop(ctx) }))
	wait(t, report)
	is.Equal(report.Stopped, 1)

	is.Equal(sure(q.Stats(ctx))(t), worqr.QueueStats{Waiting: 2, Workers: 1})
	is.NoErr(lose(step, func() error { return q.StopWork(ctx) }))
	nothingLeftAt(t, server, "p", "q", ":queues:{q}", ":worker:"+p.WorkerID(), ":workers", ":once:{q}:nonce", ":once:{q}:second")
}

// Redis has lost writes: what the worker has acknowledged is to be acknowledged
// again, and a process that it has ended is held again. The worker has since been
// told of later cancels, and tokens have gone on.
func TestLostAcknowledgement(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond})
	q := working(t, p, "q")
	enqueue(t, q, "later")
	task := sure(q.StartTask(t.Context()))(t)
	report := cancel(t, q, "later")
	<-task.Context().Done()
	is.NoErr(task.Stop(t.Context()))
	wait(t, report)

	c := redistest.Conn(t)
	key := func(kind string) string { return prefix + ":" + kind + ":{q}" }
	do := func(name string, args ...any) {
		t.Helper()
		redistest.Do(t, c, name, args...)
	}
	do("HSET", key("cancel")+":"+digestOf("before"), "token", 1, "stopped", 0, "finished", 0, "w:"+p.WorkerID(), "")
	do("ZADD", key("canceled"), 1, digestOf("before"))
	do("LPUSH", key("process")+":phantom", "ended")
	do("ZADD", key("working")+":"+p.WorkerID(), 1, "phantom")
	eventually(t, "it is acknowledged again", func() bool {
		n, err := redis.Int(c.Do("EXISTS", key("canceled")))
		return err == nil && n == 0
	})
	eventually(t, "what nobody runs goes back", func() bool {
		n, err := q.Len(t.Context())
		return err == nil && n == 1
	})
	is.Equal(waiting(t, q), []string{"ended"})
}

func nothingLeftAt(t testing.TB, server *redistest.Server, prefix, queue string, but ...string) {
	t.Helper()
	known := map[string]bool{prefix + ":registry": true, prefix + ":token:{" + queue + "}": true}
	for _, k := range but {
		known[prefix+k] = true
	}
	c := redistest.Dial(t, server.URL())
	for _, k := range redistest.Keys(t, c, prefix) {
		ttl := sure(redis.Int(c.Do("TTL", k)))(t) // the record of a cancel stays for a minute
		if !known[k] && (ttl <= 0 || ttl > 60) {
			t.Errorf("left behind: %s", k)
		}
	}
}

// A finish that was refused, repeated, and whose reply was then lost, is no loss.
func TestFinishAfterRefusalAndLostReply(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	c := redistest.Dial(t, server.URL())
	enqueue(t, q, "a")
	task := sure(q.StartTask(t.Context()))(t)
	redistest.Do(t, c, "SET", "p:schedule:{q}", "of another type")
	is.True(task.Finish(t.Context()) != nil) // refused
	redistest.Do(t, c, "DEL", "p:schedule:{q}")
	lost := link.LoseReplyTo(task.AttemptID)
	err := task.Finish(t.Context())
	<-lost
	if err != nil {
		t.Errorf("it was finished, and Finish says %v; stats %+v", err, p.Stats())
	}
}
