package store

import (
	"fmt"
	"testing"
	"time"

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
