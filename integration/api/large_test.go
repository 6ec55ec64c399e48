package api

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

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
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease, MaxPayload: size})
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

// Observers get a payload and a result of up to 64 KiB byte for byte, and the length of a larger one. Above MaxResult, the
// task finishes without a result.
func TestLargeResults(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{MaxResult: 70_000})
	q := working(t, p, "q")
	events := listen(t, p, "q")
	finish := func(payload string, result []byte) inspect.Event {
		for {
			enqueue(t, q, payload)
			task := sure(q.StartTask(t.Context()))(t)
			task.Result = result
			is.NoErr(task.Finish(t.Context()))
			e := receive(t, events, 1)[0]
			for e.Kind == inspect.EventWork {
				e = receive(t, events, 1)[0]
			}
			if e.Kind == inspect.EventDone { // otherwise the machine stood still, and it may have been missed
				return e
			}
		}
	}
	for _, result := range []string{
		strings.Repeat("plain \" \\ / \n", 80), strings.Repeat("\x00\x1f\x7f\xff\"é", 100), strings.Repeat("r", 1<<16), strings.Repeat("r", 1<<16+1),
	} {
		e := finish(result, []byte(result))
		is.True(len(result) > 1<<16 && e.Result == nil || string(e.Result) == result) // compared with ==, since it may be long
		is.True(string(e.Payload) == string(e.Result))
		is.Equal([]int{e.PayloadSize, e.ResultSize}, []int{len(result), len(result)})
	}
	e := finish("a", make([]byte, 70_001))
	is.True(e.Result == nil)
}

// A task with the largest payload starts, is tried again, fails, is requeued and finishes, and no
// worker is evicted.
func TestLargestTask(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{MaxPayload: worqr.MaxPayloadSize})
	q := p.Queue("q")
	sizes := make(chan int, 10)
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		sizes <- len(task.Payload)
		switch {
		case task.Retries == 0 && p.Stats().Failed == 0:
			return worqr.RetryAfter(errors.New("later"), time.Millisecond)
		case p.Stats().Failed == 0:
			return worqr.Permanent(errors.New("no"))
		}
		return nil
	}, nil)
	run(t, p)
	is.NoErr(q.Enqueue(t.Context(), make([]byte, worqr.MaxPayloadSize)))
	eventually(t, "it has failed", func() bool { return p.Stats().Failed == 1 })
	is.Equal(sure(q.RequeueAllFailed(t.Context()))(t), 1)
	eventually(t, "it is finished", func() bool { return p.Stats().Finished == 1 })
	is.Equal(receive(t, sizes, 3), []int{worqr.MaxPayloadSize, worqr.MaxPayloadSize, worqr.MaxPayloadSize})
	is.Equal(p.Stats().TimesEvicted, int64(0))
	is.Equal(p.Stats().Started, int64(3))
}
