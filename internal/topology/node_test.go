package topology_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// A fakeNode is a node whose answers a test determines.
type fakeNode struct {
	address string
	open    atomic.Int32 // connections

	mu     sync.Mutex
	asked  []string // commands with their arguments, except PING
	answer func(command string) string
	conns  int
}

// Special answers of a node: no answer, and the end of the connection.
const (
	silence = "silence"
	hangUp  = "hang up"
)

// node returns a fakeNode. answer gets a command with its arguments, separated by spaces, and
// returns the reply without the end of the line.
func node(t testing.TB, answer func(command string) string) *fakeNode {
	t.Helper()
	f := &fakeNode{answer: answer}
	f.address = redistest.Listen(t, f.serve).Addr()
	return f
}

func (f *fakeNode) serve(c net.Conn) {
	f.mu.Lock()
	f.conns++
	f.mu.Unlock()
	f.open.Add(1)
	defer f.open.Add(-1)
	for words := range redistest.Requests(c) {
		command := strings.Join(words, " ")
		f.mu.Lock()
		if command != "PING" {
			f.asked = append(f.asked, command)
		}
		reply := f.answer(command)
		f.mu.Unlock()
		switch {
		case reply == silence:
			continue
		case reply == hangUp:
			return
		case reply == "" && command == "PING":
			reply = "+PONG"
		case reply == "" && strings.HasPrefix(command, "CLUSTER"):
			reply = "-ERR unknown command"
		}
		if _, err := fmt.Fprintf(c, "%s\r\n", reply); err != nil {
			return
		}
	}
}

// says changes the answers of a fakeNode.
func (f *fakeNode) says(answer func(command string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// heard returns how often a fakeNode received a command with this beginning.
func (f *fakeNode) heard(command string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.asked {
		if strings.HasPrefix(c, command) {
			n++
		}
	}
	return n
}

// always returns a function that always gives the same answer.
func always(reply string) func(string) string {
	return func(command string) string {
		if command == "PING" || strings.HasPrefix(command, "CLUSTER") {
			return ""
		}
		return reply
	}
}

// cluster returns a Cluster that knows only its seeds.
func cluster(seeds ...string) *topology.Cluster {
	return topology.NewCluster(seeds, func(address string) redisconn.Dial {
		return redisconn.Server{Network: "tcp", Address: address}.Dial
	})
}

// router returns a router to a cluster.
func router(t testing.TB, c *topology.Cluster, timeout time.Duration) *topology.Router {
	t.Helper()
	r := topology.NewRouter(topology.InCluster(c), timeout, func(dial redisconn.Dial) *redisconn.Line {
		return redisconn.NewLine(dial, timeout)
	})
	r.ReachWithin(timeout)
	t.Cleanup(r.Close)
	return r
}
