package api

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A peer logs one line when Redis goes away, and one when it's back, however many queues and
// connections notice. The line has the address of Redis, and no password.
func TestOutageIsOneLine(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	log := &peertest.Journal{}
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Logger: log.Logger()}) // on a busy machine, Redis may be silent for part of a second
	queues := []string{"a", "b", "c"}
	starts := make(chan string, 100)
	for _, name := range queues {
		p.Queue(name).Handle(func(_ context.Context, task *worqr.Task) error {
			starts <- task.Queue
			return nil
		}, nil)
	}
	stop := run(t, p)
	served := func() {
		other := openAt(t, server.URL(), worqr.Options{Prefix: "p"}) // uses new connections
		for _, name := range queues {
			enqueue(t, other.Queue(name), "task")
		}
		receive(t, starts, len(queues))
		for _, name := range queues {
			idle(t, other.Queue(name), 1)
		}
	}
	for i := range 2 {
		served()
		server.Kill()
		eventually(t, "the outage is logged", func() bool { return len(log.Lines("worqr: Redis doesn't answer; retrying")) == i+1 })
		server.Restart(t)
		eventually(t, "the end of the outage is logged", func() bool { return len(log.Lines("worqr: Redis answers again")) == i+1 })
	}
	served()
	stop()
	for _, line := range log.Lines("") {
		is.True(!strings.Contains(line, "SECRET"))
		if strings.Contains(line, "Redis doesn't answer") || strings.Contains(line, "Redis answers again") {
			is.True(strings.Contains(line, "server="+server.Addr()))
			continue
		}
		for _, of := range []string{"heartbeats", "not subscribed", "can't start", "worqr: recovered"} {
			if strings.Contains(line, of) {
				t.Errorf("unexpected line: %s", line)
			}
		}
	}
	is.Equal(len(log.Lines("worqr: Redis doesn't answer")), 2)
	is.Equal(len(log.Lines("worqr: Redis answers again")), 2)
}

// A proxy that accepts connections and closes them while its Redis is gone counts as the same
// outage, whatever error results, and nothing reports that Redis is back.
func TestOutageBehindProxyIsOneLine(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	log := &peertest.Journal{}
	p := sure(worqr.Open(server.URL(), &worqr.Options{Prefix: "p", Lease: time.Second, Logger: log.Logger()}))(t) // without a login, which would fail first
	t.Cleanup(func() { _ = p.Close() })
	for _, name := range []string{"a", "b", "c"} {
		p.Queue(name).Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	}
	stop := run(t, p)
	for _, name := range []string{"a", "b", "c"} {
		idle(t, p.Queue(name), 1)
	}
	server.Kill()
	returns := func() int { return len(log.Lines("worqr: Redis answers again")) }
	before := returns() // on a busy machine, it may have been silent
	refuseAll := func(connections int) {
		proxy := sure(net.Listen("tcp", server.Addr()))(t)
		for i := range connections {
			c := sure(proxy.Accept())(t)
			if i%2 == 0 {
				is.NoErr(c.(*net.TCPConn).SetLinger(0)) // resets the connection
			}
			_ = c.Close()
		}
		is.NoErr(proxy.Close())
	}
	refuseAll(15)
	for range 3 { // nothing listens
		is.True(p.Queue("a").Enqueue(t.Context(), []byte("task")) != nil)
	}
	refuseAll(15)
	is.Equal(returns(), before)
	server.Restart(t)
	eventually(t, "the end of the outage is logged", func() bool { return returns() > before })
	stop()
	is.True(len(log.Lines("worqr: Redis doesn't answer")) > 0) // on a slow machine, repeated after ten seconds
	for _, of := range []string{"heartbeats", "not subscribed", "can't start", "can't join", "worqr: recovered"} {
		for _, line := range log.Lines(of) {
			if !strings.Contains(line, "Redis doesn't answer") {
				t.Errorf("unexpected line: %s", line)
			}
		}
	}
	is.Equal(returns(), before+1)
}
