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

// A fakeNode is a node that says what a test has it say.
type fakeNode struct {
	address string
	open    atomic.Int32 // connections

	mu     sync.Mutex
	asked  []string // commands, with their arguments; but for PING
	answer func(command string) string
	conns  int
}

// says is how a node answers with nothing, and how it ends the connection.
const (
	silence = "silence"
	hangUp  = "hang up"
)

// node returns a fakeNode. Answer gets a command with its arguments, separated by spaces, and returns
// the reply without the end of the line.
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

// says changes what a fakeNode answers.
func (f *fakeNode) says(answer func(command string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// heard is what a fakeNode was asked: how often a command came that begins so.
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

// always returns an answer.
func always(reply string) func(string) string {
	return func(command string) string {
		if command == "PING" || strings.HasPrefix(command, "CLUSTER") {
			return ""
		}
		return reply
	}
}

// cluster is what is known of one at first.
func cluster(seeds ...string) *topology.Cluster {
	return topology.NewCluster(seeds, func(address string) redisconn.Dial {
		dial, err := redisconn.FromURL("redis://" + address)
		if err != nil {
			panic(err)
		}
		return redisconn.Marked(dial)
	})
}

// router is one to a cluster.
func router(t testing.TB, c *topology.Cluster, timeout time.Duration) *topology.Router {
	t.Helper()
	r := topology.NewRouter(topology.InCluster(c), timeout, func(dial redisconn.Dial) *redisconn.Line {
		return redisconn.NewLine(dial, timeout)
	})
	r.ReachWithin(timeout)
	t.Cleanup(r.Close)
	return r
}
