package main

import (
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The demo reads the clock of a cluster, and leaves nothing on any of its nodes.
func TestBrokerOfCluster(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	b := redistest.Sure(openBroker(c.URL()))(t)
	ahead := redistest.Sure(b.ahead(t.Context()))(t)
	is.True(ahead > -time.Minute && ahead < time.Minute) // it is the same clock; a busy machine takes its time

	p := redistest.Sure(worqr.Open(c.URL(), &worqr.Options{Prefix: b.prefix}))(t)
	for _, queue := range []string{"a", "b", "c", "d"} { // on several nodes
		is.NoErr(p.Queue(queue).Enqueue(t.Context(), []byte("x")))
	}
	is.NoErr(p.Close())
	keys := func() (n int) {
		for _, node := range c.Nodes {
			n += len(redistest.Keys(t, redistest.Dial(t, node.URL()), b.prefix))
		}
		return n
	}
	is.True(keys() >= 4)
	is.NoErr(b.clean())
	is.Equal(keys(), 0)
}

// A user of the rules in docs/security.md may use one prefix, and not that of the demo. It says so
// before it does anything, also if the user may only not tidy up.
func TestDemoAsWorker(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "worker", "on", ">SECRET", "~worqr:*", "&*", "+@all")
	redistest.Do(t, c, "ACL", "SETUSER", "untidy", "on", ">SECRET", "~*", "&*", "+@all", "-scan")
	for _, user := range []string{"worker", "untidy"} {
		var out, errs strings.Builder
		is.Equal(run([]string{"demo", "--redis", "redis://" + user + ":SECRET@" + server.Addr()}, strings.NewReader(""), &out, &errs), exitFailed)
		is.True(strings.Contains(errs.String(), "needs the keys worqr-demo-*"))
		is.Equal(len(redistest.Keys(t, c, "*")), 0)
	}
}
