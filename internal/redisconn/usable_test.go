package redisconn_test

import (
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// While Redis can't save, it refuses writes and PING, but it answers reads. The connection stays, so
// that writes don't dial again and again.
func TestRedisCannotSave(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	for name, start := range map[string]func(args ...string) (*redistest.Server, redisconn.Dial){
		"plain": func(args ...string) (*redistest.Server, redisconn.Dial) {
			s := redistest.Start(t, args...)
			return s, redistest.Sure(redisconn.FromURL(s.URL()))(t)
		},
		"TLS": func(args ...string) (*redistest.Server, redisconn.Dial) {
			s := redistest.StartTLS(t, ca, []string{"localhost"}, append(args, "--tls-auth-clients", "no")...)
			return s, redisconn.Server{Network: "tcp", Address: s.Addr(), Secure: true, TLS: &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}}.Dial
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			server, dial := start("--save", "3600 1", "--dbfilename", "blocked")
			is.NoErr(os.Mkdir(filepath.Join(filepath.Dir(server.Socket()), "blocked"), 0o700)) // the snapshot can't replace it
			c := redistest.Sure(dial(t.Context()))(t)
			t.Cleanup(func() { _ = c.Close() })
			redistest.Do(t, c, "BGSAVE")
			redistest.Eventually(t, "saving has failed", func() bool {
				return strings.Contains(redistest.Sure(redis.String(c.Do("INFO", "persistence")))(t), "rdb_last_bgsave_status:err")
			})

			l := redisconn.NewLine(dial, 0).Verified()
			t.Cleanup(l.Close)
			id := func() int64 {
				t.Helper()
				return redistest.Sure(redis.Int64(l.One(t.Context(), redisconn.Command("CLIENT", "ID"))))(t)
			}
			before := id()
			_, err := l.One(t.Context(), redisconn.Command("SET", "k", "v"))
			is.True(err != nil && strings.HasPrefix(err.Error(), "MISCONF"))
			time.Sleep(1100 * time.Millisecond) // so that the connection is checked
			is.Equal(id(), before)
		})
	}
}

// A user that may not use PING can use the rest.
func TestNoPing(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "ann", "on", ">one", "+@all", "-ping", "~*")
	n, err := redis.Int(line(t, "redis://ann:one@"+server.Addr()).One(t.Context(), redisconn.Command("LLEN", "k")))
	is.NoErr(err)
	is.Equal(n, 0)
}

// A subscriber that Redis turns away, since it has no free connection or is busy with a script, tries
// again soon. It doesn't take Redis for a proxy that hangs up.
func TestSubscriberTurnedAway(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, turnAway, admit func()){
		"no free connection": func(t *testing.T) (string, func(), func()) {
			server, c := redistest.StartAndDial(t)
			was := redistest.Sure(redis.Strings(c.Do("CONFIG", "GET", "maxclients")))(t)[1]
			return server.URL(), func() {
				redistest.Do(t, c, "CONFIG", "SET", "maxclients", "1")
				redistest.Do(t, c, "CLIENT", "KILL", "TYPE", "pubsub")
			}, func() { redistest.Do(t, c, "CONFIG", "SET", "maxclients", was) }
		},
		"a script runs": func(t *testing.T) (string, func(), func()) { // a real one would delay all other tests
			var busy atomic.Bool
			door := redistest.Listen(t, func(c net.Conn) {
				says := saysOf{}
				if busy.Load() {
					says = saysOf{"PING": "-BUSY Redis is busy\r\n", "SUBSCRIBE": "-BUSY Redis is busy\r\n"}
				}
				says.serve(c)
			})
			return door.URL(), func() { busy.Store(true); door.Cut() }, func() { busy.Store(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			url, turnAway, admit := start(t)
			var says strings.Builder
			log := logs.New(slog.New(slog.NewTextHandler(&says, nil)))
			s := redisconn.NewSubscriber(redistest.Sure(redisconn.FromURL(url))(t), log)
			t.Cleanup(s.Close)
			l, told := hears(redisconn.Topic{Name: "a"})
			is.NoErr(s.Add(l))
			next(t, told, "synced")
			turnAway()
			for range 5 { // more than mostFutile
				next(t, told, "failed")
			}
			admit()
			for said := "failed"; said == "failed"; {
				select {
				case said = <-told:
				case <-time.After(20 * time.Second): // a pause is at most a second
					t.Fatal("it doesn't try again")
				}
			}
			s.Close()
			log.Flush()
			is.True(!strings.Contains(says.String(), "proxy"))
		})
	}
}

// A server or proxy that restarts a few times, each time as a session subscribes, doesn't keep the peer deaf for long.
// One that always hangs up isn't flooded with connections.
func TestSubscriberCutOff(t *testing.T) {
	t.Parallel()
	for name, cuts := range map[string]int64{"three times": 3, "always": math.MaxInt64} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				var sessions atomic.Int64
				dial := redisconn.Over(func() net.Conn {
					says := saysOf{}
					if sessions.Add(1) <= cuts {
						says = saysOf{"SUBSCRIBE": ""}
					}
					ours, theirs := net.Pipe()
					go func() {
						defer theirs.Close()
						says.serve(theirs)
					}()
					return ours
				})
				s := redisconn.NewSubscriber(dial, logs.New(slog.New(slog.DiscardHandler)))
				defer s.Close()
				var synced atomic.Bool
				is.NoErr(s.Add(&redisconn.Subscription{Topics: []redisconn.Topic{{Name: "a"}}, Synced: func() { synced.Store(true) }}))
				time.Sleep(6 * time.Second)
				is.Equal(synced.Load(), cuts == 3)
				time.Sleep(time.Minute)
				is.True(sessions.Load() <= 3+66/2)
			})
		})
	}
}
