package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// That Redis goes away is one line, and so is that it is back, however many queues and
// connections notice. The line says where Redis is, and has no password.
func TestOutageIsOneLine(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	log := &peertest.Journal{}
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second, Logger: log.Logger()})
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
		other := openAt(t, server.URL(), worqr.Options{Prefix: "p"}) // whose connections are new
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
		eventually(t, "it is told that Redis is away", func() bool { return len(log.Lines("worqr: Redis does not answer; retrying")) == i+1 })
		server.Restart(t)
		eventually(t, "it is told that Redis is back", func() bool { return len(log.Lines("worqr: Redis answers again")) == i+1 })
	}
	served()
	stop()
	for _, line := range log.Lines("") {
		is.True(!strings.Contains(line, "SECRET"))
		if strings.Contains(line, "Redis does not answer") || strings.Contains(line, "Redis answers again") {
			is.True(strings.Contains(line, "server="+server.Addr()))
			continue
		}
		for _, of := range []string{"heartbeats", "not subscribed", "cannot start", "recovered"} {
			if strings.Contains(line, of) {
				t.Errorf("this was said, too: %s", line)
			}
		}
	}
	is.Equal(len(log.Lines("worqr: Redis does not answer")), 2)
	is.Equal(len(log.Lines("worqr: Redis answers again")), 2)
}
