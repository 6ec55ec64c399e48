package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A producer that keeps adding to new queues remembers only some of them. The others are still
// listed, keep their order, and are learned again.
func TestManyQueueNames(t *testing.T) {
	is := redistest.Parallel(t)
	dial := sure(Open(redistest.Start(t).URL(), Access{}))(t).Dial() // the tests with tables also run on partial implementations of Redis
	l, log := linesTo(t, Single(dial), DefaultTimeout)
	s := SpaceOf(redistest.Prefix(t))
	p := NewProducer(l, s, log)
	enqueue := func(name, first, second string) {
		is.NoErr(p.Enqueue(t.Context(), Target{name, name, s.Queue(name)}, [][]byte{[]byte(first), []byte(second)}))
	}
	for i := range 3 * mostKnown {
		enqueue(fmt.Sprint(i), "a", "b")
	}
	is.Equal(len(p.all), mostKnown)
	for i := range 10 {
		name := fmt.Sprint(i)
		enqueue(name, "c", "d")
		var got []string
		for payload := range redistest.Each(t, Tasks(t.Context(), l.Calls, s.Queue(name))) {
			got = append(got, string(payload))
		}
		is.Equal(got, []string{"a", "b", "c", "d"})
	}
	is.Equal(len(p.all), mostKnown)
	listed := 0
	for range redistest.Each(t, Queues(t.Context(), l.Calls, s)) {
		listed++
	}
	is.Equal(listed, 3*mostKnown)
}

// A queue in use is listed again from time to time, however often it was deleted: listings don't add
// up.
func TestRelist(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l, log := linesTo(t, Single(sure(Open(server.URL(), Access{}))(t).Dial()), DefaultTimeout)
	s := SpaceOf(redistest.Prefix(t))
	p, q, c := NewProducer(l, s, log), Target{"q", "q", s.Queue("q")}, redistest.Dial(t, server.URL())
	p.relist = 50 * time.Millisecond
	const unlists, periods = 30, 10
	for range unlists {
		is.NoErr(p.Enqueue(t.Context(), q, [][]byte{[]byte("a")}))
		is.NoErr(p.Unlist(t.Context(), q))
	}
	began, before := time.Now(), redistest.Calls(t, c, "sadd")
	redistest.Eventually(t, "it's listed again and again", func() bool {
		is.NoErr(p.Enqueue(t.Context(), q, [][]byte{[]byte("a")}))
		return redistest.Calls(t, c, "sadd") >= before+periods
	})
	if took := time.Since(began); took < (periods-2)*p.relist { // the first is due, and the second soon
		t.Errorf("listed %d times in %v", periods, took)
	}
}

// A producer may forget what it knows about a queue while it sends a batch. It still records that
// the batch may exist.
func TestForgottenDuringBatch(t *testing.T) {
	is := redistest.Parallel(t)
	link := redistest.NewLink(t, redistest.Start(t).Addr())
	dial := sure(Open(link.URL(), Access{}))(t).Dial()
	var p *Producer
	forget := make(chan bool, 1)
	l, log := linesTo(t, Single(func(ctx context.Context) (redis.Conn, error) {
		select {
		case <-forget:
			p.Forget()
		default:
		}
		return dial(ctx)
	}), DefaultTimeout)
	s := SpaceOf(redistest.Prefix(t))
	p = NewProducer(l, s, log)
	q, other := Target{"q", "q", s.Queue("q")}, Target{"o", "o", s.Queue("o")}
	batch := slices.Repeat([][]byte{[]byte("a")}, PageLength+1)
	is.NoErr(p.Enqueue(t.Context(), other, batch)) // loads the scripts
	link.LoseRepliesTo(q.Keys.Batches(), attempts) // to the commit
	forget <- true                                 // when the first reply is lost
	err := p.Enqueue(t.Context(), q, batch)
	is.True(errors.Is(err, ErrUnknown))
	is.Equal(p.of(q).unmoved.Load(), int64(1))
	is.NoErr(p.Enqueue(t.Context(), q, [][]byte{[]byte("b")}))
	is.Equal(p.of(q).unmoved.Load(), int64(0))
	n, last := 0, ""
	for payload := range redistest.Each(t, Tasks(t.Context(), l.Calls, q.Keys)) {
		n, last = n+1, string(payload)
	}
	is.Equal(n, PageLength+2)
	is.Equal(last, "b")
}
