package api

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A task starts exactly once even if its payload takes longer to arrive than a connection may be
// silent. Replies behind it on that connection then arrive too, and the lease is renewed in the
// meantime: another peer doesn't evict the worker.
func TestLargePayloadOnNarrowLink(t *testing.T) {
	is := parallel(t)
	const silence, lease, size, rate = 400 * time.Millisecond, 900 * time.Millisecond, 3 << 20, 2 << 20
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := sure(worqr.Open(link.URL(), &worqr.Options{Prefix: "p", Lease: lease, CallTimeout: silence, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = p.Close() })
	lengths, starts := make(chan int, 100), make(chan time.Time, 100)
	p.Queue("large").Handle(func(_ context.Context, task *worqr.Task) error {
		lengths <- len(task.Payload)
		return nil
	}, nil)
	p.Queue("small").Handle(func(context.Context, *worqr.Task) error {
		starts <- time.Now()
		return nil
	}, nil)
	run(t, p)
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease})
	large, small := working(t, other, "large"), other.Queue("small")
	idle(t, small, 1)
	eventually(t, "the other looks as well", func() bool { s := stats(t, large); return s.Workers == 2 && s.IdleWorkers == 1 })
	link.Narrow(rate)
	put := time.Now()
	is.NoErr(large.Enqueue(t.Context(), make([]byte, size)))
	time.Sleep(silence)
	enqueue(t, small, "x", "y")
	is.Equal(receive(t, lengths, 1), []int{size})
	is.True(time.Since(put) > lease) // otherwise this shows nothing
	receive(t, starts, 2)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 3 })
	is.Equal(p.Stats().Started, int64(3))
	is.Equal(p.Stats().TimesEvicted, int64(0))
}

// slowest returns how long the slowest script took since reset, in µs.
func slowest(t testing.TB, c redis.Conn) int64 {
	t.Helper()
	entries := sure(redis.Values(c.Do("SLOWLOG", "GET", 1000)))(t)
	var most int64
	for _, e := range entries {
		fields := sure(redis.Values(e, nil))(t)
		us := sure(redis.Int64(fields[2], nil))(t)
		most = max(most, us)
	}
	return most
}

// When a large task ends, Redis doesn't encode its payload or result for observers, even if there
// is one: they get the length and the digest.
func TestLargeTaskEnds(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	q := working(t, p, "q")
	events := listen(t, p, "q")
	payload, result := bytes.Repeat([]byte{1}, 16<<20), bytes.Repeat([]byte{2}, 1<<20+1)
	best := int64(math.MaxInt64)
	for range 5 {
		is.NoErr(q.Enqueue(t.Context(), payload))
		task := sure(q.StartTask(t.Context()))(t)
		redistest.DoAll(t, c, [][]any{{"CONFIG", "SET", "slowlog-log-slower-than", 0}, {"SLOWLOG", "RESET"}})
		task.Result = result
		is.NoErr(task.Finish(t.Context()))
		best = min(best, slowest(t, c))
		e := until(t, events, inspect.EventDone) // it may have to subscribe again
		is.Equal(e.PayloadSize, len(payload))
		is.Equal(e.PayloadDigest, sha(string(payload)))
		is.Equal(e.ResultSize, len(result))
		is.Equal(e.ResultDigest, sha(string(result)))
		is.True(e.Payload == nil && e.Result == nil)
	}
	t.Logf("the longest call took %d µs", best)
	is.True(best < 20_000) // it took half a second when Redis encoded it
}

// Observers get a result up to the limit, byte for byte. Above it the task still finishes, and they
// get the length and the digest.
func TestLargeResults(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{MaxResult: 300_000})
	q := working(t, p, "q")
	events := listen(t, p, "q")
	for _, result := range []string{
		strings.Repeat("plain \" \\ / \n", 10_000), strings.Repeat("\x00\x1f\x7f\xff\"é", 30_000), strings.Repeat("r", 300_000),
	} {
		enqueue(t, q, "a")
		task := sure(q.StartTask(t.Context()))(t)
		task.Result = []byte(result)
		is.NoErr(task.Finish(t.Context()))
		e := until(t, events, inspect.EventDone)
		is.True(string(e.Result) == result) // compared with ==, since it may be long
		is.Equal(e.ResultSize, len(result))
	}
	enqueue(t, q, "a")
	task := sure(q.StartTask(t.Context()))(t)
	task.Result = make([]byte, 300_001)
	is.NoErr(task.Finish(t.Context()))
	e := until(t, events, inspect.EventDone)
	is.True(e.Result == nil)
	is.Equal(e.ResultSize, 300_001)
	is.Equal(e.ResultDigest, sha(string(task.Result)))
}

// A task with the largest payload starts and finishes, and no worker is evicted.
func TestLargestTask(t *testing.T) {
	if os.Getenv(chaosEnv) == "" {
		t.Skip("it takes four gigabytes; make soak has them")
	}
	is := is.New(t)
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", MaxPayload: worqr.MaxPayloadSize})
	done := make(chan int64, 10)
	p.Queue("q").Handle(func(_ context.Context, task *worqr.Task) error {
		done <- int64(len(task.Payload))
		return nil
	}, &worqr.HandleOptions{Exclusive: true})
	run(t, p)
	is.NoErr(p.Queue("q").Enqueue(t.Context(), make([]byte, worqr.MaxPayloadSize)))
	is.Equal(receive(t, done, 1), []int64{worqr.MaxPayloadSize})
	eventually(t, "it is finished", func() bool { return p.Stats().Finished == 1 })
	is.Equal(p.Stats().TimesEvicted, int64(0))
	is.Equal(p.Stats().Started, int64(1))
	is.Equal(p.Stats().Retried+p.Stats().TakenOver+p.Stats().Stopped, int64(0))
	is.Equal(len(sure(redis.Strings(c.Do("KEYS", "p:process:*")))(t)), 0)
}

// A task whose payload doesn't reach its worker should fail, but Redis refuses that. It goes back
// to the queue instead, and keeps its identity for cancels, and stays unique.
func TestPayloadDoesNotReachWorker(t *testing.T) {
	is := parallel(t)
	prefix, payload := redistest.Prefix(t), make([]byte, 300<<10)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	is.NoErr(q.EnqueueUnique(t.Context(), payload))
	put(t, q, "k", string(payload)+"k", nil)
	redistest.Do(t, redistest.Conn(t), "SET", prefix+":failed:schedule:{q}", "foreign")
	p := openThrough(t, redistest.Worker(t, redistest.URL(), prefix), worqr.Options{Prefix: prefix, Lease: time.Second},
		func(c *through) redis.Conn {
			c.OnReply = func(_ string, _ []any, reply any, err error) (any, error) {
				if err == nil && weight(reply) > 256<<10 { // some proxies have such a limit, and close the connection
					_ = c.Close()
					return nil, io.EOF
				}
				return reply, err
			}
			return c
		})
	worker := working(t, p, "q")
	_, err := worker.StartTasks(t.Context(), 2)
	is.True(err != nil)
	eventually(t, "they are back", func() bool { s := stats(t, q); return s.Running == 0 && s.Waiting+s.Scheduled == 2 })
	is.True(is_(q.EnqueueUnique(t.Context(), payload), worqr.ErrDuplicate))
	is.Equal(cancel(t, q, string(payload)+"k").Removed, 1)
	is.Equal(cancel(t, q, string(payload)).Removed, 1)
	is.NoErr(q.EnqueueUnique(t.Context(), payload))
}
