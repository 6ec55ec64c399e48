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

// timeout is that of calls in tests where it should not end.
const timeout = 20 * time.Second

var get = redisconn.Command("GET", "{q}")

func slot(key string) int { return keys.Slot(key) }

func queue(name string) keys.Queue { return keys.NewSpace("worqr").InCluster().Queue(name) }

// One server is asked directly, and everything goes to it.
func TestOneServer(t *testing.T) {
	is := redistest.Parallel(t)
	dial := redistest.Sure(redisconn.FromURL(redistest.URL()))(t)
	r := topology.NewRouter(topology.Of(dial), 0, func(dial redisconn.Dial) *redisconn.Line { return redisconn.NewLine(dial, 0) })
	defer r.Close()
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), redisconn.Command("ECHO", "a"))))(t), "a")
	is.Equal(len(r.Do(t.Context(), redisconn.Command("PING"), redisconn.Command("PING"))), 2)
	p := r.Start(redisconn.Command("ECHO", "b"))
	is.Equal(redistest.Sure(redis.String(p.Wait(t.Context())[0].Value, nil))(t), "b")
	<-p.Done()
	is.Equal(r.Line(queue("a")), r.Line(queue("b")))
	is.Equal(r.Made(""), r.Line(queue("a")).Made())
	is.Equal(r.Home(queue("a")), "")
	is.Equal(r.Homes([]keys.Queue{queue("a"), queue("b")}), [][]int{{0, 1}})
	is.Equal(redistest.Sure(r.Nodes(t.Context()))(t), []topology.Node{{Line: r.Line(queue("a"))}})
	r.Abort()
	redistest.Sure(r.One(t.Context(), redisconn.Command("PING")))(t)
	r.Close()
	_, err := r.One(t.Context(), redisconn.Command("PING"))
	is.True(errors.Is(err, redisconn.ErrClosed))
}

// A call that is to go elsewhere goes there, and so do the next ones of its slot at once. The
// new owner is asked for all the others.
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
	a.says(always(fmt.Sprintf("-MOVED %d :%s", slot("{q}"), port))) // at the same host
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

	// The calls of one Do go to all of them, and their replies are in place.
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

// Nodes that send a call to each other don't do so for ever.
func TestMovedForEver(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, nil), node(t, nil)
	a.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), b.address)))
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a.address)))
	r := router(t, cluster(a.address), 4*time.Second) // for 17 tries, too, on a busy machine
	_, err := r.One(t.Context(), get)
	is.True(err != nil && redisconn.Away(err) && !errors.Is(err, redisconn.ErrUnknown) && !redisconn.Answered(err))
	n := a.heard("GET") + b.heard("GET")
	is.True(n > 17 && n < 17+4000/10+2) // a pause is 10 ms at least
}

// A plain call follows a slot that is on its way for once. The next one goes to the owner again.
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

	// So does a script of one key, with its source. One of several waits for the slot.
	script := redisconn.NewScript("return 1")
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), script.Call([]string{"{q}"}))))(t), "b")
	is.Equal(b.heard("EVAL return 1 1 {q}"), 1)
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
	is.Equal(b.heard("EVAL"), 1)
}

// What is to be made later is made later, on the same connection where that is sound.
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

// It is made for as long as a call may take, and as its context lasts; then the error says why
// no node has carried it out.
func TestLaterHasAnEnd(t *testing.T) {
	is := redistest.Parallel(t)
	a := node(t, always("-TRYAGAIN later"))
	r := router(t, cluster(a.address), 2*time.Second) // for a try, too, on a busy machine
	_, err := r.One(t.Context(), get)
	is.True(redisconn.Away(err) && !redisconn.Answered(err) && strings.Contains(err.Error(), "TRYAGAIN"))
	is.True(a.heard("GET") > 2 && a.heard("GET") < 60)

	r = router(t, cluster(a.address), timeout)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = r.One(ctx, get)
	is.True(errors.Is(err, context.DeadlineExceeded)) // a try that is under way then is unknown
	p := r.Start(get)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = p.Wait(ctx)[0].Err
	is.True(errors.Is(err, context.DeadlineExceeded))
	<-p.Done()

	p = r.Start(get)
	r.Abort()
	err = p.Wait(t.Context())[0].Err
	is.True(redisconn.Away(err)) // one that was just sent may be unknown
	p = r.Start(get)
	r.Close()
	is.True(errors.Is(p.Wait(t.Context())[0].Err, redisconn.ErrClosed))
	_, err = r.One(t.Context(), get)
	is.True(errors.Is(err, redisconn.ErrClosed))
	p = r.Start(get)
	is.True(errors.Is(p.Wait(t.Context())[0].Err, redisconn.ErrClosed))
	is.True(!r.Line(queue("q")).Free() || !r.Line(queue("q")).Ready())
}

// Another node is asked where the owner can't be reached: whether nobody listens there, or nobody
// says anything. The call is made once.
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
					if tries++; tries < 4 { // it is not promoted yet
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

			// Nobody is there: that is said, and not who was thought to own the slot.
			r = router(t, cluster(a), 700*time.Millisecond)
			_, err := r.One(t.Context(), get)
			is.True(redisconn.Away(err) && !errors.Is(err, redisconn.ErrUnknown) && !strings.Contains(err.Error(), "MOVED"))
			t.Log(err)
		})
	}
}

// Where the owner of a slot is known to be down, it isn't dialed for each call, and the error of each
// says that it's down, and not only where another node sends the call.
func TestOwnerStaysGone(t *testing.T) {
	redistest.Parallel(t)
	a, b := redistest.Nowhere(t), node(t, nil)
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a)))
	r := router(t, cluster(b.address), 2500*time.Millisecond) // for a try, too, on a busy machine
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
		time.Sleep(30 * time.Millisecond) // so that they come at different times; no synchronisation
	}
	all.Wait()
}

// A node may not know the address of an owner: the call waits until some node does, and if none does, the
// error names who had the slot.
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
	_, err := router(t, c, 2*time.Second).One(t.Context(), get) // for a try, too, on a busy machine
	is.True(redisconn.Away(err) && strings.Contains(err.Error(), b.address) && !strings.Contains(err.Error(), "MOVED"))
	t.Log(err)
}

// A node that could not be reached is used as soon as there is a connection to it: the dial for which
// nobody has waited goes on.
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

// A node that is silent is waited for no longer than a quarter of the timeout, as that of heartbeats with a
// short lease: it is tried again before that is over.
func TestSilentForShort(t *testing.T) {
	is := redistest.Parallel(t)
	a := node(t, func(string) string { return silence })
	r := router(t, cluster(a.address), 900*time.Millisecond)
	_, err := r.One(t.Context(), get)
	is.True(redisconn.Away(err) && strings.Contains(err.Error(), "no reply within 225ms"))
}

// A call that was sent, and whose reply was lost, may have been carried out: it is made once.
func TestNeverTwice(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, always(hangUp)), node(t, always("$1\r\nb"))
	r := router(t, cluster(b.address), 5*time.Second)
	b.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), a.address)))
	_, err := r.One(t.Context(), get)
	is.True(errors.Is(err, redisconn.ErrUnknown))
	p := r.Start(get)
	is.True(errors.Is(p.Wait(t.Context())[0].Err, redisconn.ErrUnknown))
	is.Equal(a.heard("GET"), 2)
	a.says(always(silence))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // to connect, too
	defer cancel()
	_, err = r.One(ctx, get)
	is.True(errors.Is(err, redisconn.ErrUnknown) && errors.Is(err, context.DeadlineExceeded))
	is.Equal(a.heard("GET"), 3)
}

// Rounds are sent when Start returns, and followed.
func TestStart(t *testing.T) {
	is := redistest.Parallel(t)
	a, b := node(t, nil), node(t, always("$1\r\nb"))
	a.says(always(fmt.Sprintf("-MOVED %d %s", slot("{q}"), b.address)))
	r := router(t, cluster(a.address), timeout)
	for range 3 {
		p := r.Start(get)
		<-p.Done()
		is.Equal(redistest.Sure(redis.String(p.Wait(t.Context())[0].Value, nil))(t), "b")
		is.True(p.Took() > 0)
	}
	is.Equal(a.heard("GET"), 1)
	is.Equal(b.heard("GET"), 3)
	is.True(r.Line(queue("q")).Ready())
}

// What a node answers besides is the answer.
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
