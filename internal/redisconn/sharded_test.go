package redisconn_test

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// hears returns a listener of topics, and a channel with its notifications and messages.
func hears(topics ...redisconn.Topic) (l *redisconn.Subscription, told chan string) {
	told = make(chan string, 100)
	l = &redisconn.Subscription{
		Topics:  topics,
		Message: func(channel string, data []byte) { told <- channel + " " + string(data) },
		Synced:  func() { told <- "synced" },
		Failed:  func(error) { told <- "failed" },
		Moved:   func(t redisconn.Topic, to string) { told <- "moved " + t.Name + " " + to },
	}
	return l, told
}

func next(t *testing.T, told <-chan string, want string) {
	t.Helper()
	select {
	case got := <-told:
		if got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("not told %q", want)
	}
}

func subscriber(t *testing.T, url string, to io.Writer) *redisconn.Subscriber {
	t.Helper()
	s := redisconn.NewSubscriber(redistest.Sure(redisconn.FromURL(url))(t), logs.New(slog.New(slog.NewTextHandler(to, nil))))
	t.Cleanup(s.Close)
	return s
}

// Sharded and other topics share a connection, and each listener gets only its messages.
func TestShardedTopics(t *testing.T) {
	is := redistest.Parallel(t)
	name := redistest.Prefix(t) + "{q}"
	l, told := hears(redisconn.Topic{Name: name, Sharded: true}, redisconn.Topic{Name: name})
	s := subscriber(t, redistest.URL(), t.Output())
	is.NoErr(s.Add(l))
	next(t, told, "synced")
	other, toldToo := hears(redisconn.Topic{Name: name, Sharded: true})
	is.NoErr(s.Add(other))
	next(t, toldToo, "synced")
	c := redistest.Conn(t)
	is.Equal(redistest.Do(t, c, "SPUBLISH", name, "a"), int64(1))
	next(t, told, name+" a")
	next(t, toldToo, name+" a")
	is.Equal(redistest.Do(t, c, "PUBLISH", name, "b"), int64(1))
	next(t, told, name+" b")
	s.Remove(l) // on request, so no listener is notified that it moved
	for redistest.Do(t, c, "PUBLISH", name, "c") != int64(0) {
	}
	is.Equal(redistest.Do(t, c, "SPUBLISH", name, "d"), int64(1))
	next(t, toldToo, name+" d")
	is.Equal(len(told), 0)
}

// On a server without sharded topics, the other topics are subscribed, and nothing is logged.
func TestNoShardedTopics(t *testing.T) {
	is := redistest.Parallel(t)
	url := redistest.Start(t, "--rename-command", "SSUBSCRIBE", "").URL()
	var said strings.Builder
	l, told := hears(redisconn.Topic{Name: "n{q}", Sharded: true}, redisconn.Topic{Name: "n{q}"})
	s := subscriber(t, url, &said)
	is.NoErr(s.Add(l))
	next(t, told, "synced")
	redistest.Do(t, redistest.Dial(t, url), "PUBLISH", "n{q}", "a")
	next(t, told, "n{q} a")
	s.Close()
	is.Equal(said.String(), "")
}

// A sharded subscription ends when its slot moves, and is refused on a node without the slot: the
// listener is notified both times, and keeps receiving messages of its other topics.
func TestShardedTopicMoves(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 2, 0)
	slot := c.Slot(t, "n{q}")
	from := c.Owner(t, slot)
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%2]
	l, told := hears(redisconn.Topic{Name: "n{q}", Sharded: true}, redisconn.Topic{Name: "n{q}"})
	is.NoErr(subscriber(t, from.URL(), t.Output()).Add(l))
	next(t, told, "synced")
	c.Move(t, slot, to)
	next(t, told, "moved n{q} ")
	late, toldLate := hears(redisconn.Topic{Name: "n{q}", Sharded: true}, redisconn.Topic{Name: "n{q}"})
	is.NoErr(subscriber(t, from.URL(), t.Output()).Add(late))
	next(t, toldLate, "moved n{q} "+to.Addr())
	next(t, toldLate, "synced")
	redistest.Sure(redis.Int(redistest.Dial(t, to.URL()).Do("PUBLISH", "n{q}", "a")))(t)
	next(t, told, "n{q} a")
	next(t, toldLate, "n{q} a")
}
