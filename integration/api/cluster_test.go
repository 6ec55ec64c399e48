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
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// away moves the slot of a queue to another master, while it is in use.
func away(t *testing.T, c *redistest.Cluster, queue string) {
	t.Helper()
	slot := c.Slot(t, "{"+queue+"}")
	to := c.Nodes[0]
	if c.Owner(t, slot) == to {
		to = c.Nodes[1]
	}
	c.Move(t, slot, to)
}

// Peers work in a cluster by its URL alone. Slots of their queues move under load: nothing is
// lost, nothing runs twice, and nobody is evicted.
func TestClusterSlotMoves(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	names := []string{"a", "b", "c"} // on three nodes
	ran := map[string]*tally{}
	var log journal
	var peers []*worqr.Peer
	for _, name := range names {
		ran[name] = &tally{}
	}
	for range 2 {
		p := openAt(t, c.URL(), worqr.Options{Prefix: "p", Logger: log.Logger()})
		for _, name := range names {
			p.Queue(name).Handle(ran[name].handle, &worqr.HandleOptions{Concurrency: 4})
		}
		run(t, p)
		peers = append(peers, p)
	}
	ids := []string{peers[0].WorkerID(), peers[1].WorkerID()}
	producer := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	var streams []*stream
	for _, name := range names {
		streams = append(streams, newStream(t, producer.Queue(name)))
	}
	for i := range 6 {
		name := names[i%len(names)]
		before := ran[name].len()
		eventually(t, "tasks run", func() bool { return ran[name].len() > before+50 })
		away(t, c, name)
	}
	for i, s := range streams {
		of := ran[names[i]]
		taken := s.close()
		is.True(len(taken) > 100)
		for _, task := range taken {
			eventually(t, "a task runs", func() bool { return of.of(task) > 0 })
			is.Equal(of.of(task), 1)
		}
		is.Equal(of.len(), len(taken))
	}
	is.Equal([]string{peers[0].WorkerID(), peers[1].WorkerID()}, ids) // nobody was evicted
	is.Equal(log.Lines("level=WARN"), nil)
	is.Equal(log.Lines("level=ERROR"), nil)
}

// Read-outs, cancels and deletes work over all nodes, while slots move.
func TestClusterVerbs(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	ctx := t.Context()
	started, ended := make(chan struct{}, 1), make(chan error, 1)
	for _, name := range []string{"a", "b", "c"} {
		is.NoErr(p.Queue(name).Enqueue(ctx, []byte("x"), []byte("y")))
		is.Equal(sure(p.Queue(name).Len(ctx))(t), 2)
	}
	var listed []string
	for name := range redistest.Each(t, p.Queues(ctx)) {
		listed = append(listed, name)
	}
	slices.Sort(listed)
	is.Equal(listed, []string{"a", "b", "c"})

	away(t, c, "b")
	is.NoErr(p.Queue("b").Delete(ctx))
	is.Equal(sure(p.Queue("b").Len(ctx))(t), 0)
	listed = nil
	for name := range redistest.Each(t, p.Queues(ctx)) {
		listed = append(listed, name)
	}
	slices.Sort(listed)
	is.Equal(listed, []string{"a", "c"})

	w := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	w.Queue("d").Handle(func(ctx context.Context, _ *worqr.Task) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, nil)
	run(t, w)
	is.NoErr(p.Queue("d").Enqueue(ctx, []byte("long")))
	<-started
	away(t, c, "d")
	report := sure(p.Queue("d").Cancel(ctx, []byte("long")))(t)
	is.Equal(fmt.Sprint(report.Removed), "0")
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the task was not stopped")
	}
	workers := 0
	for range redistest.Each(t, p.Workers(ctx)) {
		workers++
	}
	is.Equal(workers, 1)
}

// Who listens to some queues hears of every task that is done, whichever node has them, also after
// a slot has moved.
func TestClusterEvents(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	names := []string{"a", "b", "c"} // on three nodes
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	for _, name := range names {
		p.Queue(name).Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	}
	run(t, p)
	observer := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	heard := make(chan inspect.Event, 1000)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer close(heard)
		for e, err := range observer.Events(ctx, names...) {
			if err == nil && (e.Kind == inspect.EventDone || e.Kind == inspect.EventSync) {
				heard <- e
			}
		}
	}()
	is.Equal(receive(t, heard, 1)[0].Kind, inspect.EventSync)
	hear := func(round int) {
		t.Helper()
		want := map[string]bool{}
		for _, name := range names {
			for i := range 20 {
				task := fmt.Sprint(name, round, "/", i)
				is.NoErr(p.Queue(name).Enqueue(ctx, []byte(task)))
				want[task] = true
			}
		}
		for len(want) > 0 {
			e := receive(t, heard, 1)[0]
			delete(want, string(e.Payload))
		}
	}
	hear(1)
	away(t, c, "b")
	for receive(t, heard, 1)[0].Kind != inspect.EventSync {
	}
	hear(2)
	stop()
	for range heard {
	}
}

// The worker of docs/security.md works in a cluster, with what that adds to its rule and without:
// then a call finds a slot that has moved by going astray once.
func TestClusterUsers(t *testing.T) {
	t.Parallel()
	for user, more := range map[string][]string{
		"bare-p": nil, "worker-p": redistest.ClusterRule(t, "worker"), // nothing may be denied to that one
	} {
		t.Run(user, func(t *testing.T) {
			is := parallel(t)
			c := redistest.StartCluster(t, 2, 0)
			for _, n := range c.Nodes {
				rule := redis.Args{"SETUSER", user}.AddFlat(redistest.Rule(t, "worker", "p")).AddFlat(more)
				redistest.Do(t, redistest.Dial(t, n.URL()), "ACL", rule...)
			}
			url := strings.Replace(c.URL(), "://", "://"+user+":SECRET@", 1)
			var log journal
			ran := &tally{}
			p := openAt(t, url, worqr.Options{Prefix: "p", Logger: log.Logger()})
			p.Queue("q").Handle(ran.handle, nil)
			run(t, p)
			for i := range 4 {
				task := fmt.Sprint(i)
				is.NoErr(p.Queue("q").Enqueue(t.Context(), []byte(task)))
				eventually(t, "the task runs", func() bool { return ran.of(task) == 1 })
				away(t, c, "q")
			}
			is.Equal(log.Lines("level=WARN"), nil)
			is.Equal(log.Lines("level=ERROR"), nil)
		})
	}
}
