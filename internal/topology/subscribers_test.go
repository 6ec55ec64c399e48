package topology_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// A listener records its notifications and messages.
type listener struct {
	*redisconn.Subscription
	told chan string
}

func listening(topics ...redisconn.Topic) listener {
	l := listener{told: make(chan string, 1000)}
	l.Subscription = &redisconn.Subscription{
		Topics:  topics,
		Message: func(_ string, data []byte) { l.told <- string(data) },
		Synced:  func() { l.told <- "synced" },
	}
	return l
}

// expect waits for a notification or message, and ignores others before it.
func (l listener) expect(t *testing.T, want string) {
	t.Helper()
	for over := time.After(20 * time.Second); ; {
		select {
		case got := <-l.told:
			if got == want {
				return
			}
		case <-over:
			t.Fatalf("not told %q", want)
		}
	}
}

func subscribers(t *testing.T, p *topology.Servers, r *topology.Router) *topology.Subscribers {
	t.Helper()
	log := logs.New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	s := topology.NewSubscribers(p, r, func(dial redisconn.Dial) *redisconn.Subscriber { return redisconn.NewSubscriber(dial, log) })
	t.Cleanup(s.Close)
	return s
}

// With a single server there is one connection for messages.
func TestSubscribersOfOne(t *testing.T) {
	is := redistest.Parallel(t)
	place := topology.Of(redistest.Sure(topology.Open(redistest.URL(), topology.Options{}))(t).Dial())
	s := subscribers(t, place, nil)
	channel := redistest.Prefix(t)
	a, b := listening(redisconn.Topic{Name: channel}), listening(redisconn.Topic{Name: channel})
	is.NoErr(s.Add(queue("a"), a.Subscription))
	is.NoErr(s.AddAll(b.Subscription))
	a.expect(t, "synced")
	b.expect(t, "synced")
	is.Equal(redistest.Do(t, redistest.Conn(t), "PUBLISH", channel, "x"), int64(1))
	a.expect(t, "x")
	b.expect(t, "x")
	s.Remove(a.Subscription)
	s.Close()
	is.Equal(s.Add(queue("a"), a.Subscription), redisconn.ErrClosed)
}

// heardAt reports whether a node counts its own subscribers as receivers of a message.
func heardAt(t *testing.T, n *redistest.Server, command, channel, message string) bool {
	t.Helper()
	count, err := redis.Int(redistest.Dial(t, n.URL()).Do(command, channel, message))
	return err == nil && count > 0
}

// A new listener on a node without the slot is synced once: on the node that has the slot.
func TestSyncedWhereTheSlotIs(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 2, 0)
	at := slot("{q}")
	known := cluster(elsewhere(t, c, at).Addr())
	s := subscribers(t, topology.InCluster(known), router(t, known, 20*time.Second))
	q := queue("q")
	sharded, plain := q.Wake("w"), q.Channel(keys.KindWork)
	l := listening(redisconn.Topic{Name: sharded, Sharded: true}, redisconn.Topic{Name: plain})
	is.NoErr(s.Add(q, l.Subscription))
	is.Equal(<-l.told, "synced")
	is.True(heardAt(t, c.Owner(t, at), "SPUBLISH", sharded, "x"))
	is.Equal(<-l.told, "x")
}

// A new listener on a replica of the owner, which confirms the subscription, moves to the owner.
func TestSyncedAtTheOwner(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 1, 1)
	owner, replica := c.OwnerAndReplica(t, slot("{q}"))
	known := cluster(replica.Addr())
	s := subscribers(t, topology.InCluster(known), router(t, known, 20*time.Second))
	q := queue("q")
	plain := q.Channel(keys.KindWork)
	l := listening(redisconn.Topic{Name: plain, Sharded: true})
	is.NoErr(s.Add(q, l.Subscription))
	redistest.Eventually(t, "the owner knows it", func() bool { return heardAt(t, owner, "SPUBLISH", plain, "x") })
	l.expect(t, "x")
}

// In a cluster, a subscription is on the node that owns its queue, which counts it as a receiver:
// at first, after the slot has moved, however the move is noticed, and after the node has died.
func TestSubscriptionMoves(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 3, 3)
	known := cluster(c.Nodes[0].Addr())
	r := router(t, known, 20*time.Second)
	s := subscribers(t, topology.InCluster(known), r)
	q := queue("q")
	plain, sharded := q.Channel(keys.KindWork), q.Wake("w")
	both := listening(redisconn.Topic{Name: sharded, Sharded: true}, redisconn.Topic{Name: plain})
	is.NoErr(s.Add(q, both.Subscription))
	all := listening(redisconn.Topic{Name: "*{q}*", Pattern: true})
	is.NoErr(s.AddAll(all.Subscription))
	all.expect(t, "synced")
	at := slot("{q}")
	check := func(message string) {
		t.Helper()
		owner := c.Owner(t, at)
		redistest.Eventually(t, "the owner knows its subscribers", func() bool {
			return heardAt(t, owner, "SPUBLISH", sharded, message+"s") && heardAt(t, owner, "PUBLISH", plain, message+"p")
		})
		both.expect(t, message+"s")
		both.expect(t, message+"p")
		all.expect(t, message+"p")
	}
	check("first")
	c.Move(t, at, elsewhere(t, c, at)) // without any call: the node itself reports it
	check("moved")
	c.Move(t, at, elsewhere(t, c, at))
	redistest.Sure(r.One(t.Context(), get))(t)
	check("again")

	owner := c.Owner(t, at)
	owner.Kill()
	redistest.Eventually(t, "a replica is promoted", func() bool { return c.Owner(t, at) != owner })
	check("promoted")
	s.Remove(both.Subscription)
	owner = c.Owner(t, at)
	redistest.Eventually(t, "no subscriber is left", func() bool { return !heardAt(t, owner, "SPUBLISH", sharded, "late") })
}

// If no node can be reached, or all refuse the login, a listener of all nodes retries after a
// while, and not immediately on another node.
func TestNobodyToListenTo(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{
		"refused": redis.Error("WRONGPASS invalid username-password pair or user is disabled."),
		"away":    errors.New("connection refused"),
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			var dials atomic.Int64
			known := topology.NewCluster([]string{"a:1", "b:1"}, func(string) redisconn.Dial {
				return func(context.Context) (redis.Conn, error) { dials.Add(1); return nil, why }
			})
			s := subscribers(t, topology.InCluster(known), router(t, known, timeout))
			l := listening(redisconn.Topic{Name: "*", Pattern: true})
			is.NoErr(s.AddAll(l.Subscription))
			time.Sleep(3 * time.Second) // in that time there were once 150
			t.Log(dials.Load(), "dials")
			is.True(dials.Load() > 1 && dials.Load() < 50)
		})
	}
}
