package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that was failed does not put its old id back on the list of peers,
// where nobody would remove it if it then died.
func TestFailedWorkerStaysOffTheList(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	q := working(t, p, "q")
	old := p.WorkerID()
	tap := redistest.Dial(t, server.URL())
	redistest.Do(t, tap, "MONITOR")
	sure(openAt(t, server.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), old))(t)
	eventually(t, "the worker is back", func() bool { s := stats(t, q); return s.Workers == 1 && p.WorkerID() != old })
	redistest.Do(t, redistest.Dial(t, server.URL()), "ECHO", "over")
	for {
		line := sure(redis.String(tap.Receive()))(t)
		if strings.Contains(line, `"SADD" "p:workers" "`+old+`"`) {
			t.Fatal("the worker has put its old id back: ", line)
		}
		if strings.Contains(line, `"over"`) {
			return
		}
	}
}

// A StopWork that StopWorker overtakes does not put the worker back on the list.
func TestStoppedWorkerStaysOffTheList(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	var leaves atomic.Int64
	left, first, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	link := &tamper{Url: server.URL(), After: func(verb string, _ []any) {
		if verb != "leave" {
			return
		}
		switch leaves.Add(1) {
		case 1:
			close(left)
			hold(t, first)
		case 2:
			hold(t, second)
		}
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: -1}) // what is registered stays
	q := working(t, p, "q")
	subscribed := func() bool { return sure(redis.String(c.Do("CLIENT", "LIST", "TYPE", "pubsub")))(t) != "" }
	eventually(t, "it is subscribed", subscribed)
	stopped, leaving := make(chan error, 1), make(chan error, 1)
	go func() { stopped <- p.StopWorker(context.Background()) }()
	receiveClosed(t, left)
	go func() { leaving <- q.StopWork(context.Background()) }()
	eventually(t, "StopWork leaves, too", func() bool {
		ctx, end := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer end()
		return is_(q.StartWork(ctx), context.DeadlineExceeded) // has to wait for it
	})
	close(first)
	eventually(t, "StopWorker is about to remove the registration", func() bool { return !subscribed() })
	close(second)
	is.Equal(receive(t, stopped, 1), []error{nil})
	is.Equal(receive(t, leaving, 1), []error{nil})
	is.Equal(redistest.Keys(t, c, "p"), []string{"p:protocol", "p:registry", "p:token:{q}"})
}

// What could not be written when a queue was joined is written with a later beat.
func TestRegistrationIsCompleted(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	is.NoErr(p.StartWorker(t.Context()))
	lists := []string{prefix + ":workers", prefix + ":registry"}
	for _, key := range lists {
		redistest.Do(t, conn, "SET", key, "of another type")
	}
	is.True(p.Queue("q").StartWork(t.Context()) == nil) // neither is needed to work
	redistest.Do(t, conn, "DEL", lists[0], lists[1])
	for i, member := range []string{p.WorkerID(), "q"} {
		eventually(t, member+" is listed", func() bool {
			there, err := redis.Bool(conn.Do("SISMEMBER", lists[i], member))
			return err == nil && there
		})
	}
}

// A player makes calls one after the other, by a peer of its own, and each of them only
// when it is told to.
type player struct {
	peer   *worqr.Peer
	script []func(*worqr.Queue) error
	acts   atomic.Bool   // its calls wait
	stands chan bool     // it has come to a call, or, when false, to its end
	goes   chan struct{} // the call is to be made
	late   atomic.Bool   // one was made so late that the peer may have given it up
}

// turnstile has the connections of a player wait before each call.
func (a *player) turnstile(c *through) redis.Conn {
	calls := false
	c.OnSend = func(command string, _ []any) {
		calls = calls || !slices.Contains([]string{"PING", "INFO", "SUBSCRIBE", "UNSUBSCRIBE"}, command)
	}
	c.OnFlush = func() {
		if calls && a.acts.Load() {
			began := time.Now()
			a.stands <- true
			<-a.goes
			if time.Since(began) > 700*time.Millisecond { // the shortest that a call waits for is a second
				a.late.Store(true)
			}
		}
		calls = false
	}
	return c
}

// playerOf returns a player with a peer that is connected.
func playerOf(t *testing.T, prefix string, script ...func(*worqr.Queue) error) *player {
	t.Helper()
	a := &player{script: script, stands: make(chan bool), goes: make(chan struct{})}
	a.peer = openThrough(t, redistest.Worker(t, redistest.URL(), prefix), worqr.Options{Prefix: prefix, Lease: time.Hour}, a.turnstile)
	sure(a.peer.Queue("q").Len(t.Context()))(t)
	return a
}

// play has players make their calls, in an order that is drawn, and returns that.
func play(t *testing.T, dice *rand.Rand, players ...*player) (order []int) {
	t.Helper()
	var waiting []int
	step := func(i int) {
		if <-players[i].stands {
			waiting = append(waiting, i)
		}
	}
	for i, a := range players {
		a.acts.Store(true)
		go func() {
			for _, act := range a.script {
				if err := act(a.peer.Queue("q")); err != nil && !is_(err, worqr.ErrDuplicate) {
					t.Errorf("player %d: %v", i, err)
				}
			}
			a.acts.Store(false)
			a.stands <- false
		}()
		step(i)
	}
	for len(waiting) > 0 {
		n := dice.IntN(len(waiting))
		i := waiting[n]
		waiting = slices.Delete(waiting, n, n+1)
		order = append(order, i)
		players[i].goes <- struct{}{}
		step(i)
	}
	return order
}

// Whatever is enqueued, served and deleted, and in whatever order the calls of the peers
// come to Redis: a queue of which something is there is on the list of queues. One that
// was deleted, and of which nothing is there, is not. The order follows from the seed, as
// long as Redis knows the scripts.
func TestRegistry(t *testing.T) {
	t.Parallel()
	const seeds = 60
	ctx, c := t.Context(), redistest.Conn(t)
	many := make([][]byte, 5001) // a batch
	for i := range many {
		many[i] = []byte("b")
	}
	a := []byte("a")
	var nonces atomic.Int64
	adds := []func(*worqr.Queue) error{
		func(q *worqr.Queue) error { return q.Enqueue(ctx, a) },
		func(q *worqr.Queue) error { return q.EnqueueUnique(ctx, a) },
		func(q *worqr.Queue) error { _, err := q.EnqueueOnce(ctx, fmt.Sprint(nonces.Add(1)), a); return err },
		func(q *worqr.Queue) error { return q.Enqueue(ctx, many...) },
		func(q *worqr.Queue) error { return q.Put(ctx, "key", a, nil) },
		func(q *worqr.Queue) error { _, err := q.EnqueueAt(ctx, time.Now().Add(time.Hour), a); return err },
	}
	empties := func(q *worqr.Queue) error { return q.Delete(ctx) }
	serves := func(q *worqr.Queue) error { return q.StartWork(ctx) }
	leaves := func(q *worqr.Queue) error { return q.StopWork(ctx) }
	trial := func(seed uint64) (late bool) {
		prefix := redistest.Prefix(t)
		q := keys.NewSpace(prefix).Queue("q")
		dice := rand.New(rand.NewPCG(seed, 0))
		some := func(of []func(*worqr.Queue) error, n int) (script []func(*worqr.Queue) error) {
			for range 1 + dice.IntN(n) {
				script = append(script, of[dice.IntN(len(of))])
			}
			return script
		}
		one := adds[seed%uint64(len(adds))] // so that a peer does again what it did before the queue was deleted
		deleting := []func(*worqr.Queue) error{empties, empties, empties, adds[0], adds[4]}
		cast := []*player{playerOf(t, prefix, some([]func(*worqr.Queue) error{one}, 6)...), playerOf(t, prefix, some(deleting, 6)...)}
		if dice.IntN(2) == 0 {
			cast = append(cast, playerOf(t, prefix, some(append(slices.Clone(adds), empties), 3)...))
		}
		if dice.IntN(2) == 0 {
			worker := playerOf(t, prefix, [][]func(*worqr.Queue) error{{serves}, {serves, leaves}}[dice.IntN(2)]...)
			must(t, worker.peer.StartWorker(ctx))
			cast = append(cast, worker)
		}
		order := play(t, dice, cast...)
		for _, a := range cast {
			late = late || a.late.Load()
		}
		listed := func() bool { return sure(redis.Bool(c.Do("SISMEMBER", prefix+":registry", "q")))(t) }
		there := func() int {
			return sure(redis.Int(c.Do("EXISTS", q.Waiting(), q.Contents(), q.Batches(), q.Workers())))(t)
		}
		if n := there(); n > 0 && !listed() && !late {
			t.Errorf("seed %d: the queue is not on the list, and %d keys of it are there; the order was %v", seed, n, order)
		}
		for _, a := range cast {
			must(t, a.peer.Close()) // the worker leaves
		}
		must(t, open(t, worqr.Options{Prefix: prefix}).Queue("q").Delete(ctx))
		if n := there(); n > 0 || listed() {
			t.Errorf("seed %d: the queue was deleted, and %d keys of it are there; it is on the list: %v", seed, n, listed())
		}
		return late
	}
	for seed, inTime := uint64(0), 0; inTime < seeds; seed++ { // on a busy machine, some more
		if !trial(seed) {
			inTime++
		}
	}
}

// A peer takes off the roster whom somebody else has found dead and did not live to strike
// off. When Redis does not let it, it tries again.
func TestRosterIsPrunedLater(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-srandmember")
	redistest.Do(t, c, "SADD", "p:workers", "long dead")
	p := openAt(t, "redis://app:pw@"+server.Addr(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	is.NoErr(p.StartWorker(t.Context()))
	eventually(t, "it has tried", func() bool { return len(sure(redis.Values(c.Do("ACL", "LOG")))(t)) > 0 })
	redistest.Do(t, c, "ACL", "SETUSER", "app", "+srandmember")
	eventually(t, "it is off the roster", func() bool {
		return sure(redis.Int(c.Do("SCARD", "p:workers")))(t) == 1 // the peer itself
	})
}
