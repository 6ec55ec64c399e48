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

	"github.com/worqr/worqr/internal/keys"
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

// Payloads wait in order, all or none of a call; and in a call that is too large, none.
func TestEnqueue(t *testing.T) {
	b := newBench(t)
	p, ctx := b.producer(), t.Context()
	b.is.NoErr(p.Enqueue(ctx, b.target(), nil))
	b.is.Equal(b.do("EXISTS queues"), int64(0))
	b.enqueue("a", "", "\x00\r\n")
	large := make([]byte, MaxBytes)
	b.is.True(errors.Is(p.Enqueue(ctx, b.target(), [][]byte{large, {1}}), ErrTooLarge))
	b.is.True(errors.Is(p.Enqueue(ctx, b.target(), make([][]byte, MaxPayloads+1)), ErrTooLarge))
	b.is.NoErr(p.Enqueue(ctx, b.target(), make([][]byte, MaxPayloads)))
	b.is.NoErr(p.Enqueue(ctx, b.target(), [][]byte{make([]byte, MaxDigested)}))
	b.is.Equal(b.do("LLEN queues"), int64(MaxPayloads+4))
	b.is.Equal(all(t, Tasks(ctx, b.line, b.q), func(p []byte) string { return fmt.Sprint(len(p)) }),
		"1 0 3"+strings.Repeat(" 0", MaxPayloads)+fmt.Sprint(" ", MaxDigested))
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
		redistest.Must(t, p.Enqueue(t.Context(), Target{"other", "other", b.space.Queue("other")}, [][]byte{nil})) // connects
		lost := link.LoseReplyTo("EVALSHA")
		_, err := call()
		<-lost
		b.is.True(errors.Is(err, ErrUnknown))
		fresh, err := call()
		b.is.NoErr(err)
		b.is.True(!fresh)
	}
	b.is.Equal(b.do("LLEN queues"), int64(1))
	b.is.Equal(b.do("HLEN tasks"), int64(1))
}

// Tasks are added under their names, except those with known nonces, whose first names are returned.
func TestAdd(t *testing.T) {
	b := newBench(t)
	p, ctx := b.producer(), t.Context()
	once := func(key, nonce string) Task {
		one := task(key, key)
		one.Nonce, one.Window = nonce, time.Minute
		return one
	}
	names, skipped, err := p.Add(ctx, b.target(), nil)
	b.is.True(names == nil && skipped == nil && err == nil)
	names, skipped, err = p.Add(ctx, b.target(), []Task{once("a", "n"), task("b", "b")})
	b.is.NoErr(err)
	b.is.Equal(fmt.Sprint(names, skipped), "[k:a k:b] []")
	names, skipped, err = p.Add(ctx, b.target(), []Task{once("c", "m"), once("d", "n")})
	b.is.NoErr(err)
	b.is.Equal(fmt.Sprint(names, skipped), "[k:c k:a] [1]")
	b.is.Equal(b.do("HLEN tasks"), int64(3))

	unique := Task{Name: UniqueName([]byte("u")), Rule: Unique, Record: Record{Payload: []byte("u")}}
	b.add(unique)
	_, _, err = p.Add(ctx, b.target(), []Task{unique, task("e", "e")})
	b.is.True(errors.Is(err, ErrDuplicate))

	large := task("large", strings.Repeat("x", MaxDigested))
	_, _, err = p.Add(ctx, b.target(), []Task{large, task("e", "e")})
	b.is.True(errors.Is(err, ErrTooLarge))
	_, _, err = p.Add(ctx, b.target(), make([]Task, MaxTasks+1))
	b.is.True(errors.Is(err, ErrTooLarge))
	b.is.Equal(b.do("HEXISTS tasks k:e"), int64(0))
	b.add(large)
	b.is.Equal(b.do("HSTRLEN tasks k:large"), int64(MaxDigested+len("1700000000000:0:0:0:0:0:")))
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
}

// A user who may do nothing but enqueue enqueues, and isn't refused anything twice.
func TestProducerWithFewPermissions(t *testing.T) {
	server := redistest.Start(t)
	b := benchAt(t, redistest.Parallel(t), server.URL(), "worqr")
	q := b.q
	redistest.Do(t, b.conn, "ACL", "SETUSER", "producer", "on", ">x", "+eval", "+evalsha", "+exists", "+lpush", "+zpopmin", "+publish", "+set", "+sadd",
		"~"+q.Waiting(), "~"+q.Idle(), "~"+q.Workers(), "~"+keys.None(q)+"*", "&*")
	u := redistest.Sure(url.Parse(server.URL()))(t)
	u.User = url.UserPassword("producer", "x")
	line := redisconn.NewLine(redistest.Sure(Open(u.String(), Access{}))(t).Dial(), 5*time.Second)
	t.Cleanup(line.Close)
	p := NewProducer(line, b.space, logs.New(slog.New(slog.DiscardHandler)))
	for range 2 {
		b.is.NoErr(p.Enqueue(t.Context(), b.target(), [][]byte{nil}))
	}
	fresh, err := p.EnqueueOnce(t.Context(), b.target(), "n", time.Minute, [][]byte{nil})
	b.is.NoErr(err)
	b.is.True(fresh && p.of(b.target()).refused.Load())
	_, _, err = p.Add(t.Context(), b.target(), []Task{task("a", "a")})
	b.is.True(IsDenied(err))
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
