package topology_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// routerTo returns a router to the servers.
func routerTo(t testing.TB, p *topology.Servers, timeout time.Duration) *topology.Router {
	t.Helper()
	r := topology.NewRouter(p, timeout, func(dial redisconn.Dial) *redisconn.Line {
		return redisconn.NewLine(dial, timeout)
	})
	t.Cleanup(r.Close)
	return r
}

// single returns the one server at a URL.
func single(t testing.TB, url string) *topology.Servers {
	t.Helper()
	return topology.Of(redistest.Sure(topology.Open(url, topology.Options{}))(t).Dial())
}

// post sends one call, and returns where the reply arrives.
func post(l *topology.Lane, c redisconn.Call) <-chan redisconn.Reply {
	reply := make(chan redisconn.Reply, 1)
	l.Send([]redisconn.Call{c}, func(all []redisconn.Reply) { reply <- all[0] })
	return reply
}

// text returns a reply as a string, or its error.
func text(r redisconn.Reply) string {
	s, err := redis.String(r.Value, r.Err)
	if err != nil {
		return err.Error()
	}
	return s
}

// With a single server, all lanes share its line.
func TestLaneToOneServer(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	r := routerTo(t, single(t, server.URL()), 0)
	a, b := r.Lane(queue("a")), r.Lane(queue("b"))
	is.True(a.Silent())
	is.Equal(text(<-post(a, redisconn.Command("ECHO", "a"))), "a")
	is.Equal(text(<-post(b, redisconn.Command("ECHO", "b"))), "b")
	is.True(!a.Silent() && !b.Silent())
	is.True(strings.Contains(redistest.Sure(redis.String(c.Do("INFO", "clients")))(t), "connected_clients:2"))
	flight := post(a, redisconn.Command("BLPOP", "list", 0))
	redistest.Eventually(t, "it's in flight", func() bool {
		return strings.Contains(redistest.Sure(redis.String(c.Do("INFO", "clients")))(t), "blocked_clients:1")
	})
	r.Abort()
	is.True(errors.Is((<-flight).Err, redisconn.ErrUnknown))
	r.Close()
	is.True(errors.Is((<-post(a, redisconn.Command("PING"))).Err, redisconn.ErrClosed))
}

// A lane that has lost a round, and doesn't know yet, lets nothing overtake it: what was sent in the
// meantime fails, too.
func TestNothingOvertakesLostRound(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	dial, gathered := redistest.Sure(topology.Open(link.URL(), topology.Options{}))(t).Dial(), make(chan struct{})
	r := routerTo(t, topology.Of(func(ctx context.Context) (redis.Conn, error) {
		<-gathered
		return dial(ctx)
	}), 0)
	other, lane := r.Lane(queue("other")), r.Lane(queue("q"))
	failing, goOn := make(chan struct{}), make(chan struct{})
	link.LoseReplyTo("lost")
	other.Send([]redisconn.Call{redisconn.Command("ECHO", "lost")}, func([]redisconn.Reply) {
		close(failing)
		<-goOn
	})
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Add(2)
	failed := 0
	var push func(n int)
	push = func(n int) {
		lane.Send([]redisconn.Call{redisconn.Command("RPUSH", "list", n)}, func(replies []redisconn.Reply) {
			mu.Lock()
			defer mu.Unlock()
			if replies[0].Err == nil {
				all.Done()
				return
			}
			failed++
			push(n)
		})
	}
	push(1) // in the same write
	close(gathered)
	<-failing
	push(2) // while the first failure is reported
	close(goOn)
	all.Wait()
	c := redistest.Dial(t, server.URL())
	list := redistest.Sure(redis.Strings(c.Do("LRANGE", "list", 0, -1)))(t)
	is.Equal(strings.Join(list[len(list)-2:], " "), "1 2") // the first try may have been carried out, too
	is.Equal(failed, 2)
}

// When a node redirects rounds, they fail, and their repeats go to the new owner in order.
func TestLaneMoved(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, nil), node(t, always("$1\r\nb"))
	sent := make(chan struct{}) // all three, before the first answer
	redirect := always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), b.address))
	a.says(func(command string) string {
		<-sent
		return redirect(command)
	})
	r := routerTo(t, topology.InCluster(cluster(a.address)), timeout)
	lane := r.Lane(queue("q"))
	over := make(chan string, 3)
	for _, key := range []string{"{q}1", "{q}2", "{q}3"} {
		calls := []redisconn.Call{redisconn.Command("GET", key)}
		lane.Send(calls, func(replies []redisconn.Reply) {
			if replies[0].Err == nil {
				t.Error("it was carried out")
			}
			lane.Send(calls, func(replies []redisconn.Reply) { over <- text(replies[0]) })
		})
	}
	close(sent)
	for range 3 {
		is.Equal(<-over, "b")
	}
	is.Equal(a.heard("GET"), 3)
	b.mu.Lock()
	is.Equal(strings.Join(only(b.asked, "GET"), ", "), "GET {q}1, GET {q}2, GET {q}3")
	b.mu.Unlock()
	is.Equal(r.Home(queue("q")), b.address)
}

// only returns the commands with this beginning.
func only(all []string, beginning string) (some []string) {
	for _, c := range all {
		if strings.HasPrefix(c, beginning) {
			some = append(some, c)
		}
	}
	return some
}

// If the owner changes while a round is in flight, the next one waits. If the first one fails, the next
// one fails, too, and isn't sent.
func TestLaneWaitsForPreviousOwner(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"answered": "b", "lost": "an earlier call failed"} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			arrived, goOn := make(chan struct{}), make(chan struct{})
			a, b := node(t, nil), node(t, always("$1\r\nb"))
			a.says(func(command string) string {
				if command == "GET {q}" {
					close(arrived)
					<-goOn
					if name == "lost" {
						return hangUp
					}
				}
				return always("$1\r\na")(command)
			})
			c := cluster(a.address)
			r := routerTo(t, topology.InCluster(c), timeout)
			lane := r.Lane(queue("q"))
			first := post(lane, get)
			<-arrived
			c.Moved(slot("{q}"), b.address)
			second := post(lane, redisconn.Command("GET", "{q}2"))
			is.Equal(b.heard("GET"), 0)
			close(goOn)
			is.Equal((<-first).Err == nil, name == "answered")
			is.Equal(text(<-second), want)
			is.Equal(text(<-post(lane, get)), "b")
		})
	}
}

// A round whose slot is moving fails, and is repeated on the same node: with several keys, it would be
// refused on the other one.
func TestLaneWhileSlotMoves(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, nil), node(t, always("$1\r\nb"))
	r := routerTo(t, topology.InCluster(cluster(a.address)), timeout)
	lane := r.Lane(queue("q"))
	for _, says := range []string{
		fmt.Sprintf("ASK %d %s", slot("{q}"), b.address),
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
	} {
		a.says(always("-" + says))
		is.Equal(text(<-post(lane, get)), says)
		a.says(always("$1\r\na"))
		is.Equal(text(<-post(lane, get)), "a")
	}
	is.Equal(b.heard("GET"), 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	is.True(a.conns <= 2) // of the stream, and to ask for the owners
}

// If the owner is gone, another node is asked, which knows the new one.
func TestLaneOwnerIsGone(t *testing.T) {
	is := redistest.Parallel(t)
	gone, b, c := redistest.Nowhere(t), node(t, nil), node(t, always("$1\r\nc"))
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), c.address)))
	known := cluster(b.address)
	known.Moved(slot("{q}"), gone)
	r := routerTo(t, topology.InCluster(known), timeout)
	lane := r.Lane(queue("q"))
	is.True(redisconn.Away((<-post(lane, get)).Err))
	is.True(strings.HasPrefix(text(<-post(lane, get)), "MOVED"))
	is.Equal(text(<-post(lane, get)), "c")
}

// Connections to nodes without slots are closed after a while, and opened again if needed. A round that
// comes at that moment fails as if the connection was lost.
func TestLaneIsForgotten(t *testing.T) {
	redistest.Parallel(t)
	a := node(t, always("$1\r\na"))
	r := routerTo(t, topology.InCluster(cluster(a.address)), timeout) // no node reports that it owns the slot
	r.SweepAfter(time.Millisecond)
	lane := r.Lane(queue("q"))
	for range 3 {
		redistest.Eventually(t, "a round is made", func() bool {
			reply := <-post(lane, get)
			return !errors.Is(reply.Err, redisconn.ErrClosed) && reply.Err == nil
		})
		redistest.Eventually(t, "it's forgotten", func() bool { return a.open.Load() == 0 && r.Lines() == 0 })
	}
}
