package store

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A cancel removes what waits in every place, and finds what runs in every place, however often it is repeated.
func TestCancel(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.enqueue(slices.Repeat([]string{"a"}, 12)...)
	for range 6 {
		b.start("w", 1)
	}
	retried := b.start("w", 2)
	b.finish("w", End{Verb: Retry, Delay: 1 << 40, Reason: "no"}, retried...)
	b.start("v", 1)
	b.add(Task{Name: UniqueName([]byte("a")), Rule: Unique, Record: Record{Payload: []byte("a")}})
	b.enqueue("b")
	b.start("v", 1) // the unique one: it's the turn of ready
	c, err := Cancel(ctx, b.line, b.q, []byte("a"))
	b.is.NoErr(err)
	b.is.Equal(c.Removed, 3+2) // on the list, and retries
	b.is.Equal(len(c.Attempts), 6+1+1)
	b.is.Equal(all(t, Tasks(ctx, b.line, b.q), func(p []byte) string { return string(p) }), "b")
	again, err := Cancel(ctx, b.line, b.q, []byte("a"))
	b.is.NoErr(err)
	b.is.Equal(fmt.Sprint(again.Removed, len(again.Attempts)), "0 8")

	is := func(want bool) {
		t.Helper()
		over, err := c.IsOver(ctx, b.line, b.q)
		b.is.NoErr(err)
		b.is.Equal(over, want)
	}
	is(false)
	for of := range redistest.Each(t, Running(ctx, b.line, b.q)) {
		b.is.True(of.Stops)
		b.finish(of.Worker, End{Verb: Stop}, Attempt{ID: of.Attempt, Token: of.Token, Name: of.Name, Record: of.Record})
	}
	b.is.Equal(redistest.Sure(Len(ctx, b.line, b.q))(t), 1)
	is(true)
	is(true)
}

// Attempts are found however many there are, of however many workers.
func TestCancelManyWorkers(t *testing.T) {
	b := newBench(t)
	for i := range 700 {
		b.enqueue("x", "a")
		b.start(fmt.Sprint("w", i), 2)
	}
	b.enqueue(slices.Repeat([]string{"a", "b"}, 1500)...)
	for range 6 {
		b.start("busy", 512)
	}
	c, err := Cancel(t.Context(), b.line, b.q, []byte("a"))
	b.is.NoErr(err)
	b.is.Equal(len(slices.Compact(slices.Sorted(slices.Values(c.Attempts)))), 700+1500)
	for {
		over, err := c.IsOver(t.Context(), b.line, b.q)
		b.is.NoErr(err)
		if over {
			break
		}
		for _, id := range c.Attempts[len(c.Attempts)/2:] {
			redistest.Do(t, b.conn, "DEL", b.q.Process(id))
		}
	}
}

// If Redis has lost the cancel, it's an error, not an end.
func TestCancelLost(t *testing.T) {
	b := newBench(t)
	ctx, digest := t.Context(), fmt.Sprintf("%x", sha1.Sum([]byte("a")))
	b.enqueue("a")
	b.start("w", 1)
	lose := func() { b.do("DEL canceled:" + digest) }
	_, err := Cancel(ctx, &during{b.line, 3, lose}, b.q, []byte("a"))
	b.is.True(errors.Is(err, ErrLost))
	c, err := Cancel(ctx, b.line, b.q, []byte("a"))
	b.is.NoErr(err)
	b.do("PEXPIRE canceled:" + digest + " 5000")
	over, err := c.IsOver(ctx, b.line, b.q)
	b.is.True(err == nil && !over)
	b.is.True(b.do("PTTL canceled:"+digest).(int64) > 5000)
	b.do("SET canceled:" + digest + " 0") // of before the cancel
	_, err = c.IsOver(ctx, b.line, b.q)
	b.is.True(errors.Is(err, ErrLost))
	lose()
	redistest.Do(t, b.conn, "DEL", b.q.Process(c.Attempts[0]))
	_, err = c.IsOver(ctx, b.line, b.q)
	b.is.True(errors.Is(err, ErrLost))
}

// A worker's set of the wrong type doesn't keep others from being stopped.
func TestCancelOfDamagedWorker(t *testing.T) {
	b := newBench(t)
	b.enqueue("a", "a")
	b.start("w", 1)
	b.start("v", 1)
	b.do("DEL working:v")
	b.do("SET working:v x")
	c, err := Cancel(t.Context(), b.line, b.q, []byte("a"))
	b.is.True(IsWrongType(err))
	b.is.Equal(len(c.Attempts), 1)
}

// A payload of 16 MiB is canceled copy by copy, on the list and while it runs.
func TestCancelLarge(t *testing.T) {
	b := newBench(t)
	payload := strings.Repeat("x", MaxDigested)
	b.enqueue(payload)
	b.enqueue(payload)
	b.enqueue(payload)
	b.start("w", 1)
	c, err := Cancel(t.Context(), b.line, b.q, []byte(payload))
	b.is.NoErr(err)
	b.is.Equal(fmt.Sprint(c.Removed, len(c.Attempts)), "2 1")
}

// Messages of cancels are the payload, or its digest if it's long.
func TestReadCancel(t *testing.T) {
	b := newBench(t)
	ear := redis.PubSubConn{Conn: redistest.Dial(t, redistest.URL())}
	redistest.Must(t, ear.Subscribe(b.q.Channel("cancel")))
	ear.Receive()
	other := "sha1:" + DigestOf([]byte("b"))
	for _, payload := range []string{"", "a", strings.Repeat("x", 2000), "sha1:00:1", other, other + ":1", other + ":+1", other + ":-0", other + ":1:", other + ": 1"} {
		_, err := Cancel(t.Context(), b.line, b.q, []byte(payload))
		b.is.NoErr(err)
		got, digest, size := ReadCancel(ear.Receive().(redis.Message).Data)
		b.is.Equal(digest, DigestOf([]byte(payload)))
		b.is.Equal(size, len(payload))
		b.is.True(got == nil || string(got) == payload)
	}
}

// A worker that hasn't read a large task doesn't know its digest. Its ends find the cancel and the crashes all the same.
func TestEndsOfUnread(t *testing.T) {
	b := newBench(t)
	ctx, payload := t.Context(), strings.Repeat("a", 2<<20)
	end := func(how End) {
		t.Helper()
		unread := b.start("w", 1)[0]
		b.is.True(unread.Large)
		how.Attempt, how.Token = unread.ID, unread.Token
		f := Finish{Worker: "w", MaxFailed: 1000, Ends: []*End{&how}}
		_, err := b.line.One(ctx, f.Call(SharedOf(b.q)))
		b.is.NoErr(err)
	}
	crashes := func() int { return redistest.Sure(redis.Int(b.conn.Do("HLEN", b.q.Crashes())))(t) }

	b.enqueue(payload)
	b.do("HSET crashes " + DigestOf([]byte(payload)) + " 3")
	end(End{Verb: Fail, Kind: Crashed, Reason: "no"})
	b.is.Equal(crashes(), 0)
	for f := range redistest.Each(t, FailedTasks(ctx, b.line, b.q)) {
		b.is.Equal(f.Record.Failure.Crashes, 3)
	}

	b.enqueue(payload)
	b.do("SET canceled:" + DigestOf([]byte(payload)) + " 99")
	end(End{Verb: Stop})
	b.is.Equal(redistest.Sure(Len(ctx, b.line, b.q))(t), 0)
}
