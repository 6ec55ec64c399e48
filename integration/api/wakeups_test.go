package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The commands of the original worqr still work, with the queue name in braces.
func TestOriginalWorqr(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	started, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	idle(t, q, 1)
	subscribed(t, prefix, "q")
	c := redistest.Conn(t)
	do := func(name string, args ...any) any {
		t.Helper()
		return sure(c.Do(name, args...))(t)
	}
	list := prefix + ":queues:{q}"
	// enqueue(['a', 'b', 'c', 'd'])
	do("MULTI")
	do("LPUSH", list, "a", "b", "c", "d")
	do("PUBLISH", prefix+"_{q}_work", "4")
	do("EXEC")
	is.Equal(sorted(receive(t, started, 2)), []string{"a", "b"})
	// countQueue, peekQueue, getTasks, getQueues
	is.Equal(do("LLEN", list), int64(2))
	is.Equal(string(do("LINDEX", list, -1).([]byte)), "c")
	is.Equal(sure(redis.Strings(do("LRANGE", list, 0, -1), nil))(t), []string{"d", "c"})
	is.Equal(sure(redis.Strings(do("KEYS", prefix+":queues*"), nil))(t), []string{list})
	// cancelTasks('c'), which waits, and 'a', which runs
	for _, payload := range []string{"c", "a"} {
		do("MULTI")
		do("LREM", list, 0, payload)
		do("PUBLISH", prefix+"_{q}_cancel", payload)
		do("EXEC")
	}
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
	is.Equal(receive(t, started, 1), []string{"d"})
	// a copy enqueued after the cancel is not touched
	enqueue(t, q, "a")
	do("MULTI")
	do("LREM", list, 0, "b")
	do("PUBLISH", prefix+"_{q}_cancel", "b")
	do("EXEC")
	receive(t, causes, 1)
	is.Equal(receive(t, started, 1), []string{"a"})
	// deleteQueue
	enqueue(t, q, "x")
	do("MULTI")
	do("DEL", list)
	do("PUBLISH", prefix+"_{q}_delete", "")
	do("EXEC")
	is.Equal(len(waiting(t, q)), 0)
	is.Equal(len(causes), 0)
}

// listening returns the ids of the subscribed connections.
func listening(t testing.TB, c redis.Conn) (ids []string) {
	t.Helper()
	list := sure(redis.String(c.Do("CLIENT", "LIST", "TYPE", "pubsub")))(t)
	for line := range strings.Lines(list) {
		ids = append(ids, strings.Fields(line)[0])
	}
	return ids
}

// A silent subscription is kept while its connection works. When the connection receives nothing
// but stays open, it is replaced, and the peer checks for messages that it missed.
func TestDeafSubscription(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour}) // heartbeats don't help
	starts, _ := counting(t, p, "q", nil)
	idle(t, p.Queue("q"), 1)
	var first []string
	eventually(t, "it listens", func() bool { first = listening(t, c); return len(first) == 1 })
	time.Sleep(4 * time.Second) // longer than a connection may be silent
	is.Equal(listening(t, c), first)

	link.Deafen(true)
	enqueue(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q"), "x")
	deaf := time.Now()
	eventually(t, "the subscription is dropped", func() bool { return !slices.Equal(listening(t, c), first) })
	if took := time.Since(deaf); took > 5*time.Second {
		t.Errorf("a silent link was noticed after %v", took)
	}
	is.Equal(len(starts), 0)
	link.Deafen(false)
	link.Cut() // in case it has reconnected before, and got no reply
	heard := time.Now()
	if took := receive(t, starts, 1)[0].Sub(heard); took > 5*time.Second {
		t.Errorf("a task started %v after the link had come back", took)
	}
}

// A subscription that Redis refuses doesn't affect others: the peer's worker is still woken up, on
// the same connection, and the caller of Events gets one error.
func TestRefusedSubscription(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all", "-psubscribe")
	told := &journal{}
	p := openAt(t, "redis://ann:secret@"+server.Addr(), worqr.Options{Prefix: "p", Lease: time.Hour, Logger: told.Logger()})
	starts, stop := counting(t, p, "q", nil) // with this lease it needs messages
	q := p.Queue("q")
	idle(t, q, 1)
	eventually(t, "it is subscribed", func() bool { return len(listening(t, c)) > 0 })
	conn := listening(t, c)
	errs := make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, err := range p.Events(ctx) {
			errs <- err
		}
	}()
	err := receive(t, errs, 1)[0]
	is.True(err != nil && strings.Contains(err.Error(), "NOPERM") && strings.Contains(err.Error(), "p_{*}_"))
	for range 3 {
		enqueue(t, q, "x")
		receive(t, starts, 1)
	}
	is.Equal(listening(t, c), conn)
	is.Equal(len(errs), 0)
	cancel()
	<-over
	stop()
	is.NoErr(p.Close()) // waits until its log is written
	is.Equal(len(told.Lines("refuses a subscription")), 1)
	is.Equal(len(told.Lines("not subscribed")), 0)
}

// Idle peers send only heartbeats, whether tasks are scheduled or not.
func TestIdleIsSilent(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	const peers, queues, beat = 3, 2, time.Second
	h := func(context.Context, *worqr.Task) error { return nil }
	var q *worqr.Queue
	for range peers {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 3 * beat})
		for i := range queues {
			q = p.Queue(fmt.Sprint("q", i))
			q.Handle(h, &worqr.HandleOptions{OnFailed: h})
		}
		run(t, p)
	}
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("later"), At: time.Now().Add(time.Hour)})
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	c := redistest.Dial(t, server.URL())
	since, before := time.Now(), redistest.Calls(t, c, "evalsha")
	time.Sleep(3 * beat) // the measured time
	calls, beats := redistest.Calls(t, c, "evalsha")-before, int(time.Since(since)/beat)+1
	t.Logf("%d scripts in %d beats of %d peers on %d queues", calls, beats, peers, queues)
	// One beat per peer and queue, including failed queues; plus a few for the peers that keep the
	// registrations.
	if most := beats*peers*queues*2 + beats*peers*2; calls > most {
		t.Errorf("%d scripts were called, at most %d are beats", calls, most)
	}
	is.Equal(stats(t, q).Scheduled, 1)
}

// silent checks that the peers on a server make no more calls. No other test may use the server.
func silent(t testing.TB, server *redistest.Server) {
	t.Helper()
	c := redistest.Dial(t, server.URL())
	before := redistest.Calls(t, c, "evalsha")
	time.Sleep(500 * time.Millisecond) // the measured time
	if calls := redistest.Calls(t, c, "evalsha") - before; calls > 5 {
		t.Errorf("%d scripts were called, though there was nothing to do", calls)
	}
}
