package topology_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// line returns a line to a place.
func line(t *testing.T, p *topology.Servers) *redisconn.Line {
	t.Helper()
	l := redisconn.NewLine(p.Dial(), 0)
	t.Cleanup(l.Close)
	return l
}

func open(t *testing.T, url string, o topology.Options) *topology.Servers {
	t.Helper()
	return redistest.Sure(topology.Open(url, o))(t)
}

// at reports why a line isn't connected to a server.
func at(line *redisconn.Line, server *redistest.Server) error {
	said, err := redis.Strings(line.One(context.Background(), redisconn.Command("CONFIG", "GET", "*port")))
	if err != nil {
		return err
	}
	if _, port, _ := strings.Cut(server.Addr(), ":"); !strings.Contains(" "+strings.Join(said, " ")+" ", " "+port+" ") {
		return fmt.Errorf("connected to %q, not to %s", said, server.Addr())
	}
	return nil
}

// arrives waits until a line is connected to a server. On an idle machine that takes a third of a
// second after the promotion. The limit is for busy ones.
func arrives(t *testing.T, line *redisconn.Line, server *redistest.Server) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // interval between checks, not for synchronization
		err := at(line, server)
		if err == nil {
			t.Log("there after", time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// However the master goes away, lines soon reach the new one, whether or not they write, and so
// does a subscriber. OnChange is called. No call waits for the reply of a master that hangs.
func TestFailover(t *testing.T) {
	t.Parallel()
	for how, do := range map[string]func(*testing.T, *redistest.Sentinels, *redistest.Server){
		"by hand": func(t *testing.T, s *redistest.Sentinels, _ *redistest.Server) { s.Failover(t) },
		"killed":  func(t *testing.T, s *redistest.Sentinels, m *redistest.Server) { s.Hurry(t); m.Kill() },
		"frozen":  func(t *testing.T, s *redistest.Sentinels, m *redistest.Server) { s.Hurry(t); m.Pause(t) },
	} {
		t.Run(how, func(t *testing.T) {
			is := redistest.Parallel(t)
			servers := redistest.StartSentinels(t, redistest.SentinelSetup{})
			place := open(t, servers.URL(), topology.Options{})
			changed := make(chan struct{}, 100)
			place.OnChange(func() { changed <- struct{}{} })
			reads, writes := line(t, place), line(t, place)
			listening := redistest.Sure(place.Dial()(t.Context()))(t)
			t.Cleanup(func() { _ = listening.Close() })
			old := servers.Master(t)
			is.NoErr(at(reads, old))
			is.NoErr(at(writes, old))
			ended := make(chan bool)
			go func() { _, _ = reads.One(t.Context(), redisconn.Command("BLPOP", "nothing", 60)); close(ended) }()
			redistest.Eventually(t, "it's sent", func() bool {
				return strings.Contains(redistest.Sure(redis.String(old.Call("INFO", "clients")))(t), "blocked_clients:1")
			})
			is.NoErr(listening.Send("SUBSCRIBE", "c"))
			is.NoErr(listening.Flush())
			_, err := redis.ReceiveWithTimeout(listening, time.Minute)
			is.NoErr(err)

			is.Equal(len(changed), 0) // the first master doesn't replace another one
			do(t, servers, old)
			now := servers.Promoted(t, old)
			_, err = redis.ReceiveWithTimeout(listening, time.Minute)
			is.True(err != nil) // it was closed, and not because of silence
			is.True(!errors.Is(err, os.ErrDeadlineExceeded))
			<-changed
			arrives(t, writes, now)
			<-ended
			arrives(t, reads, now)
			_, err = writes.One(t.Context(), redisconn.Command("SET", "k", "v"))
			is.NoErr(err)
		})
	}
}

// A sentinel that is cut off with the old master doesn't lead back to it, although the old master
// accepts writes for a while.
func TestSentinelThatIsCutOff(t *testing.T) {
	is := redistest.Parallel(t)
	servers := redistest.StartSentinels(t, redistest.SentinelSetup{})
	old := servers.Master(t)
	stray := servers.Stray(t, old)
	url := strings.Replace(servers.URL(), "://", "://"+stray.Addr()+",", 1)
	place := open(t, url, topology.Options{})
	l := line(t, place)
	is.NoErr(at(l, old)) // from the stray sentinel, which is asked first from now on
	now := servers.Failover(t)
	arrives(t, l, now)
	named := redistest.Sure(redis.Strings(stray.Call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName)))(t)
	is.Equal(strings.Join(named, ":"), old.Addr()) // the stray sentinel knows no others
	for range 5 {
		l.Abort()
		is.NoErr(at(l, now))
	}
	is.NoErr(at(line(t, open(t, url, topology.Options{})), now)) // a new place compares their answers
}

// Sentinels that aren't in the URL are asked when those in the URL are gone. A user that may not
// read the role of a server still follows the master.
func TestSentinelsAreLearned(t *testing.T) {
	is := redistest.Parallel(t)
	servers := redistest.StartSentinels(t, redistest.SentinelSetup{})
	for _, s := range servers.Servers {
		redistest.Do(t, redistest.Dial(t, s.URL()), "ACL", "SETUSER", "ann", "on", ">SECRET", "~*", "&*", "+@all", "-role")
	}
	first := servers.Watch[0]
	l := line(t, open(t, "redis+sentinel://ann:SECRET@"+first.Addr()+"/"+redistest.MasterName, topology.Options{}))
	old := servers.Master(t)
	is.NoErr(at(l, old))
	servers.Hurry(t)
	first.Kill()
	old.Kill()
	arrives(t, l, servers.Promoted(t, old))
}

// The same with TLS and passwords everywhere.
func TestSentinelsWithTLS(t *testing.T) {
	is := redistest.Parallel(t)
	ca := redistest.NewAuthority(t)
	servers := redistest.StartSentinels(t, redistest.SentinelSetup{TLS: ca, Password: "data", Watch: "watch"})
	trusting := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	l := line(t, open(t, servers.URL(), topology.Options{TLS: trusting}))
	old := servers.Master(t)
	is.NoErr(at(l, old))
	arrives(t, l, servers.Failover(t))

	asked := 0
	data := func(context.Context) (string, string, error) { asked++; return "", "data", nil }
	watch := func(context.Context) (string, string, error) { return "default", "watch", nil }
	bare := strings.TrimSuffix(strings.Replace(servers.URL(), ":data@", "", 1), "?sentinel=watch")
	l = line(t, open(t, bare, topology.Options{TLS: trusting, Credentials: data, SentinelCredentials: watch}))
	is.NoErr(at(l, servers.Master(t)))
	is.Equal(asked, 1)

	for url, want := range map[string]string{
		strings.Replace(servers.URL(), "=watch", "=canary", 1):       "WRONGPASS",
		strings.Replace(servers.URL(), ":data@", ":canary@", 1):      "WRONGPASS",
		strings.Replace(servers.URL(), "/main?", "/other?", 1):       "knows no master",
		strings.Replace(servers.URL(), "?sentinel=watch", "", 1):     "NOAUTH",
		strings.Replace(servers.URL(), "rediss+", "redis+", 1) + "x": "rediss://",
	} {
		_, err := line(t, open(t, url, topology.Options{TLS: trusting})).One(t.Context(), redisconn.Command("PING"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}

// If a server isn't a sentinel, the error says so, and it isn't asked again.
func TestNoSentinel(t *testing.T) {
	is := redistest.Parallel(t)
	l := line(t, open(t, "redis+sentinel://"+redistest.Start(t).Addr()+"/main", topology.Options{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // in case it is asked again
	defer cancel()
	_, err := l.One(ctx, redisconn.Command("PING"))
	is.True(err != nil && strings.Contains(err.Error(), "it isn't a sentinel"))
	is.NoErr(ctx.Err())
}

// If no sentinel answers, the error names each of them.
func TestSentinelsAreGone(t *testing.T) {
	is := redistest.Parallel(t)
	servers := redistest.StartSentinels(t, redistest.SentinelSetup{Watch: "canary"})
	l := line(t, open(t, servers.URL(), topology.Options{}))
	is.NoErr(at(l, servers.Master(t)))
	servers.Watch[0].Kill()
	servers.Watch[1].Pause(t)
	servers.Watch[2].Kill()
	is.NoErr(at(l, servers.Servers[0])) // an existing connection doesn't need them
	l.Abort()
	_, err := l.One(t.Context(), redisconn.Command("PING"))
	is.True(err != nil)
	for _, address := range servers.Addrs() {
		is.True(strings.Contains(err.Error(), address))
	}
	is.True(strings.Contains(err.Error(), "connection refused") && !strings.Contains(err.Error(), "canary"))
	is.True(redisconn.Away(err))

	dial, dials := open(t, servers.URL(), topology.Options{}).Dial(), make(chan bool, 1)
	hangs := redisconn.NewLine(func(ctx context.Context) (redis.Conn, error) { dials <- true; return dial(ctx) }, time.Hour)
	over := make(chan error, 1)
	go func() { _, err := hangs.One(context.Background(), redisconn.Command("PING")); over <- err }()
	<-dials
	began := time.Now()
	hangs.Close()
	is.True(errors.Is(<-over, redisconn.ErrClosed))
	is.True(time.Since(began) < 20*time.Second) // not after an hour; at once on an idle machine
}

// The last user may leave after the watch has connected to a new master, as in a failover.
func TestLastUserLeavesWatch(t *testing.T) {
	t.Parallel()
	topology.Consider(redistest.Start(t).Addr())
}
