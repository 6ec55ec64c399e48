package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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

// An evicted worker doesn't add its old id to the list of peers again, where it would stay if the
// worker then died.
func TestFailedWorkerStaysOffTheList(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second})
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

// If StopWorker overtakes StopWork, the worker isn't added to the list again.
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
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: -1}) // registrations don't expire
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
		return is_(q.StartWork(ctx), context.DeadlineExceeded) // it waits for StopWork
	})
	close(first)
	eventually(t, "StopWorker is about to remove the registration", func() bool { return !subscribed() })
	close(second)
	is.Equal(receive(t, stopped, 1), []error{nil})
	is.Equal(receive(t, leaving, 1), []error{nil})
	is.Equal(slices.DeleteFunc(redistest.Keys(t, c, "p"), redistest.IsHistory), []string{"p:protocol", "p:registry", "p:state:{q}"})
}

// A heartbeat writes what couldn't be written when the worker joined a queue.
func TestRegistrationIsCompleted(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix})
	is.NoErr(p.StartWorker(t.Context()))
	lists := []string{prefix + ":workers", prefix + ":registry"}
	for _, key := range lists {
		redistest.Do(t, conn, "SET", key, "of another type")
	}
	is.NoErr(p.Queue("q").StartWork(t.Context())) // works without either
	redistest.Do(t, conn, "DEL", lists[0], lists[1])
	for i, member := range []string{p.WorkerID(), "q"} {
		eventually(t, member+" is listed", func() bool {
			there, err := redis.Bool(conn.Do("SISMEMBER", lists[i], member))
			return err == nil && there
		})
	}
}

// A player makes calls one after the other with its own peer, each only when the test lets it.
type player struct {
	peer   *worqr.Peer
	script []func(*worqr.Queue) error
	acts   atomic.Bool   // whether its calls wait
	stands chan bool     // true when a call waits, false when the script has ended
	goes   chan struct{} // lets the call go on
	late   atomic.Bool   // a call waited for so long that the peer has abandoned it, or may have
}

// turnstile makes the connections of a player wait before each call.
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
			if time.Since(began) > 700*time.Millisecond { // calls time out after a second or more
				a.late.Store(true)
			}
		}
		calls = false
	}
	return c
}

// playerOf returns a player whose peer is connected.
func playerOf(t *testing.T, prefix string, script ...func(*worqr.Queue) error) *player {
	t.Helper()
	a := &player{script: script, stands: make(chan bool), goes: make(chan struct{})}
	a.peer = openThrough(t, redistest.Worker(t, redistest.URL(), prefix), worqr.Options{Prefix: prefix, Lease: time.Hour, NoHistory: true}, a.turnstile)
	sure(a.peer.Queue("q").Stats(t.Context()))(t)
	return a
}

// play lets players make their calls in a random order, which it returns.
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
				switch err := act(a.peer.Queue("q")); {
				case err == nil, is_(err, worqr.ErrDuplicate):
				case is_(err, os.ErrDeadlineExceeded): // the machine is busy
					a.late.Store(true)
				default:
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

// Whatever is enqueued, served and deleted, in whatever order the peers' calls reach Redis, a queue
// that has keys is listed, and a deleted queue without keys isn't. The seed determines the order,
// provided that Redis has loaded the scripts.
func TestRegistry(t *testing.T) {
	t.Parallel()
	const seeds = 60
	ctx, c := t.Context(), redistest.Conn(t)
	a := []byte("a")
	var nonces atomic.Int64
	adds := []func(*worqr.Queue) error{
		func(q *worqr.Queue) error { return q.Enqueue(ctx, a) },
		func(q *worqr.Queue) error { return failure(q.Add(ctx, worqr.TaskSpec{Payload: a, Unique: true})) },
		func(q *worqr.Queue) error { _, err := q.EnqueueOnce(ctx, fmt.Sprint(nonces.Add(1)), a); return err },
		func(q *worqr.Queue) error { return failure(q.Add(ctx, worqr.TaskSpec{Key: "key", Payload: a})) },
		func(q *worqr.Queue) error {
			_, err := q.Add(ctx, worqr.TaskSpec{Payload: a, At: time.Now().Add(time.Hour)})
			return err
		},
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
		one := adds[seed%uint64(len(adds))] // so that a peer repeats what it did before the queue was deleted
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
			return sure(redis.Int(c.Do("EXISTS", q.Waiting(), q.Tasks(), q.Workers())))(t)
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
	for seed, inTime := uint64(0), 0; inTime < seeds; seed++ { // late trials are repeated
		if !trial(seed) {
			inTime++
		}
	}
}

// If a peer declared a worker dead, but died before removing it from the list, another peer removes
// it. If Redis refuses that, the peer tries again.
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
