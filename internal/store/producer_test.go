package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func (b *bench) producer() *Producer {
	return NewProducer(b.line, b.space, logs.New(slog.New(slog.DiscardHandler)))
}

func (b *bench) target() Target { return Target{Name: "q", ID: "q", Keys: b.q} }

// enqueue puts payloads on the list.
func (b *bench) enqueue(payloads ...string) {
	b.Helper()
	all := make([][]byte, len(payloads))
	for i, p := range payloads {
		all[i] = []byte(p)
	}
	redistest.Must(b, b.producer().Enqueue(b.Context(), b.target(), all))
}

// task returns a task with a key and a payload.
func task(key, payload string) Task {
	return Task{Name: NameOf(key), Rule: Always, Record: Record{Payload: []byte(payload)}}
}

func (b *bench) add(tasks ...Task) {
	b.Helper()
	_, _, err := b.producer().Add(b.Context(), b.target(), tasks)
	redistest.Must(b, err)
}

// start has a worker start tasks, in its next round. It joins before its first.
func (b *bench) start(worker string, wanted int) []Attempt {
	b.Helper()
	s, ctx := SharedOf(b.q), b.Context()
	round, err := redis.Int64(b.conn.Do("HGET", b.q.Rounds(), worker))
	if errors.Is(err, redis.ErrNil) {
		redistest.Sure(b.line.One(ctx, JoinCall(s, worker, time.Minute, 1<<40, 0)))(b)
	}
	st := Start{Worker: worker, Round: round + 1, Stamp: 1_700_000_000_000, Lease: time.Minute, Wanted: wanted, Solo: true, MaxCrashes: 3}
	return redistest.Sure(st.Read(b.q, reply(b.line.One(ctx, st.Call(s)))))(b).Tasks
}

// finish ends attempts of a worker, all in one way.
func (b *bench) finish(worker string, how End, attempts ...Attempt) {
	b.Helper()
	f := Finish{Worker: worker, MaxFailed: 1000}
	for _, a := range attempts {
		e := how
		e.Attempt, e.Token, e.Name, e.Size = a.ID, a.Token, a.Name, len(a.Record.Payload)
		if a.Name == "" {
			e.Digest = SumOf(a.Record.Payload)
		}
		f.Ends = append(f.Ends, &e)
	}
	_, _, err := f.Read(reply(b.line.One(b.Context(), f.Call(SharedOf(b.q)))))
	redistest.Must(b, err)
}

// all returns what a listing yields, as text.
func all[T any](b testing.TB, of func(func(T, error) bool), text func(T) string) string {
	b.Helper()
	var words []string
	for row := range redistest.Each(b, of) {
		words = append(words, text(row))
	}
	return strings.Join(words, " ")
}

// If the reply to a call with a nonce is lost, its repeat changes nothing.
func TestEnqueueOnceAfterLostReply(t *testing.T) {
	b := newBench(t)
	link := redistest.NewLink(t, strings.TrimPrefix(redistest.URL(), "redis://"))
	line := redisconn.NewLine(redistest.Sure(Open(link.URL(), Access{}))(t).Dial(), 5*time.Second)
	t.Cleanup(line.Close)
	p := NewProducer(line, b.space, logs.New(slog.New(slog.DiscardHandler)))
	for _, call := range []func() (bool, error){
		func() (bool, error) {
			return p.EnqueueOnce(t.Context(), b.target(), "n", time.Minute, [][]byte{[]byte("a")})
		},
		func() (bool, error) {
			one := task("k", "b")
			one.Nonce, one.Window = "m", time.Minute
			names, skipped, err := p.Add(t.Context(), b.target(), []Task{one})
			b.is.True(err != nil || names[0] == "k:k")
			return len(skipped) == 0, err
		},
	} {
		other := Target{"other", "other", b.space.Queue("other")}
		redistest.Must(t, p.Enqueue(t.Context(), other, [][]byte{nil})) // connects, and loads the script
		_, _, err := p.Add(t.Context(), other, []Task{task("a", "a")})
		b.is.NoErr(err)
		lost := link.LoseReplyTo("EVALSHA")
		_, err = call()
		<-lost
		b.is.True(errors.Is(err, ErrUnknown))
		fresh, err := call()
		b.is.NoErr(err)
		b.is.True(!fresh)
	}
	b.is.Equal(b.do("LLEN queues"), int64(1))
	b.is.Equal(b.do("HLEN tasks"), int64(1))
}

// A window of less than 1 ms would fail half-way.
func TestTinyWindow(t *testing.T) {
	b := newBench(t)
	one := task("a", "a")
	one.Nonce, one.Window = "n", time.Nanosecond
	b.add(one)
	fresh, err := b.producer().EnqueueOnce(t.Context(), b.target(), "m", 0, [][]byte{nil})
	b.is.NoErr(err)
	b.is.True(fresh)
}

// A producer lists a queue when it first adds to it, when nothing else is there, and once in a while.
func TestProducerLists(t *testing.T) {
	b := newBench(t)
	p := b.producer()
	p.relist = 10 * time.Millisecond
	unlist := func() { redistest.Do(t, b.conn, "SREM", b.space.Registry(), "q") }
	listed := func() bool { return b.listed(b.space.Registry(), "q") }
	enqueue := func() { t.Helper(); b.is.NoErr(p.Enqueue(t.Context(), b.target(), [][]byte{nil})) }

	enqueue()
	b.is.True(listed())
	unlist()
	b.do("DEL queues")
	enqueue() // it's alone
	b.is.True(listed())
	unlist()
	for !listed() {
		enqueue()
	}
	b.is.NoErr(p.Unlist(t.Context(), b.target()))
	b.is.True(listed()) // tasks wait
	b.do("DEL queues")
	b.is.NoErr(p.Unlist(t.Context(), b.target()))
	b.is.True(!listed())
	_, _, err := p.Add(t.Context(), b.target(), []Task{task("a", "a")})
	b.is.NoErr(err)
	b.is.True(listed())

	redistest.Do(t, b.conn, "DEL", b.space.Registry())
	redistest.Do(t, b.conn, "SET", b.space.Registry(), "foreign")
	p = b.producer() // tries again in a minute, not at each call
	enqueue()
	b.is.True(p.unlistable.Load())
}

// A deaf Runner doesn't answer plain commands.
type deaf struct {
	Runner
	asked   int
	hearing func() // is called when it's asked; nil: nothing
}

func (d *deaf) One(ctx context.Context, c redisconn.Call) (any, error) {
	if !strings.Contains(fmt.Sprint(c), "SADD") {
		return d.Runner.One(ctx, c)
	}
	d.asked++
	if d.hearing != nil {
		d.hearing()
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// While the registry doesn't answer, as when its node of a cluster is down, only one call waits for it.
func TestSilentRegistry(t *testing.T) {
	b := newBench(t)
	d := &deaf{Runner: b.line}
	p := NewProducer(d, b.space, logs.New(slog.New(slog.DiscardHandler)))
	ended, cancel := context.WithCancel(t.Context())
	d.hearing = cancel
	b.is.NoErr(p.Enqueue(ended, b.target(), [][]byte{nil}))
	b.is.True(!p.unlistable.Load()) // the caller has given up, so that says nothing
	d.hearing = nil
	for range 3 {
		b.is.NoErr(p.Enqueue(t.Context(), b.target(), [][]byte{nil}))
		b.is.NoErr(p.Enqueue(t.Context(), Target{"other", "other", b.space.Queue("other")}, [][]byte{nil}))
	}
	b.is.Equal(d.asked, 2)
	p.relistAll()
	b.is.True(!p.unlistable.Load())
}

// A tooLate Runner sends nothing before ctx ends.
type tooLate struct{ Runner }

func (tooLate) One(ctx context.Context, _ redisconn.Call) (any, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// The cause of a context that has ended isn't an answer of Redis.
func TestCauseIsNoAnswer(t *testing.T) {
	b := newBench(t)
	p := NewProducer(tooLate{}, b.space, logs.New(slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(redis.Error("OOM command not allowed"))
	err := p.Enqueue(ctx, b.target(), [][]byte{nil})
	b.is.True(strings.Contains(err.Error(), "OOM"))
	b.is.Equal(p.Refused.Load(), int64(0))
	b.is.True(!p.of(b.target()).failing.Load())
}

// without returns a bench on a server of its own, and a line of a user who may not use a command.
func without(t *testing.T, command string) (*bench, *redisconn.Line) {
	t.Helper()
	server := redistest.Start(t)
	b := benchAt(t, redistest.Parallel(t), server.URL(), "worqr")
	redistest.Do(t, b.conn, "ACL", "SETUSER", "user", "on", ">x", "~*", "&*", "+@all", "-"+command)
	u := redistest.Sure(url.Parse(server.URL()))(t)
	u.User = url.UserPassword("user", "x")
	line := redisconn.NewLine(redistest.Sure(Open(u.String(), Access{}))(t).Dial(), 5*time.Second)
	t.Cleanup(line.Close)
	return b, line
}

// A user who may not store nonces adds nothing with one.
func TestNonceDenied(t *testing.T) {
	b, line := without(t, "set")
	p := NewProducer(line, b.space, logs.New(slog.New(slog.DiscardHandler)))
	_, err := p.EnqueueOnce(t.Context(), b.target(), "n", time.Minute, [][]byte{nil})
	b.is.True(IsDenied(err))
	later := task("a", "a")
	later.At, later.Nonce, later.Window = 4e12, "n", time.Minute
	_, _, err = p.Add(t.Context(), b.target(), []Task{later})
	b.is.True(IsDenied(err))
	b.is.Equal(redistest.Keys(t, b.conn, "worqr"), nil)
}

// Who is evicted is told even if Redis refuses to return the tasks. Then the next call fails.
func TestReturnDenied(t *testing.T) {
	b, line := without(t, "lmove")
	b.enqueue("a")
	b.start("w", 1)
	look, err := EvictAll(t.Context(), line, b.q, "w", 0, time.Second)
	b.is.True(IsDenied(err))
	b.is.Equal(look.Evicted, []Dead{{"w", 1}})
	b.is.Equal(redistest.Sure(EvictAll(t.Context(), b.line, b.q, "", 0, time.Second))(t).Returned, 1)
}

// A queue that a producer has forgotten is listed again.
func TestProducerForgets(t *testing.T) {
	b := newBench(t)
	p := b.producer()
	for i := range mostKnown + 10 {
		p.of(Target{ID: fmt.Sprint(i), Keys: b.space.Queue(fmt.Sprint(i))})
	}
	b.is.Equal(len(p.all), mostKnown)
	p.Forget()
	b.is.Equal(len(p.all), 0)
}

// A call whose context has ended says so, and the producer still works.
func TestProducerCanceled(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.is.True(errors.Is(b.producer().Enqueue(ctx, b.target(), [][]byte{nil}), context.Canceled))
	b.enqueue("a")
}
