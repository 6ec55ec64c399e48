package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// passed returns how many messages the nodes of a cluster have received from each other. Valkey
// counts received messages, but not sent ones, so each node publishes one more behind all others.
// Call it only once per cluster.
func passed(t *testing.T, c *redistest.Cluster) (n int) {
	t.Helper()
	var conns []redis.Conn
	var ears []redis.PubSubConn
	for _, node := range c.Nodes {
		conns = append(conns, redistest.Dial(t, node.URL()))
		ear := redis.PubSubConn{Conn: redistest.Dial(t, node.URL())}
		must(t, ear.Subscribe("last"))
		if err, failed := ear.Receive().(error); failed { // otherwise it's subscribed
			t.Fatal(err)
		}
		ears = append(ears, ear)
	}
	for _, conn := range conns {
		redistest.Do(t, conn, "PUBLISH", "last", "")
		n -= len(conns) - 1
	}
	for _, ear := range ears {
		for range conns {
			if err, failed := ear.Receive().(error); failed {
				t.Fatal(err)
			}
		}
	}
	for _, conn := range conns {
		told := sure(redis.String(conn.Do("CLUSTER", "INFO")))(t)
		for line := range strings.Lines(told) {
			var some int
			if _, err := fmt.Sscanf(line, "cluster_stats_messages_publish_received:%d", &some); err == nil {
				n += some
			}
		}
	}
	return n
}

// In a cluster, messages about tasks stay on the node of their queue. They wake up workers and stop
// canceled tasks well before the workers would poll.
func TestShardedMessages(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	ctx := t.Context()
	started, ended := make(chan string, 1000), make(chan struct{}, 1)
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: time.Hour}) // it polls after 20 minutes
	names := []string{"a", "b", "c"}                                      // on three nodes
	for _, name := range names {
		p.Queue(name).Handle(func(ctx context.Context, task *worqr.Task) error {
			started <- string(task.Payload)
			if string(task.Payload) == "long" {
				<-ctx.Done()
				ended <- struct{}{}
			}
			return ctx.Err()
		}, nil)
	}
	run(t, p)
	producer := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	for _, name := range names {
		idle(t, p.Queue(name), 1)
		for i := range 200 { // far more than would be sent one by one
			is.NoErr(producer.Queue(name).Enqueue(ctx, []byte(fmt.Sprint(i))))
		}
		receive(t, started, 200)
		idle(t, p.Queue(name), 1)
		is.NoErr(producer.Queue(name).Enqueue(ctx, []byte("long")))
		receive(t, started, 1)
		sure(producer.Queue(name).Cancel(ctx, []byte("long")))(t)
		receive(t, ended, 1)
	}
	is.Equal(passed(t, c), 0)

	// A producer in another language pushes a task, and publishes as on a single server, at any
	// node.
	conn := redistest.Dial(t, c.Owner(t, c.Slot(t, "{a}")).URL())
	elsewhere := redistest.Dial(t, c.Owner(t, c.Slot(t, "{b}")).URL())
	for i, at := range []redis.Conn{conn, elsewhere} {
		idle(t, p.Queue("a"), 1)
		redistest.Do(t, conn, "LPUSH", "p:queues:{a}", fmt.Sprint("pushed", i))
		redistest.Do(t, at, "PUBLISH", "p_{a}_work", 1)
		is.Equal(receive(t, started, 1)[0], fmt.Sprint("pushed", i))
	}
}

// If the user or the server has no SPUBLISH, ordinary messages are used.
func TestUnshardedMessages(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 2, 0, "--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", "")
	started := make(chan string, 1000)
	var log journal
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: time.Hour, Logger: log.Logger()})
	q := p.Queue("a")
	q.Handle(tell(started), nil)
	run(t, p)
	for i := range 20 {
		idle(t, q, 1)
		is.NoErr(q.Enqueue(t.Context(), []byte(fmt.Sprint(i))))
		receive(t, started, 1)
	}
	is.Equal(log.Lines("level=WARN"), nil)
}

// Events of all queues of a cluster include every finished task, on any node: of existing queues,
// between one EventSync and the next; and of new queues after a later EventSync.
func TestClusterEventsOfAll(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	done := func(context.Context, *worqr.Task) error { return nil }
	queues := map[string]*worqr.Queue{"a": p.Queue("a"), "b": p.Queue("b"), "c": p.Queue("c")}
	for _, q := range queues {
		q.Handle(done, nil)
	}
	run(t, p)
	for _, name := range []string{"a", "b", "c"} {
		idle(t, queues[name], 1)
	}
	registered := func(n int) func() bool {
		return func() bool { return sure(length(p.Queues(t.Context())))(t) == n }
	}
	eventually(t, "all are registered", registered(3))

	ctx, heard := t.Context(), listen(t, openAt(t, c.URL(), worqr.Options{Prefix: "p"}))
	hear := func(round string) {
		t.Helper()
		want := map[string]bool{}
		for name, q := range queues {
			for i := range 20 {
				task := fmt.Sprint(round, i)
				is.NoErr(q.Enqueue(ctx, []byte(task)))
				want[name+task] = true
			}
		}
		for len(want) > 0 {
			e := until(t, heard, inspect.EventDone)
			is.True(want[e.Queue+string(e.Payload)]) // each exactly once
			delete(want, e.Queue+string(e.Payload))
		}
	}
	hear("first")
	away(t, c, "b")
	until(t, heard, inspect.EventSync)
	hear("moved")

	later := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	queues["new"] = later.Queue("new")
	is.NoErr(queues["new"].Enqueue(ctx, []byte("before")))
	until(t, heard, inspect.EventSync)
	queues["new"].Handle(done, nil)
	run(t, later)
	is.Equal(until(t, heard, inspect.EventDone).Queue, "new")
	hear("new")
	is.Equal(passed(t, c), 0)
	redistest.Do(t, redistest.Dial(t, c.Nodes[0].URL()), "PUBLISH", "p_{other}_cancel", "x")
	is.Equal(until(t, heard, inspect.EventCancel).Queue, "other")
}
