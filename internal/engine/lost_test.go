package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
	"github.com/worqr/worqr/worqrtrace"
)

// shaOf returns the digest of a script, which is in each call of it.
func shaOf(verb string) string {
	for _, v := range store.Verbs() {
		if v.Name == verb {
			digest, _ := v.Digests()
			return digest
		}
	}
	return ""
}

// linked returns a world whose workers are behind a link.
func linked(t *testing.T) (*world, *redistest.Link) {
	t.Helper()
	redistest.OneServer(t, redistest.OwnServer)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	w := newWorld(t, link.URL())
	w.conn = redistest.Dial(t, server.URL())
	return w, link
}

// However often the replies to rounds are lost, no task is lost, and each is handled once.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	redistest.OneServer(t, redistest.OwnServer)
	for name, c := range map[string]struct {
		verb  string
		times int
	}{
		"one start": {"start", 1}, "several starts": {"start", 6}, "one finish": {"finish", 1}, "several finishes": {"finish", 6}, "both": {"EVALSHA", 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, link := linked(t)
			var mu sync.Mutex
			ran := map[string]int{}
			o := plain
			w.Serve(func(_ context.Context, a *Attempt) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[string(a.Payload)]++
				return nil, nil
			}, o)
			s := w.join("w")
			const tasks = 2000
			var payloads []string
			for i := range tasks {
				payloads = append(payloads, fmt.Sprint("task ", i))
			}
			match := c.verb
			if match != "EVALSHA" {
				match = shaOf(match)
			}
			link.LoseRepliesTo(match, c.times)
			w.enqueue(payloads...)
			s.Wake()
			w.eventually("all are finished", func() bool { return w.counts.Finished.Load() == tasks })
			mu.Lock()
			defer mu.Unlock()
			is.New(t).Equal(len(ran), tasks)
			for what, n := range ran {
				if n != 1 {
					t.Errorf("%s ran %d times", what, n)
				}
			}
			w.none("w")
			is.New(t).Equal(w.counts.Lost.Load(), int64(0))
		})
	}
}

// If the replies to an end are lost while the worker leaves, the leave doesn't say what came of it.
func TestUnknownEndWhileLeaving(t *testing.T) {
	t.Parallel()
	w, link := linked(t)
	outcomes := make(chan worqrtrace.Outcome, 9)
	w.engine.Trace = tracing.New(&worqrtrace.Trace{Ended: func(t worqrtrace.Task) { outcomes <- t.Outcome }}, w.engine.Log)
	began, leaves := make(chan string, 9), make(chan bool)
	w.Serve(func(_ context.Context, a *Attempt) ([]byte, error) {
		began <- a.ID
		<-leaves
		return nil, nil
	}, plain)
	s := w.join("w")
	w.enqueue("a")
	s.Wake()
	link.LoseRepliesTo(<-began, 9) // the id: a new connection may send the text of the script
	close(leaves)
	w.HandlersDone() // so that its end is to be said
	is.New(t).NoErr(s.Leave(t.Context()))
	is.New(t).Equal(<-outcomes, worqrtrace.Lost)
}

// A worker that is evicted while a reply is lost doesn't go on under its id: what it held may run elsewhere.
func TestEvictedMeanwhile(t *testing.T) {
	t.Parallel()
	w, link := linked(t)
	cause := make(chan error, 1)
	began := make(chan struct{})
	w.Serve(func(ctx context.Context, a *Attempt) ([]byte, error) {
		close(began)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, nil
	}, plain)
	s := w.join("w")
	w.enqueue("a")
	s.Wake()
	<-began
	lost := link.LoseReplyTo(shaOf("start")) // it may ask by itself, after a message that comes late
	now := time.Now().UnixMilli()
	w.queued("evict", "w", now, 1000)
	s.Wake()
	<-lost
	<-w.evicted
	is.New(t).Equal(<-cause, ErrEvicted)
	w.eventually("its handler has returned", func() bool { return w.counts.Running.Load() == 0 })
	is.New(t).Equal(w.number("LLEN", w.keys.Waiting()), 1)
	is.New(t).Equal(w.counts.Lost.Load(), int64(1))
	is.New(t).True(!s.Wake())
	is.New(t).Equal(w.number("HGET", w.keys.Rounds(), "w"), 0)
}

// A worker whose lost round can't be repeated keeps its id, even if Redis refuses new connections and answers heartbeats
// on the old one, as when it has too many clients: Redis doesn't get the repeats.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	redistest.OneServer(t, redistest.OwnServer)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	var full atomic.Bool
	var refused atomic.Int64
	gate := redistest.Listen(t, func(c net.Conn) {
		if full.Load() {
			refused.Add(1)
			_, _ = c.Write([]byte("-ERR max number of clients reached\r\n"))
			return
		}
		to := redistest.Sure(net.Dial("tcp", link.Addr()))(t)
		go func() {
			_, _ = io.Copy(to, c)
			_ = to.Close()
		}()
		_, _ = io.Copy(c, to)
	})
	w := newWorld(t, gate.URL())
	w.conn = redistest.Dial(t, server.URL())
	w.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, plain)
	s := w.join("w")
	w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
	full.Store(true)
	lost := link.LoseReplyTo(shaOf("start"))
	s.Wake()
	<-lost
	w.eventually("repeats are refused", func() bool { return w.beat(s) != nil && refused.Load() > 2*mostUnanswered })
	is.New(t).True(s.Wake()) // it goes on
	full.Store(false)
	w.enqueue("a")
	w.eventually("it starts tasks", func() bool { return w.counts.Finished.Load() == 1 })
}

// A nosy is an error whose methods use the peer.
type nosy struct{ ask func() }

func (n *nosy) Error() string { n.ask(); return "nosy" }

func (n *nosy) Is(error) bool { n.ask(); return false }

// The error of a Pool, and the cause of a context, are user code. Their methods may use the peer, so none
// is called under a lock.
func TestErrorsUsePeer(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(error) error{
		"not sent": func(err error) error { return err },
		"no reply": func(err error) error { return fmt.Errorf("%w: %w", store.ErrUnknown, err) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			w := lonely(t)
			s := newSession(w.Queue, w.view, Membership{Worker: "w"})
			asked := &want{n: 1, got: make(chan supply, 1)}
			s.mu.Lock()
			end := s.says(s.holds("a", 1, ""), store.Done)
			s.wants = append(s.wants, asked)
			r := s.sends()
			s.mu.Unlock()
			over := make(chan struct{})
			go func() {
				defer close(over)
				err := wrap(&nosy{func() { s.Last() }})
				for range 2 { // the first loss of a reply is nobody's business
					s.handle(r, store.Result{FinishErr: err, StartErr: err})
				}
				s.End(ErrEvicted)
			}()
			select {
			case <-over:
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
			unknown := name == "no reply"
			is.Equal(errors.Is(<-end.done, store.ErrUnknown), unknown)
			is.Equal(errors.Is((<-asked.got).err, store.ErrUnknown), unknown)
		})
	}
}

// A caller whose context ends gets its cause. Whether the end was sent decides whether its outcome is unknown.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]bool{"sent": true, "not sent": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lonely(t)
			s := newSession(w.Queue, w.view, Membership{Worker: "w"})
			s.mu.Lock()
			a := s.holds("a", 1, "")
			s.mu.Unlock()
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := make(chan error)
			go func() { gone <- a.End(ctx, store.End{Verb: store.Done}) }()
			w.eventually("it's said", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				if sent {
					return s.sends() != nil
				}
				return len(s.say) > 0
			})
			cancel(&nosy{func() { s.Last() }})
			if err := <-gone; errors.Is(err, store.ErrUnknown) != sent {
				t.Error(err)
			}
		})
	}
}

// If the reply is lost by which the worker would learn that it has claimed a time, the task still starts at that time.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	w, link := linked(t)
	w.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, plain)
	s := w.join("w")
	w.eventually("it's idle", func() bool { return w.number("ZCARD", w.keys.Idle()) == 1 })
	lost := link.LoseReplyTo(shaOf("start"))
	w.add(s, "k:x", store.Record{Payload: []byte("x")}, time.Now().Add(300*time.Millisecond).UnixMilli())
	<-lost
	w.eventually("it starts without a heartbeat", func() bool { return w.counts.Finished.Load() == 1 })
}

// A caller whose large task can't be read learns that the session has ended.
func TestUnreadUntilTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w, link := linked(t)
	s := w.join("w")
	w.enqueue("a", string(make([]byte, 2<<20)))
	small, err := s.Start(t.Context(), 1)
	is.NoErr(err)
	is.Equal(string(small[0].Payload), "a")
	link.LoseRepliesTo("$6\r\nLINDEX\r\n", 1000) // the command, not a script that contains the word
	got := make(chan error)
	go func() {
		_, err := s.Start(context.Background(), 1)
		got <- err
	}()
	w.eventually("it's logged", func() bool { return w.said.has("can't read large tasks") > 0 })
	s.End(ErrShutdown)
	is.True(errors.Is(<-got, ErrShutdown))
}

// Rounds that were in flight when the connection was closed count as one failure: a worker that is busy then logs no more
// than another.
func TestRoundsFailTogether(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := lonely(t)
	var lines []string
	w.engine.Log.Before = func(line string, _ []any) { lines = append(lines, line) }
	s := newSession(w.Queue, w.view, Membership{Worker: "w"})
	sends := func() *round {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.nextRoundLocked(time.Now())
	}
	fails := func(r *round) { s.handle(r, store.Result{FinishErr: store.ErrUnknown, StartErr: store.ErrUnknown}) }
	s.mu.Lock()
	s.says(s.holds("a", 1, ""), store.Done)
	s.mu.Unlock()
	first := sends()
	s.mu.Lock()
	s.sayMany(worthwhile)
	s.mu.Unlock()
	second := sends()
	fails(first)
	fails(second)
	is.Equal(lines, nil)
	is.Equal(sends(), first)
	fails(first)
	is.Equal(lines, []string{"worqr: Redis doesn't answer; retrying"})
	s.End(ErrShutdown)
}

// Rounds that Redis will soon accept are repeated without a word, unless that takes longer than a call may.
func TestQuietRepeats(t *testing.T) {
	t.Parallel()
	redistest.OneServer(t, redistest.OwnServer)
	const line = `level=WARN msg="worqr: can't start or finish tasks; retrying"`
	for name, c := range map[string]struct {
		patience time.Duration
		said     int
	}{"brief": {time.Hour, 0}, "lasting": {50 * time.Millisecond, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			w := newWorld(t, server.URL())
			w.conn, w.engine.CallTimeout = redistest.Dial(t, server.URL()), c.patience
			w.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, plain)
			s := w.join("w")
			w.enqueue("a")
			w.do("CONFIG", "SET", "min-replicas-to-write", "1")
			s.Wake()
			w.eventually("its rounds are refused again and again", func() bool {
				errors := redistest.Sure(redis.String(w.conn.Do("INFO", "errorstats")))(t)
				var n int
				_, err := fmt.Sscanf(errors, "# Errorstats\r\nerrorstat_NOREPLICAS:count=%d", &n)
				return err == nil && n >= 4 && w.said.has(line) >= c.said
			})
			w.do("CONFIG", "SET", "min-replicas-to-write", "0")
			w.eventually("the task runs", func() bool { return w.counts.Finished.Load() == 1 && w.said.has("worqr: recovered") >= c.said })
			is.Equal(w.said.has(line), c.said)
			is.Equal(w.said.has("worqr: recovered"), c.said)
		})
	}
}
