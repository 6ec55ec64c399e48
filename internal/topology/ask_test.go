package topology_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// A fake is a sentinel with fixed answers.
type fake struct {
	*redistest.Door
	asked atomic.Int32 // for the master

	mu   sync.Mutex        // protects says
	says map[string]string // by command
}

func newFake(t *testing.T, master *redistest.Server, epoch int) *fake {
	t.Helper()
	f := &fake{says: map[string]string{}}
	f.names(master, epoch, "")
	f.says["SENTINELS"] = "*0\r\n"
	f.Door = redistest.Listen(t, func(c net.Conn) {
		for words := range redistest.Requests(c) { // SENTINEL and a subcommand
			if words[1] == "MASTER" {
				f.asked.Add(1)
			}
			f.mu.Lock()
			said := f.says[words[1]]
			f.mu.Unlock()
			_, _ = c.Write([]byte(said)) // the client may be gone
		}
	})
	return f
}

// names makes it name a master.
func (f *fake) names(master *redistest.Server, epoch int, run string) {
	host, port, _ := strings.Cut(master.Addr(), ":")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.says["MASTER"] = array("ip", host, "port", port, "runid", run, "config-epoch", fmt.Sprint(epoch))
	f.says["GET-MASTER-ADDR-BY-NAME"] = array(host, port)
}

func array(words ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return text
}

func urlOf(all ...*fake) string {
	var at []string
	for _, f := range all {
		at = append(at, f.Addr())
	}
	return "redis+sentinel://" + strings.Join(at, ",") + "/main"
}

// A configuration older than the current one is accepted only if most of the sentinels have it,
// as after they were set up again.
func TestOlderConfiguration(t *testing.T) {
	is := redistest.Parallel(t)
	old, now := redistest.Start(t), redistest.Start(t)
	a, b, c := newFake(t, now, 7), newFake(t, now, 7), newFake(t, now, 7)
	l := line(t, open(t, urlOf(a, b, c), topology.Options{}))
	is.NoErr(at(l, now))
	a.names(old, 6, "")
	l.Abort()
	is.NoErr(at(l, now))
	b.names(old, 0, "")
	c.names(old, 0, "")
	a.names(old, 0, "")
	l.Abort()
	is.NoErr(at(l, old))
}

// If sentinels know a server by two addresses, no connections are cut.
func TestOneServerByTwoAddresses(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	a, b := newFake(t, server, 3), newFake(t, server, 3)
	a.names(server, 3, "run1")
	b.mu.Lock()
	host, port, _ := strings.Cut(strings.TrimPrefix(link.URL(), "redis://"), ":")
	b.says["MASTER"] = array("ip", host, "port", port, "runid", "run1", "config-epoch", "3")
	b.says["GET-MASTER-ADDR-BY-NAME"] = array(host, port)
	b.mu.Unlock()
	l := line(t, open(t, urlOf(a, b), topology.Options{}))
	is.NoErr(at(l, server))
	made := l.Made()
	redistest.Eventually(t, "the watch has asked both", func() bool { return b.asked.Load() > 1 && a.asked.Load() > 1 })
	is.NoErr(at(l, server))
	is.Equal(l.Made(), made)
}

// Invalid addresses and servers that aren't masters are never used. A master that stops accepting
// writes is left at once.
func TestWhereNobodyGoes(t *testing.T) {
	is := redistest.Parallel(t)
	one, two := redistest.Start(t), redistest.Start(t)
	conn := redistest.Dial(t, one.URL())
	f := newFake(t, one, 1)
	try := topology.OneTry("main", f.Addr()) // a dial's timeout may leave too little time for a try
	fails := func(want string) {
		t.Helper()
		_, err := try(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
	}
	f.mu.Lock()
	f.says["GET-MASTER-ADDR-BY-NAME"] = array("canary", "99999")
	f.mu.Unlock()
	fails("its answer isn't an address")
	f.names(one, 1, "")
	host, port, _ := strings.Cut(two.Addr(), ":")
	redistest.Do(t, conn, "REPLICAOF", host, port)
	fails("it isn't a master yet")

	place := open(t, urlOf(f), topology.Options{})
	redistest.Do(t, conn, "REPLICAOF", "NO", "ONE")
	writes, reads := line(t, place), line(t, place)
	is.NoErr(at(writes, one))
	is.NoErr(at(reads, one))
	redistest.Do(t, conn, "REPLICAOF", host, port)
	f.names(two, 1, "")
	_, err := writes.One(t.Context(), redisconn.Command("SET", "k", "v"))
	is.True(redisconn.Demoted(err))
	is.NoErr(at(reads, two)) // without a call
	is.NoErr(at(writes, two))
}

// A sentinel that names a server which isn't a master is asked last from then on, even if its
// configuration isn't older.
func TestSentinelThatIsWrong(t *testing.T) {
	is := redistest.Parallel(t)
	wrong, right := redistest.Start(t), redistest.Start(t)
	a, b := newFake(t, wrong, 1), newFake(t, right, 1)
	l := line(t, open(t, urlOf(a, b), topology.Options{}))
	is.NoErr(at(l, wrong))
	host, port, _ := strings.Cut(right.Addr(), ":")
	redistest.Do(t, redistest.Dial(t, wrong.URL()), "REPLICAOF", host, port)
	_, err := l.One(t.Context(), redisconn.Command("SET", "k", "v"))
	is.True(err != nil)
	is.NoErr(at(l, right))
}

// If the credentials of sentinels or of the master hang, the error says so, and the master
// is reached once it works again, even though no call has returned.
func TestSentinelCredentialsHang(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"SentinelCredentials", "Credentials"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t)
			var works atomic.Bool
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			login := func(context.Context) (user, password string, err error) {
				if !works.Load() {
					<-over
				}
				return "", "", nil
			}
			o := topology.Options{Credentials: login}
			if what == "SentinelCredentials" {
				o = topology.Options{SentinelCredentials: login}
			}
			l := line(t, open(t, urlOf(newFake(t, master, 1)), o))
			redistest.Eventually(t, "the error says so", func() bool { // on a busy machine, only a later one may
				_, err := l.One(t.Context(), redisconn.Command("PING"))
				return err != nil && strings.Contains(err.Error(), "a function in the options hasn't returned within ")
			})
			works.Store(true)
			redistest.Eventually(t, "the master is reached", func() bool { return at(l, master) == nil })
		})
	}
}
