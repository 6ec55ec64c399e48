package topology_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// confirming answers subscriptions as a node does, and other commands by calling calls.
func confirming(calls func(string) string) func(string) string {
	return func(command string) string {
		verb, channel, _ := strings.Cut(command, " ")
		if strings.HasSuffix(verb, "SUBSCRIBE") {
			return fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1", len(verb), strings.ToLower(verb), len(channel), channel)
		}
		return calls(command)
	}
}

// goroutines returns the number of goroutines that serve connections.
func goroutines() (n int) {
	text := make([]byte, 4<<20)
	for _, one := range strings.Split(string(text[:runtime.Stack(text, true)]), "\n\n") {
		if strings.Contains(one, "internal/redisconn.") {
			n++
		}
	}
	return n
}

// If nodes are replaced again and again, like containers that get new addresses, nothing of the old
// ones remains: no connection, no goroutine and no record. A node that comes back is used again.
// Subscriptions are on the node that has the slot.
func TestNodesAreReplaced(t *testing.T) {
	is := is.New(t) // not parallel: it counts goroutines
	first := node(t, confirming(always("$1\r\nx")))
	known := cluster(first.address)
	r := router(t, known, timeout)
	r.SweepAfter(20 * time.Millisecond)
	s := subscribers(t, topology.InCluster(known), r)
	q := queue("q")
	l := listening(redisconn.Topic{Name: "c"})
	is.NoErr(s.Add(q, l.Subscription))
	pattern := listening(redisconn.Topic{Name: "*", Pattern: true})
	is.NoErr(s.Add(q, pattern.Subscription))
	call := func() {
		t.Helper()
		is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "x")
	}
	call()
	redistest.Eventually(t, "it listens", func() bool { return first.heard("PSUBSCRIBE") > 0 })
	before := goroutines()
	nodes := []*fakeNode{first}
	for i := range 20 {
		now := first // it comes back in the end
		if i < 19 {
			now = node(t, nil)
		}
		now.says(confirming(always("$1\r\nx")))
		nodes[len(nodes)-1].says(confirming(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), now.address))))
		nodes = append(nodes, now)
		call()
		is.Equal(r.Home(q), now.address)
		redistest.Eventually(t, "subscriptions are at the new node", func() bool { return now.heard("SSUBSCRIBE") > 0 && s.Nodes() == 1 })
	}
	call()
	for _, n := range nodes[1 : len(nodes)-1] {
		redistest.Eventually(t, "connections to nodes that are gone are closed", func() bool { return n.open.Load() == 0 })
	}
	is.True(first.open.Load() > 0)
	redistest.Eventually(t, "nodes that are gone are forgotten", func() bool { return r.Lines() == 1 })
	redistest.Eventually(t, "goroutines have ended", func() bool { return goroutines() <= before })
	s.Remove(l.Subscription)
	s.Remove(pattern.Subscription)
	is.Equal(s.Nodes(), 0)
}

// If a node is forgotten while a call is in flight, the call is answered, once, and then the
// connection is closed. The next call makes a new one.
func TestForgottenOnTheWay(t *testing.T) {
	is := redistest.Parallel(t)
	release, arrived := make(chan struct{}), make(chan struct{}, 2)
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	a := node(t, func(command string) string {
		switch command {
		case "CLUSTER SLOTS":
			return "*0"
		case "GET {q}":
			arrived <- struct{}{}
			<-release
			return "$1\r\na"
		}
		return ""
	})
	r := router(t, cluster(a.address), timeout) // no node reports that it owns the slot
	r.SweepAfter(time.Millisecond)
	ended := begin(t, r)
	<-arrived
	redistest.Eventually(t, "it is forgotten", func() bool { return r.Lines() == 0 })
	goOn()
	is.NoErr(<-ended)
	redistest.Eventually(t, "the connection is closed", func() bool { return a.open.Load() == 0 })
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "a")
	is.Equal(len(arrived), 1) // the second call
	redistest.Eventually(t, "that connection is closed, too", func() bool { return a.open.Load() == 0 })
}

// However often a node is forgotten, no call fails because of that, and each is made once.
func TestForgottenAllTheTime(t *testing.T) {
	is := redistest.Parallel(t)
	a := node(t, always("$1\r\na"))
	r := router(t, cluster(a.address), timeout)
	r.SweepAfter(50 * time.Microsecond)
	var calls atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if s, err := redis.String(r.One(t.Context(), get)); err != nil || s != "a" {
					t.Error(s, err)
				}
				calls.Add(1)
			}
		})
	}
	all.Wait()
	is.Equal(int64(a.heard("GET")), calls.Load())
	a.mu.Lock()
	t.Log(a.conns, "connections")
	a.mu.Unlock()
}
