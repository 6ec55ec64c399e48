package worqr_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that does not know whether it has joined joins again, under its id. When it
// may have been failed meanwhile, that id is over, and it comes back under another.
func TestUncertainJoin(t *testing.T) {
	t.Parallel()
	for name, failed := range map[string]bool{"still there": false, "failed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr())
			p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
			working(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}), "other") // so that Redis knows the script
			is.NoErr(p.StartWorker(t.Context()))
			before, q := p.ID(), p.Queue("q")
			lost := link.LoseRepliesTo("p:suspects:{q}", 1)
			is.True(is_(q.StartWork(t.Context()), worqr.ErrUnknown))
			<-lost
			c := redistest.Dial(t, server.URL())
			members, err := redis.Strings(c.Do("ZRANGE", "p:workers:{q}", 0, -1))
			is.NoErr(err)
			is.Equal(members, []string{before}) // it has joined
			if failed {
				_, err := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), before)
				is.NoErr(err)
			}
			is.NoErr(q.StartWork(t.Context()))
			is.Equal(p.ID() != before, failed)
			members, err = redis.Strings(c.Do("ZRANGE", "p:workers:{q}", 0, -1))
			is.NoErr(err)
			is.Equal(members, []string{p.ID()})
		})
	}
}

// A worker that comes back leaves everything under its old id, also what a round brings
// meanwhile.
func TestComesBackWhileRoundsFlow(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	g := newGate(func(r slog.Record) bool { return strings.Contains(r.Message, "comes back under a new id") })
	p := open(t, worqr.Options{Prefix: prefix, Lease: -1, Logger: slog.New(g)})
	starts, causes := held(t, p, "b", nil)
	before := p.ID()
	working(t, p, "a")
	idle(t, p.Queue("b"), 1)
	c := redistest.Conn(t)
	_, err := c.Do("ZREM", prefix+":workers:{a}", before) // as good as failed, there
	is.NoErr(err)
	go func() { _, _ = p.Queue("a").StartTask(t.Context()) }() // learns of it
	receiveClosed(t, g.halted)
	enqueue(t, p.Queue("b"), "x")
	receive(t, starts, 1) // under the old id
	close(g.open)
	is.Equal(receive(t, causes, 1), []error{worqr.ErrEvicted})
	receive(t, starts, 1) // under the new one
	members, err := redis.Strings(c.Do("ZRANGE", prefix+":workers:{b}", 0, -1))
	is.NoErr(err)
	is.Equal(members, []string{p.ID()})
	is.True(p.ID() != before)
}

// A worker whose answer to a leave was lost works on that queue again when it is asked
// to, and on the others.
func TestUncertainLeave(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	a := working(t, p, "a")
	working(t, p, "b")
	other := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	is.NoErr(working(t, other, "c").StopWork(t.Context())) // so that Redis knows the script
	lost := link.LoseReplyTo("p:suspects:{a}")
	is.NoErr(a.StopWork(t.Context()))
	<-lost
	is.NoErr(a.StartWork(t.Context()))
	c := redistest.Dial(t, server.URL())
	for _, q := range []string{"a", "b"} {
		eventually(t, "it is there", func() bool {
			members, err := redis.Strings(c.Do("ZRANGE", "p:workers:{"+q+"}", 0, -1))
			is.NoErr(err)
			return slices.Equal(members, []string{p.ID()})
		})
	}
}

// A queue that cannot be joined keeps nobody from the others.
func TestJoinsWhatItCan(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	c := redistest.Conn(t)
	for q, token := range map[string]string{"rubbish": "x", "odd": "5.0"} {
		_, err := c.Do("SET", prefix+":token:{"+q+"}", token)
		is.NoErr(err)
	}
	_, err := c.Do("LPUSH", prefix+":token:{foreign}", "x")
	is.NoErr(err)
	p := open(t, worqr.Options{Prefix: prefix})
	runs := make(chan string, 10)
	for _, q := range []string{"rubbish", "foreign", "odd", "good"} {
		p.Queue(q).Handle(func(context.Context, *worqr.Task) error {
			runs <- q
			return nil
		}, nil)
		enqueue(t, p.Queue(q), "x")
	}
	run(t, p)
	got := receive(t, runs, 2)
	slices.Sort(got)
	is.Equal(got, []string{"good", "odd"})
}
