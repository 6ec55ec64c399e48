package topology_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// timeout is the timeout of calls that shouldn't time out.
const timeout = 20 * time.Second

var get = redisconn.Command("GET", "{q}")

func slot(key string) int { return keys.Slot(key) }

func queue(name string) keys.Queue { return keys.NewSpace("worqr").InCluster().Queue(name) }

// begin makes a call, and sends its error when it has ended.
func begin(t *testing.T, r *topology.Router) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := r.One(t.Context(), get)
		ended <- err
	}()
	return ended
}

// With a single server, all calls go directly to it.
func TestOneServer(t *testing.T) {
	is := redistest.Parallel(t)
	dial := redistest.Sure(topology.Open(redistest.URL(), topology.Options{}))(t).Dial()
	l := redisconn.NewLine(dial, 0)
	r := topology.NewRouter(topology.Of(dial), 0, func(redisconn.Dial) *redisconn.Line { return l })
	defer r.Close()
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), redisconn.Command("ECHO", "a"))))(t), "a")
	is.Equal(len(r.Do(t.Context(), redisconn.Command("PING"), redisconn.Command("PING"))), 2)
	is.Equal(r.Made(""), l.Made())
	is.Equal(r.Home(queue("a")), "")
	is.Equal(r.Homes([]keys.Queue{queue("a"), queue("b")}), [][]int{{0, 1}})
	is.Equal(redistest.Sure(r.Nodes(t.Context()))(t), []topology.Node{{Line: l}})
	r.Abort()
	redistest.Sure(r.One(t.Context(), redisconn.Command("PING")))(t)
	r.Close()
	_, err := r.One(t.Context(), redisconn.Command("PING"))
	is.True(errors.Is(err, redisconn.ErrClosed))
}

// A redirected call goes to the new owner, and later calls of its slot go there directly. The new
// owner is asked for the owners of all slots.
func TestMoved(t *testing.T) {
	is := redistest.Parallel(t)
	c := node(t, always("$1\r\nc"))
	b := node(t, nil)
	host, port, _ := net.SplitHostPort(b.address)
	_, other, _ := net.SplitHostPort(c.address)
	b.says(func(command string) string {
		if command == "CLUSTER SLOTS" {
			here, there := slot("{q}"), slot("{other}")
			entry := "*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nx"
			return fmt.Sprintf("*2\r\n"+entry+"\r\n"+entry, here, here, len(host), host, port, there, there, 0, "", other)
		}
		return always("$1\r\nb")(command)
	})
	a := node(t, nil)
	a.says(always(fmt.Sprintf("-MOVED %d :%s", slot("{q}"), port))) // on the same host
	r := router(t, cluster(a.address), timeout)
	for range 2 {
		is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "b")
	}
	is.Equal(a.heard("GET"), 1)
	is.Equal(r.Home(queue("q")), b.address)
	redistest.Eventually(t, "all owners are known", func() bool { return r.Home(queue("other")) == c.address })
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), redisconn.Command("GET", "{other}"))))(t), "c")
	is.Equal(c.heard("GET"), 1)
	is.Equal(a.heard("GET {other}")+b.heard("GET {other}"), 0)
	is.Equal(r.Homes([]keys.Queue{queue("q"), queue("other"), queue("q").Failed(), queue("unknown")}), [][]int{{0, 2}, {1}, {3}})
	is.Equal(a.conns, 1) // it was kept

	// The calls of one Do go to different nodes, and their replies are in order.
	replies := r.Do(t.Context(), get, redisconn.Command("GET", "{other}"), redisconn.Command("TIME").At("{q}"), get)
	for i, want := range []string{"b", "c", "b", "b"} {
		is.Equal(redistest.Sure(redis.String(replies[i].Value, replies[i].Err))(t), want)
	}
	owners := map[string]bool{}
	for _, n := range redistest.Sure(r.Nodes(t.Context()))(t) {
		owners[n.Name] = !n.Replica
		redistest.Sure(n.Line.One(t.Context(), redisconn.Command("INFO", "server")))(t)
	}
	is.Equal(owners, map[string]bool{b.address: true, c.address: true})
}

// If nodes redirect a call to each other, the router gives up at some point.
func TestMovedForEver(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, nil), node(t, nil)
	a.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), b.address)))
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a.address)))
	r := router(t, cluster(a.address), 4*time.Second) // long enough for 17 tries on a busy machine
	_, err := r.One(t.Context(), get)
	is.True(err != nil && redisconn.Away(err) && !errors.Is(err, redisconn.ErrUnknown) && !redisconn.Answered(err))
	n := a.heard("GET") + b.heard("GET")
	is.True(n > 17 && n < 17+4000/10+2) // a pause takes at least 10 ms
}

// A plain call follows a moving slot only once. The next one goes to the owner again.
func TestAsk(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, nil), node(t, nil)
	a.says(always(fmt.Sprintf("-ASK %d %s", slot("{q}"), b.address)))
	asking := false
	b.says(func(command string) string {
		defer func() { asking = command == "ASKING" }()
		switch {
		case command == "ASKING":
			return "+OK"
		case asking:
			return always("$1\r\nb")(command)
		}
		return always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a.address))(command)
	})
	r := router(t, cluster(a.address), timeout)
	for range 2 {
		is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "b")
	}
	is.Equal(a.heard("GET"), 2)
	is.Equal(r.Home(queue("q")), "")

	// A script waits for the slot.
	script := redisconn.NewScript(func() string { return "return 1" })
	tries := 0
	a.says(func(command string) string {
		if strings.HasPrefix(command, "EVALSHA") {
			if tries++; tries == 3 {
				return "$1\r\na"
			}
		}
		return always(fmt.Sprintf("-ASK %d %s", slot("{q}"), b.address))(command)
	})
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), script.Call([]string{"{q}", "more{q}"}))))(t), "a")
	is.Equal(b.heard("EVAL"), 0)
}

// A node that refuses only some commands, and PING among them, is asked.
func TestNodeRefusesPing(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"MISCONF Redis is unable to save", "NOPERM this user may not use PING"} {
		t.Run(why[:7], func(t *testing.T) {
			is := redistest.Parallel(t)
			a := node(t, func(command string) string {
				if command == "PING" {
					return "-" + why
				}
				return always("$1\r\na")(command)
			})
			r := router(t, cluster(a.address), timeout)
			is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "a")
		})
	}
}

// A postponed call is repeated later, on the same connection if that is healthy.
func TestLater(t *testing.T) {
	t.Parallel()
	for why, conns := range map[string]int{
		"TRYAGAIN Multiple keys request during rehashing of slot": 1, "CLUSTERDOWN The cluster is down": 1,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": 3,
		"LOADING Redis is loading the dataset in memory":                                   3,
		"READONLY You can't write against a read only replica.":                            3,
		"NOREPLICAS Not enough good replicas to write.":                                    1,
	} {
		t.Run(why[:8], func(t *testing.T) {
			is := redistest.Parallel(t)
			tries := 0
			a := node(t, func(command string) string {
				if strings.HasPrefix(command, "GET") {
					if tries++; tries < 3 {
						return "-" + why
					}
					return "$1\r\na"
				}
				return ""
			})
			r := router(t, cluster(a.address), timeout)
			is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "a")
			is.Equal(a.heard("GET"), 3)
			is.Equal(a.conns, conns)
		})
	}
}

// It is repeated until its timeout or the end of its context. Then the error says why no node has
// carried it out.
func TestLaterHasAnEnd(t *testing.T) {
	is := redistest.Parallel(t)
	a := node(t, always("-TRYAGAIN later"))
	r := router(t, cluster(a.address), 2*time.Second) // long enough for one try on a busy machine
	_, err := r.One(t.Context(), get)
	is.True(redisconn.Away(err) && !redisconn.Answered(err) && strings.Contains(err.Error(), "TRYAGAIN"))
	is.True(a.heard("GET") < 60)

	r = router(t, cluster(a.address), timeout)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = r.One(ctx, get)
	is.True(errors.Is(err, context.DeadlineExceeded)) // the outcome of a try that is in flight then is unknown

	begun := func() <-chan error {
		before := a.heard("GET")
		ended := begin(t, r)
		redistest.Eventually(t, "a try", func() bool { return a.heard("GET") > before })
		return ended
	}
	ended := begun()
	r.Abort()
	is.True(redisconn.Away(<-ended)) // the outcome of one that was just sent may be unknown
	ended = begun()
	r.Close()
	is.True(errors.Is(<-ended, redisconn.ErrClosed))
	_, err = r.One(t.Context(), get)
	is.True(errors.Is(err, redisconn.ErrClosed))
}

// If the owner can't be reached, because it refuses connections or doesn't answer, another node is
// asked. The call is made once.
func TestOwnerIsGone(t *testing.T) {
	t.Parallel()
	quiet := func(string) string { return silence }
	for name, gone := range map[string]func(t *testing.T) string{
		"refuses": func(t *testing.T) string { t.Helper(); return redistest.Nowhere(t) },
		"silent":  func(t *testing.T) string { t.Helper(); return node(t, quiet).address },
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			a, b := gone(t), node(t, nil)
			tries := 0
			b.says(func(command string) string {
				if strings.HasPrefix(command, "GET") {
					if tries++; tries < 4 { // its replica isn't promoted yet
						return fmt.Sprintf("-MOVED %d %s", slot("{q}"), a)
					}
					return "$1\r\nb"
				}
				return ""
			})
			r := router(t, cluster(a, b.address), 4*time.Second)
			is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "b")
			is.Equal(b.heard("GET"), 4)
			is.True(r.Made(a).IsZero() && !r.Made(b.address).IsZero())

			// No node can be reached: the error says that, and doesn't name the supposed owner.
			r = router(t, cluster(a), 700*time.Millisecond)
			_, err := r.One(t.Context(), get)
			is.True(redisconn.Away(err) && !errors.Is(err, redisconn.ErrUnknown) && !strings.Contains(err.Error(), "MOVED"))
			t.Log(err)
		})
	}
}

// If the owner of a slot is known to be down, it isn't dialed for each call. Each error says that
// it's down, even if another node redirects the call.
func TestOwnerStaysGone(t *testing.T) {
	redistest.Parallel(t)
	a, b := redistest.Nowhere(t), node(t, nil)
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a)))
	r := router(t, cluster(b.address), 2500*time.Millisecond) // long enough for one try on a busy machine
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2 {
				_, err := r.One(t.Context(), get)
				if !redisconn.Away(err) || !strings.Contains(err.Error(), a) || strings.Contains(err.Error(), "MOVED") {
					t.Error(err)
				}
			}
		})
		time.Sleep(30 * time.Millisecond) // so that the calls come at different times; not for synchronization
	}
	all.Wait()
}

// If a node doesn't know an owner's address, the call waits until some node does. If none does, the
// error names the node that had the slot.
func TestOwnerHasNoAddress(t *testing.T) {
	is := redistest.Parallel(t)
	b := node(t, always("$1\r\nb"))
	for _, lost := range []string{":0", "?:6379"} {
		a, tries := node(t, nil), 0
		a.says(func(command string) string {
			if tries++; tries > 3 {
				return always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), b.address))(command)
			}
			return always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), lost))(command)
		})
		r := router(t, cluster(a.address), timeout)
		is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "b")
	}
	a := node(t, nil)
	a.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), b.address)))
	c := cluster(a.address)
	is.Equal(redistest.Sure(redis.String(router(t, c, timeout).One(t.Context(), get)))(t), "b")
	a.says(always(fmt.Sprintf("-MOVED %d :0", slot("{q}"))))
	b.says(func(string) string { return hangUp })
	_, err := router(t, c, 2*time.Second).One(t.Context(), get) // long enough for one try on a busy machine
	is.True(redisconn.Away(err) && strings.Contains(err.Error(), b.address) && !strings.Contains(err.Error(), "MOVED"))
	t.Log(err)
}

// A node that couldn't be reached is used as soon as there is a connection to it: the dial
// continues after its callers have left.
func TestThereAfterAll(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, always("$1\r\na")), node(t, nil)
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a.address)))
	r := router(t, cluster(b.address), time.Hour)
	for range 2 {
		is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "a")
		r.Fail(a.address)
	}
	is.Equal(b.heard("GET"), 1)
}

// A call waits for a silent node at most a quarter of the timeout, and then tries again. That
// matters for heartbeats with a short lease.
func TestSilentForShort(t *testing.T) {
	is := redistest.Parallel(t)
	a := node(t, func(string) string { return silence })
	r := router(t, cluster(a.address), 900*time.Millisecond)
	_, err := r.One(t.Context(), get)
	is.True(redisconn.Away(err) && strings.Contains(err.Error(), "no reply within 225ms"))
}

// No call is sent to the first server before it has said that it's in cluster mode, even if the
// first request for that is lost.
func TestPlainAfterLoss(t *testing.T) {
	is := redistest.Parallel(t)
	plain := func(command string) string {
		if strings.HasPrefix(command, "CLUSTER") {
			return "-ERR This instance has cluster support disabled"
		}
		return "$1\r\na"
	}
	a := node(t, nil)
	a.says(func(command string) string {
		if strings.HasPrefix(command, "CLUSTER") {
			a.answer = plain // says would lock again
			return hangUp
		}
		return plain(command)
	})
	is.True(errors.Is(router(t, cluster(a.address), timeout).Do(t.Context(), get)[0].Err, redisconn.ErrPlain))
	is.True(a.heard("CLUSTER") > 1)
	is.Equal(a.heard("GET"), 0)
}

// A cluster whose nodes don't report the owners, for whatever reason, is used, even if they always
// take longer for that than a call waits for a connection.
func TestSlowRefusal(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"denied":     "-NOPERM User ann has no permissions to run the 'cluster|slots' command",
		"other":      "-ERR Unknown subcommand or wrong number of arguments for 'SLOTS'. Try CLUSTER HELP.",
		"unexpected": "+OK",
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			a := node(t, func(command string) string {
				if strings.HasPrefix(command, "CLUSTER") {
					time.Sleep(200 * time.Millisecond)
					return says
				}
				return always("$1\r\na")(command)
			})
			r := router(t, cluster(a.address), 5*time.Second)
			r.ReachWithin(100 * time.Millisecond)
			is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "a")
		})
	}
}

// A call that was sent and whose reply was lost may have been carried out, so it isn't repeated.
func TestNeverTwice(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, always(hangUp)), node(t, always("$1\r\nb"))
	r := router(t, cluster(b.address), 5*time.Second)
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a.address)))
	_, err := r.One(t.Context(), get)
	is.True(errors.Is(err, redisconn.ErrUnknown))
	is.True(errors.Is(r.Do(t.Context(), get)[0].Err, redisconn.ErrUnknown))
	is.Equal(a.heard("GET"), 2)
	a.says(always(silence))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // long enough to connect
	defer cancel()
	_, err = r.One(ctx, get)
	is.True(errors.Is(err, redisconn.ErrUnknown) && errors.Is(err, context.DeadlineExceeded))
	is.Equal(a.heard("GET"), 3)
}

// Other replies of a node are returned unchanged.
func TestOtherRefusals(t *testing.T) {
	is := redistest.Parallel(t)
	for _, said := range []string{"ERR no", "NOPERM you may not", "MOVED 99999 127.0.0.1:1", "STALE later rounds", "ERR Error running script -TRYAGAIN later"} {
		a := node(t, always("-"+said))
		r := router(t, cluster(a.address), timeout)
		_, err := r.One(t.Context(), get)
		is.True(redisconn.Answered(err))
		is.Equal(a.heard("GET"), 1)
	}
}
