package engines

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/redistest"
)

// A single is one Redis server, and the peers that use it.
type single struct {
	*redistest.Server
	*fleet
	t *testing.T
	d *rand.Rand
}

// startSingle starts a server with an append-only file, and peers that connect through links if linked.
func startSingle(t *testing.T, fsync string, linked bool, of site) *single {
	t.Helper()
	s := &single{t: t, d: dice(t)}
	s.Server = redistest.Start(t, "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0",
		"--aof-load-truncated", "yes", "--aclfile", noUsers(t))
	admit(t, s.Server)
	s.call("ACL", "SAVE")
	of.url, of.login = s.URL(), user+":SECRET@"
	of.nodes = func() []*redistest.Server { return []*redistest.Server{s.Server} }
	if linked {
		for range peers + 1 {
			of.links = append(of.links, redistest.NewLink(t, s.Addr()))
		}
	}
	s.fleet = newFleet(t, of, s.d)
	return s
}

// noUsers returns an empty file of users, so that those that are saved survive a restart.
func noUsers(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "users.acl")
	redistest.Must(t, os.WriteFile(file, nil, 0o600))
	return file
}

func (s *single) call(command string, args ...any) {
	s.t.Helper()
	redistest.Sure(s.Call(command, args...))(s.t)
}

// between waits for a random time. Nothing relies on what happens in the meantime.
func (s *single) between(least, most time.Duration) {
	time.Sleep(least + time.Duration(s.d.Int64N(int64(most-least))))
}

// again waits until all peers work again.
func (s *single) again() {
	s.t.Helper()
	s.back(load.Mono())
	s.goOn(20 + s.d.IntN(50))
}

// Peers are killed one after the other, faster than on the other engines: what they held starts again
// soon, and no other peer is evicted.
func TestKills(t *testing.T) {
	const lease = time.Second
	s := startSingle(t, "everysec", false, site{lease: lease, apart: lease})
	for n := range *rounds {
		s.await("peers are killed", func() bool { return s.kills >= 10*(n+1) })
	}
	s.settle()
	s.recoveries().hold(t, "from a kill until a task that it held starts again", lease*4/3+300*time.Millisecond)
}

// Redis stops for a while, or dies and comes back with all it has acknowledged: no living peer is
// evicted, and no task starts twice.
func TestOutages(t *testing.T) {
	s := startSingle(t, "always", false, site{})
	for range *rounds {
		s.goOn(20 + s.d.IntN(50))
		s.Pause(t)
		s.between(s.lease/2, 3*s.lease)
		s.Resume(t)
		s.again()
		s.Kill()
		s.between(0, 2*s.lease)
		s.Restart(t)
		s.again()
	}
	s.settle()
}

// Power fails, and takes up to a second of writes with it: peers report the loss, and every other
// task is done.
func TestPowerFailures(t *testing.T) {
	s := startSingle(t, "everysec", false, site{})
	data := redistest.Sure(redis.Strings(s.Call("CONFIG", "GET", "dir")))(t)[1]
	var deaths []int64
	for range *rounds {
		s.goOn(20 + s.d.IntN(50))
		files := redistest.Sure(filepath.Glob(filepath.Join(data, "appendonlydir", "*.incr.aof")))(t)
		log := files[len(files)-1]
		synced := redistest.Sure(os.Stat(log))(t).Size()
		s.between(300*time.Millisecond, time.Second) // of writes
		s.Kill()
		deaths = append(deaths, load.Mono())
		redistest.Must(t, os.Truncate(log, synced))
		s.between(0, s.lease)
		s.Restart(t)
		s.again()
	}
	s.settle(deaths...)
	s.lossesReported(deaths)
}

// The links of peers fail, several at a time, and operators and their tools get in the way. Only who
// was cut off for too long may be evicted, and works again under another id.
func TestFaults(t *testing.T) {
	s := startSingle(t, "everysec", true, site{lease: time.Second, apart: 2 * time.Second})
	order := s.d.Perm(len(faults))
	for i := range 5 * *rounds {
		f := faults[order[i%len(order)]]
		t.Log(f.name)
		f.happens(s)
		s.again()
	}
	s.settle()
}

var faults = []struct {
	name    string
	happens func(s *single)
}{
	{"connections end", func(s *single) {
		for _, l := range s.links {
			l.Cut()
		}
	}},
	{"requests don't arrive", func(s *single) { s.cut(func(l *redistest.Link, cut bool) { l.Mute(cut) }) }},
	{"replies don't arrive", func(s *single) { s.cut(func(l *redistest.Link, cut bool) { l.Deafen(cut) }) }},
	{"nothing arrives", func(s *single) { s.cut(func(l *redistest.Link, cut bool) { l.Mute(cut); l.Deafen(cut) }) }},
	{"replies are slow", func(s *single) {
		s.cut(func(l *redistest.Link, cut bool) { l.Narrow(map[bool]int{true: 10 << 10}[cut]) })
	}},
	{"Redis forgets its scripts", func(s *single) { s.call("SCRIPT", "FLUSH") }},
	{"Redis closes all connections", func(s *single) {
		s.call("CLIENT", "KILL", "TYPE", "normal")
		s.call("CLIENT", "KILL", "TYPE", "pubsub")
	}},
	{"Redis is a replica", func(s *single) {
		s.during(func() { s.call("REPLICAOF", "127.0.0.1", "1") }, func() { s.call("REPLICAOF", "NO", "ONE") })
	}},
	{"the user is turned off", func(s *single) {
		s.during(func() {
			s.call("ACL", "SETUSER", user, "off")
			s.call("CLIENT", "KILL", "USER", user)
		}, func() { s.call("ACL", "SETUSER", user, "on") })
	}},
	{"writes are paused", func(s *single) {
		s.during(func() { s.call("CLIENT", "PAUSE", 60_000, "WRITE") }, func() { s.call("CLIENT", "UNPAUSE") })
	}},
}

// cut makes the links of two peers fail for less or more than a lease.
func (s *single) cut(fail func(l *redistest.Link, cut bool)) {
	s.t.Helper()
	s.changes.Lock()
	defer s.changes.Unlock()
	places := s.d.Perm(peers)[:2]
	for _, place := range places {
		defer s.harm(s.members[place].Name)()
		fail(s.links[place], true)
	}
	s.between(s.lease/3, 3*s.lease)
	for _, place := range places {
		fail(s.links[place], false)
	}
}

// during makes something fail for all peers for less or more than a lease.
func (s *single) during(begin, end func()) {
	s.t.Helper()
	begin()
	s.between(s.lease/3, 2*s.lease)
	end()
}
