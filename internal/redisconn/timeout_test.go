package redisconn_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// silence is the timeout of the lines in these tests: long enough to tell it from twice that time,
// a former bug, even on a slow machine.
const silence = 5 * time.Second

// replying returns the URL of a server that answers each request with the result of answer,
// until that is "".
func replying(t *testing.T, answer func(command string) string) (url string) {
	t.Helper()
	return redistest.Listen(t, func(c net.Conn) {
		for words := range redistest.Requests(c) {
			if _, err := c.Write([]byte(answer(strings.ToUpper(words[0])))); err != nil {
				return
			}
		}
	}).URL()
}

// However Redis falls silent, and whatever the line was doing, each call fails after the timeout,
// which includes the check of an idle connection, dialing and waiting for earlier calls.
func TestTimeout(t *testing.T) {
	t.Parallel()
	stalled := func(t *testing.T, idle bool) *redisconn.Line {
		server := redistest.Start(t)
		l := lineOf(t, server.URL(), silence).Verified()
		_, err := l.One(t.Context(), redisconn.Command("PING"))
		is.New(t).NoErr(err)
		if idle {
			time.Sleep(1100 * time.Millisecond) // so that the connection is checked
		}
		server.Pause(t)
		t.Cleanup(func() { server.Resume(t) })
		return l
	}
	for name, start := range map[string]func(t *testing.T) *redisconn.Line{
		"stalled":      func(t *testing.T) *redisconn.Line { return stalled(t, false) },
		"stalled idle": func(t *testing.T) *redisconn.Line { return stalled(t, true) },
		"never answers": func(t *testing.T) *redisconn.Line {
			return lineOf(t, replying(t, func(string) string { return "" }), silence)
		},
		"stops within a reply": func(t *testing.T) *redisconn.Line {
			return lineOf(t, replying(t, func(request string) string {
				switch request {
				case "PING":
					return "+PONG\r\n"
				case "ECHO":
					return "$100\r\nhalf of i"
				}
				return ""
			}), silence)
		},
		"dials forever": func(t *testing.T) *redisconn.Line {
			over := make(chan struct{})
			l := redisconn.NewLine(redisconn.FromPool(deafPool{over}), silence)
			t.Cleanup(func() { close(over); l.Close() })
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t)
			var callers sync.WaitGroup
			for i := range 20 {
				ctx := context.Background()
				if i%2 == 0 {
					ctx = t.Context() // it can end
				}
				callers.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Millisecond) // they wait behind others
					began := time.Now()
					_, err := l.One(ctx, redisconn.Command("ECHO", "x"))
					took := time.Since(began)
					if err == nil || took > silence*9/5 {
						t.Errorf("caller %d: %v after %v", i, err, took)
					}
				})
			}
			callers.Wait()
		})
	}
}

// A deafPool never returns a connection in time.
type deafPool struct{ over <-chan struct{} }

func (p deafPool) GetContext(context.Context) (redis.Conn, error) {
	<-p.over
	return nil, errors.New("over")
}

// An unsent call isn't kept after its caller has left, while Redis stalls.
func TestTimeoutKeepsNothing(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := lineOf(t, server.URL(), time.Minute)
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	server.Pause(t)
	t.Cleanup(func() { server.Resume(t) })
	const many = 50
	var freed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	call := func(i int) error {
		payload := make([]byte, 1<<20)
		runtime.AddCleanup(&payload[0], func(struct{}) { freed.Add(1) }, struct{}{})
		if i%2 == 0 {
			_, err := l.One(ctx, redisconn.Command("ECHO", payload))
			return err
		}
		return l.Do(ctx, redisconn.Command("ECHO", payload))[0].Err
	}
	var first sync.WaitGroup
	first.Go(func() { _, _ = l.One(ctx, redisconn.Command("ECHO", "x")) })
	for !l.Exchanges() { // the goroutine that exchanged the PING may still run
		runtime.Gosched()
	}
	errs := gather(t, l, many, call)
	cancel()
	first.Wait()
	for _, err := range errs() {
		is.True(errors.Is(err, context.Canceled) && !errors.Is(err, redisconn.ErrUnknown))
	}
	redistest.Eventually(t, "no payload is kept", func() bool { runtime.GC(); return freed.Load() == many })
}

// A large request may take any time while the server keeps reading.
func TestSlowWrite(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout, size, rate = 2 * time.Second, 32 << 20, 8 << 20 // bytes per second
	url := swallowing(t, size, func(n int) { time.Sleep(time.Duration(n) * time.Second / rate) })
	l := lineOf(t, url, timeout)
	sent := time.Now()
	redistest.Sure(l.One(t.Context(), redisconn.Command("SET", "k", make([]byte, size))))(t)
	is.True(time.Since(sent) > timeout) // otherwise this shows nothing
}

// A request gets the full call timeout, even if the dial was the last of several tries and had
// little time left.
func TestWriteAfterLateDial(t *testing.T) {
	t.Parallel()
	const size, left = 32 << 20, 2 * time.Second
	waits := sync.OnceFunc(func() { time.Sleep(2 * left) })
	dial := redistest.Sure(redisconn.FromURL(swallowing(t, size, func(int) { waits() })))(t)
	l := redisconn.NewLine(func(ctx context.Context) (redis.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		return dial(ctx)
	}, time.Minute)
	defer l.Close()
	redistest.Sure(l.One(t.Context(), redisconn.Command("SET", "k", make([]byte, size))))(t)
}

// swallowing returns the URL of a server that answers a PING, then reads size bytes, calling read
// for each piece, and answers.
func swallowing(t *testing.T, size int, read func(n int)) (url string) {
	t.Helper()
	return redistest.Listen(t, func(c net.Conn) {
		buf := make([]byte, 1<<20)
		_, _ = c.Read(buf)
		_, _ = c.Write([]byte("+PONG\r\n"))
		for left := size; left > 0; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			read(n)
			left -= n
		}
		_, _ = c.Write([]byte("+OK\r\n"))
		_, _ = c.Read(buf)
	}).URL()
}

// The longest timeout doesn't overflow.
func TestLongestTimeout(t *testing.T) {
	t.Parallel()
	l := lineOf(t, redistest.URL(), math.MaxInt64)
	redistest.Sure(l.One(t.Context(), redisconn.Command("ECHO", make([]byte, 1<<20))))(t)
}

// No caller waits for a Pool that ignores its context. A connection that comes too late is closed.
func TestDialThatHangs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dials, goOn, closed := make(chan bool, 10), make(chan bool), make(chan bool, 10)
	dial := redisconn.FromPool(pool(func(context.Context) (redis.Conn, error) {
		dials <- true
		<-goOn
		return closeConn{closed: closed}, nil
	}))
	l := redisconn.NewLine(dial, 50*time.Millisecond)
	for range 3 {
		_, err := l.One(t.Context(), redisconn.Command("PING"))
		is.True(errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, redisconn.ErrUnknown))
	}
	l.Close()

	log := logs.New(slog.New(slog.DiscardHandler))
	s := redisconn.NewSubscriber(dial, log)
	for range 3 {
		l := &redisconn.Subscription{}
		is.NoErr(s.Add(l))
		s.Remove(l)
	}
	s.Close()
	close(goOn)
	for len(dials) > 0 {
		<-dials
		<-closed
	}
}

// If a Pool panics, ends its goroutine or returns nil, the dial fails. The program continues, and
// calls work once the Pool does.
func TestPoolThatFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() (redis.Conn, error){
		"it panics":             func() (redis.Conn, error) { panic("of the pool") },
		"it ends its goroutine": func() (redis.Conn, error) { runtime.Goexit(); return nil, nil },
		"it does both":          func() (redis.Conn, error) { panic(exiting{}) },
		"it returns nothing":    func() (redis.Conn, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			failing := true
			l := redisconn.NewLine(redisconn.FromPool(pool(func(ctx context.Context) (redis.Conn, error) {
				if failing {
					return fail()
				}
				return redis.DialURLContext(ctx, server.URL())
			})), time.Minute)
			defer l.Close()
			_, err := l.One(t.Context(), redisconn.Command("PING"))
			is.True(err != nil && !errors.Is(err, redisconn.ErrUnknown))
			failing = false
			_, err = l.One(t.Context(), redisconn.Command("PING"))
			is.NoErr(err)
			is.True(!l.Made().IsZero())
		})
	}
}

// exiting is an error whose text can't be read.
type exiting struct{}

func (exiting) Error() string { runtime.Goexit(); return "" }

type pool func(context.Context) (redis.Conn, error)

func (p pool) GetContext(ctx context.Context) (redis.Conn, error) { return p(ctx) }

// Made is called under locks, so it calls no method of the connection: a Pool's connection is user
// code.
func TestMadeAsksNoConnection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	var asked atomic.Int64
	l := redisconn.NewLine(redisconn.FromPool(pool(func(ctx context.Context) (redis.Conn, error) {
		c, err := redis.DialURLContext(ctx, server.URL())
		return askedConn{c, &asked}, err
	})), time.Minute)
	defer l.Close()
	_, err := l.One(t.Context(), redisconn.Command("PING"))
	is.NoErr(err)
	_, err = l.One(t.Context(), redisconn.Command("PING")) // checks the connection first
	is.NoErr(err)
	before := asked.Load()
	is.True(!l.Made().IsZero())
	is.Equal(asked.Load(), before)
}

type askedConn struct {
	redis.Conn
	asked *atomic.Int64
}

func (c askedConn) Err() error {
	c.asked.Add(1)
	return c.Conn.Err()
}

type closeConn struct {
	redis.Conn
	closed chan bool
}

func (c closeConn) Close() error {
	c.closed <- true
	return nil
}
