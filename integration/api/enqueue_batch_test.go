package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// The tasks of a large enqueue arrive in order, even while workers start them and other calls
// enqueue. With a nonce, they arrive only once.
func TestEnqueueOfMany(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	const many = 5_000 // several pages
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
	is.Equal(sure(q.Len(t.Context()))(t), others)
	is.NoErr(q.Delete(t.Context()))
	for fresh := range 2 {
		is.Equal(sure(q.EnqueueOnce(t.Context(), "nonce", payloads...))(t), fresh == 0)
	}
	is.Equal(sure(q.Len(t.Context()))(t), many)
	is.Equal(redistest.Keys(t, redistest.Conn(t), prefix+":batch*"), nil)
}

// Check doesn't report an accepted batch that isn't in the queue yet, but it reports that the queue
// isn't listed and has no worker.
func TestCheckBesideBatch(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	redistest.DoAll(t, c, [][]any{
		{"LPUSH", prefix + ":batch:{q}:open", "a"}, {"PEXPIRE", prefix + ":batch:{q}:open", 600_000},
		{"LPUSH", prefix + ":batch:{q}:id", "a"}, {"ZADD", prefix + ":batches:{q}", 1, "id"},
	})
	about := &inspect.CheckOptions{Ignore: []inspect.FindingKind{"persistence", "replication", "vulnerable"}}
	report := sure(doctor.Repair(t.Context(), about))(t)
	is.True(report.OK())
	is.Equal(report.Keys, 3)
	kinds := map[inspect.FindingKind]bool{}
	for _, f := range report.Findings {
		if kinds[f.Kind] = true; f.Queue != "" && f.Kind != "queue-list" && f.Kind != "no-worker" || f.Kind == "unknown-key" {
			t.Errorf("%+v", f)
		}
	}
	is.True(kinds["queue-list"] && kinds["no-worker"])
	is.True(sure(redis.Bool(c.Do("SISMEMBER", prefix+":registry", "q")))(t))
}

// A large enqueue to a full Redis enqueues nothing, and leaves nothing behind.
func TestEnqueueOfManyWhenFull(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t, "--maxmemory-policy", "noeviction", "--maxmemory", "14mb")
	_, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p"})
	payloads := make([][]byte, 20)
	for i := range payloads {
		payloads[i] = make([]byte, 1<<20)
	}
	err := q.Enqueue(t.Context(), payloads...)
	is.True(err != nil && strings.Contains(err.Error(), "OOM"))
	is.Equal(redistest.Keys(t, redistest.Dial(t, server.URL()), "p"), nil)
}

// accepted adds a committed batch whose producer has died.
func accepted(t testing.TB, c redis.Conn, prefix, id string, number int, payloads ...string) {
	t.Helper()
	redistest.DoAll(t, c, [][]any{
		append([]any{"LPUSH", prefix + ":batch:{q}:" + id}, anys(payloads)...), {"ZADD", prefix + ":batches:{q}", number, id},
	})
}

func anys(all []string) (as []any) {
	for _, s := range all {
		as = append(as, s)
	}
	return as
}

// Tasks of an accepted batch count as waiting before they are moved to the queue: Len, Stats, Peek,
// Explain and listings show them where they will be.
func TestAcceptedBatchWaits(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	accepted(t, c, prefix, "x", 2, "c", "d")
	accepted(t, c, prefix, "y", 1, "a", "b")
	is.Equal(string(sure(q.Peek(t.Context()))(t)), "a")
	redistest.Do(t, c, "LPUSH", prefix+":queues:{q}", "first")
	put(t, q, "key", "scheduled", nil)
	put(t, q, "later", "later", &worqr.PutOptions{At: time.Now().Add(time.Hour)})

	is.Equal(waiting(t, q), []string{"scheduled", "first", "a", "b", "c", "d", "later"})
	is.Equal(sure(q.Len(t.Context()))(t), 7)
	s := stats(t, q)
	s.Oldest = 0 // depends on the time
	is.Equal(s, inspect.QueueStats{Waiting: 5, Scheduled: 2})
	e := sure(q.Explain(t.Context(), []byte("c")))(t)
	is.Equal(len(e.Copies), 1)
	is.Equal(e.Copies[0].State, inspect.CopyWaiting)
	is.Equal(e.Copies[0].Before, 4)                          // scheduled, first, a and b
	is.Equal(len(redistest.Keys(t, c, prefix+":batch*")), 3) // reading hasn't moved a batch
}

// If Redis refuses to move a batch, the enqueue still succeeds, and one warning is logged. To keep
// the order, later enqueues of the same producer fail until the batch is moved, even to a long queue.
func TestBatchThatCannotBeMoved(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-lmove")
	var j journal
	q := openAt(t, "redis://app:pw@"+server.Addr(), worqr.Options{Prefix: "p", Logger: j.Logger()}).Queue("q")
	enqueue(t, q, numbers("a", 200)...)
	enqueue(t, q, "long") // from now on without a script
	enqueue(t, q, numbers("b", 6000)...)
	for range 5 {
		err := q.Enqueue(t.Context(), []byte("c"))
		is.True(err != nil && !is_(err, worqr.ErrUnknownOutcome))
	}
	is.Equal(sure(q.Len(t.Context()))(t), 200+1+6000)
	eventually(t, "it is logged", func() bool { return len(j.Lines("can't be moved")) > 0 })
	redistest.Do(t, c, "ACL", "SETUSER", "app", "+lmove")
	enqueue(t, q, "c")
	is.Equal(waiting(t, q), slices.Concat(numbers("a", 200), []string{"long"}, numbers("b", 6000), []string{"c"}))
	eventually(t, "the recovery is logged", func() bool { return len(j.Lines("worqr: recovered")) == 1 })
	is.Equal(len(j.Lines("level=WARN")), 1)
}

// A batch whose tasks are gone or overwritten blocks neither the batches behind it nor enqueues,
// cancels and deletes. It's logged, and Check reports it.
func TestDamagedBatch(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	var j journal
	q := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond, Logger: j.Logger()}).Queue("q")
	plant := func() {
		accepted(t, c, prefix, "gone", 1, "x")
		accepted(t, c, prefix, "overwritten", 2, "x")
		accepted(t, c, prefix, "whole", 3, "a", "b", "c")
		redistest.DoAll(t, c, [][]any{{"DEL", prefix + ":batch:{q}:gone"}, {"SET", prefix + ":batch:{q}:overwritten", "foreign"}})
	}
	plant()
	is.Equal(waiting(t, q), []string{"a", "b", "c"})
	is.Equal(sure(q.Len(t.Context()))(t), 3)
	is.Equal(sure(q.Cancel(t.Context(), []byte("b")))(t).Removed, 1)
	enqueue(t, q, "d")
	enqueue(t, q, numbers("e", 6000)...)
	is.Equal(waiting(t, q), slices.Concat([]string{"a", "c", "d"}, numbers("e", 6000)))
	eventually(t, "it is logged", func() bool { return len(j.Lines("are missing or overwritten")) == 1 })

	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	found := func(look func(context.Context, *inspect.CheckOptions) (*inspect.CheckReport, error), kind inspect.FindingKind) (keys []string) {
		t.Helper()
		for _, f := range about(sure(look(t.Context(), nil))(t), kind) {
			keys = append(keys, strings.TrimPrefix(f.Key, prefix+":batch:{q}:"))
		}
		return sorted(keys)
	}
	is.Equal(found(doctor.Check, "batch"), []string{"gone", "overwritten"})
	is.Equal(found(doctor.Check, "wrong-type"), []string{"overwritten"})
	is.Equal(found(doctor.Repair, "batch"), []string{"gone", "overwritten"})
	is.Equal(found(doctor.Check, "batch"), []string{"overwritten"}) // Repair doesn't delete foreign data
	is.NoErr(q.Delete(t.Context()))
	plant()
	is.NoErr(q.Delete(t.Context()))
	is.Equal(len(redistest.Keys(t, c, prefix+":batch*")), 0)

	plant()
	redistest.Do(t, c, "LPUSH", prefix+":batch:{q}:gone", "found again")
	redistest.Do(t, c, "ZADD", prefix+":batches:{q}", int64(1<<52), "gone") // it was set aside
	sure(doctor.Repair(t.Context(), nil))(t)
	is.Equal(waiting(t, q), []string{"found again", "a", "b", "c"})
}

// If the list of batches has the wrong type, only large enqueues fail.
func TestDamagedListOfBatches(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	redistest.Do(t, c, "SET", prefix+":batches:{q}", "foreign")
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	enqueue(t, q, "a", "b", "c")
	is.NoErr(q.EnqueueUnique(t.Context(), []byte("d")))
	err := q.Enqueue(t.Context(), make([][]byte, 6000)...)
	is.True(err != nil && strings.Contains(err.Error(), "WRONGTYPE"))
	is.Equal(sure(q.Cancel(t.Context(), []byte("b")))(t).Removed, 1)
	is.Equal(waiting(t, q), []string{"a", "c", "d"})
	is.Equal(stats(t, q).Waiting, 3)
	must(t, take(t, q).Finish(t.Context()))
	is.NoErr(q.Delete(t.Context()))
	is.Equal(len(redistest.Keys(t, c, prefix+":batches*")), 0)
}

// If several callers find batches to move, only one moves them: pages from all of them would keep
// Redis busy.
func TestCallersHaulInTurn(t *testing.T) {
	is := parallel(t)
	const batches, callers = 10, 100
	server, c := redistest.StartAndDial(t)
	_, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p"})
	enqueue(t, q, "first")
	for i := range batches {
		accepted(t, c, "p", fmt.Sprint("b", i), i+1, slices.Repeat([]string{"b"}, 2000)...) // as many as a call moves
	}
	before := redistest.Calls(t, c, "evalsha")
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if err := q.Enqueue(t.Context(), []byte("one")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	is.Equal(sure(q.Len(t.Context()))(t), 1+batches*2000+callers)
	// Each batch takes one call, and concurrent enqueues share calls. If each caller moved batches,
	// there would be at least one call for each caller.
	calls := redistest.Calls(t, c, "evalsha") - before
	if t.Log(calls); calls > callers/2+2*batches {
		t.Errorf("%d calls", calls)
	}
}

// StopWorker doesn't wait until the batch of a dead producer is in the queue: other peers move the
// rest.
func TestStopWorkerBesideHaul(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	accepted(t, redistest.Conn(t), prefix, "x", 1, numbers("", 6000)...)
	stalled, hauls := make(chan struct{}), make(chan bool, 10)
	p := openThrough(t, redistest.Worker(t, redistest.URL(), prefix), worqr.Options{Prefix: prefix, Lease: 5 * time.Second}, func(c *through) redis.Conn {
		c.OnReply = func(_ string, args []any, reply any, err error) (any, error) {
			if len(args) >= 5 && args[4] == any(prefix+":batches:{q}") { // a haul: this is its last key
				hauls <- true
				<-stalled
			}
			return reply, err
		}
		return c
	})
	defer close(stalled)
	must(t, p.StartWorker(t.Context()))
	must(t, p.Queue("q").StartWork(t.Context()))
	receive(t, hauls, 1) // its reply is held back
	stopped := make(chan error, 1)
	go func() { stopped <- p.StopWorker(t.Context()) }()
	is.NoErr(receive(t, stopped, 1)[0])
}

// The end of a caller's own context says nothing about Redis, so nothing is logged.
func TestDeadlineOfCallerIsNoTrouble(t *testing.T) {
	is := parallel(t)
	prefix, log := redistest.Prefix(t), &journal{}
	p := sure(worqr.Open(redistest.URL(), &worqr.Options{Prefix: prefix, TLSConfig: redistest.TLS(redistest.URL()), Logger: log.Logger()}))(t)
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	is.True(errors.Is(failure(p.Queue("q").Cancel(late, []byte("a"))), context.DeadlineExceeded))
	is.NoErr(p.Close()) // flushes the log
	is.Equal(log.Lines("batch"), nil)
}
