package worqr_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that was failed does not put its old id back on the list of peers,
// where nobody would remove it if it then died.
func TestFailedWorkerStaysOffTheList(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	q := working(t, p, "q")
	old := p.ID()
	tap := redistest.Dial(t, server.URL())
	_, err := tap.Do("MONITOR")
	is.NoErr(err)
	_, err = openAt(t, server.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), old)
	is.NoErr(err)
	eventually(t, "the worker is back", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Workers == 1 && p.ID() != old
	})
	_, err = redistest.Dial(t, server.URL()).Do("ECHO", "over")
	is.NoErr(err)
	for {
		line, err := redis.String(tap.Receive())
		is.NoErr(err)
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
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	var leaves atomic.Int64
	left, first, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	link := &tamper{url: server.URL(), after: func(verb string, _ []any) {
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
	p := link.open(t, worqr.Options{Prefix: "p", Lease: -1}) // what is registered stays
	q := working(t, p, "q")
	c := redistest.Dial(t, server.URL())
	subscribed := func() bool {
		clients, err := redis.String(c.Do("CLIENT", "LIST", "TYPE", "pubsub"))
		is.NoErr(err)
		return clients != ""
	}
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
	is.Equal(redistest.Keys(t, c, "p"), []string{"p:registry", "p:token:{q}"})
}

// What could not be written when a queue was joined is written with a later beat.
func TestRegistrationIsCompleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	is.NoErr(p.StartWorker(t.Context()))
	lists := []string{prefix + ":workers", prefix + ":registry"}
	for _, key := range lists {
		_, err := conn.Do("SET", key, "of another type")
		is.NoErr(err)
	}
	is.True(p.Queue("q").StartWork(t.Context()) == nil) // neither is needed to work
	_, err := conn.Do("DEL", lists[0], lists[1])
	is.NoErr(err)
	for i, member := range []string{p.ID(), "q"} {
		eventually(t, member+" is listed", func() bool {
			there, err := redis.Bool(conn.Do("SISMEMBER", lists[i], member))
			return err == nil && there
		})
	}
}
