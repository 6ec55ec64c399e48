package redisconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A function of the user that hangs fails only the dials that wait for it, with an error that says
// where it is set. Later dials call it again, and succeed once it works, even though the first call hasn't
// returned.
func TestFunctionHangs(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	secure, plain := redistest.StartTLS(t, ca, []string{"localhost"}), redistest.Start(t)
	certificate := ca.Client(t)
	config := func(c *tls.Config) redisconn.Dial {
		c.RootCAs, c.ServerName = ca.Pool(), "localhost"
		c.Certificates = []tls.Certificate{certificate}
		return redisconn.Server{Network: "tcp", Address: secure.Addr(), Secure: true, TLS: c}.Guarded().Dial
	}
	for of, dial := range map[string]func(hang func()) redisconn.Dial{
		"Credentials": func(hang func()) redisconn.Dial {
			return redisconn.Server{Network: "tcp", Address: plain.Addr(), Credentials: func(context.Context) (user, password string, err error) {
				hang()
				return "", "", nil
			}}.Guarded().Dial
		},
		"TLS": func(hang func()) redisconn.Dial {
			return config(&tls.Config{Time: func() time.Time { hang(); return time.Now() }})
		},
		"the pool's Dial": func(hang func()) redisconn.Dial {
			return redisconn.FromPool(&redis.Pool{Dial: func() (redis.Conn, error) { hang(); return redis.DialURL(plain.URL()) }})
		},
		"the pool's DialContext": func(hang func()) redisconn.Dial {
			return redisconn.FromPool(&redis.Pool{DialContext: func(context.Context) (redis.Conn, error) { hang(); return redis.DialURL(plain.URL()) }})
		},
		"the pool's GetContext": func(hang func()) redisconn.Dial {
			return redisconn.FromPool(pool(func(context.Context) (redis.Conn, error) { hang(); return redis.DialURL(plain.URL()) }))
		},
	} {
		what := of
		if !strings.HasPrefix(of, "the pool's") {
			what = "a function in the options"
		}
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			var works atomic.Bool
			over := make(chan struct{})
			l := redisconn.NewLine(dial(func() {
				if !works.Load() {
					<-over
				}
			}), 500*time.Millisecond)
			t.Cleanup(func() { close(over); l.Close() })
			redistest.Eventually(t, "the error says so", func() bool { // on a busy machine, only a later one may
				_, err := l.One(t.Context(), redisconn.Command("PING"))
				return errors.Is(err, os.ErrDeadlineExceeded) && strings.Contains(err.Error(), what+" hasn't returned within ")
			})
			works.Store(true)
			redistest.Eventually(t, "it works again", func() bool {
				_, err := l.One(t.Context(), redisconn.Command("PING"))
				return err == nil
			})
		})
	}
}

// Calls that hang don't pile up: after 16, dials fail at once, apart from few. As soon as one of
// those succeeds, more may follow, even though none of the hanging calls has returned.
func TestHangingCallsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		over := make(chan struct{})
		var calls, works atomic.Int32
		l := redisconn.NewLine(redisconn.FromPool(pool(func(context.Context) (redis.Conn, error) {
			if calls.Add(1); works.Load() == 0 {
				<-over
			}
			return nil, errors.New("works again")
		})), time.Second)
		try := func() string {
			_, err := l.One(t.Context(), redisconn.Command("PING"))
			is.True(err != nil)
			return err.Error()
		}
		for range 16 {
			is.True(strings.Contains(try(), "the pool's GetContext hasn't returned within 1s"))
		}
		is.Equal(calls.Load(), int32(16))
		for began := time.Now(); time.Since(began) < 24*time.Hour; time.Sleep(time.Second) {
			_ = try()
		}
		is.True(strings.Contains(try(), "calls of the pool's GetContext haven't returned; the next try is in "))
		is.True(calls.Load() > 100 && calls.Load() < 160)

		works.Store(1)
		began := time.Now()
		for !strings.Contains(try(), "works again") {
			time.Sleep(time.Second)
		}
		is.True(time.Since(began) < 30*time.Minute)
		is.True(strings.Contains(try(), "works again"))
		l.Close()
		close(over)
		synctest.Wait()
	})
}
