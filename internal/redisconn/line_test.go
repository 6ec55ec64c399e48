package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

func line(t testing.TB, url string) *redisconn.Line { return lineOf(t, url, 0) }

func lineOf(t testing.TB, url string, timeout time.Duration) *redisconn.Line {
	t.Helper()
	l := redisconn.NewLine(redistest.Sure(redisconn.FromURL(url))(t), timeout)
	t.Cleanup(l.Close)
	return l
}

// begin makes a call, and sends its error when it has ended.
func begin(ctx context.Context, l *redisconn.Line, c redisconn.Call) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := l.One(ctx, c)
		ended <- err
	}()
	return ended
}

// Once a call is answered, the line keeps nothing of it, even if its caller had left.
func TestLateReplyKeepsNothing(t *testing.T) {
	is := redistest.Parallel(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	server := redistest.Listen(t, func(c net.Conn) {
		for words := range redistest.Requests(c) {
			if words[0] == "SET" {
				arrived <- struct{}{}
				<-goOn
			}
			_, _ = c.Write([]byte("+OK\r\n"))
		}
	})
	l := lineOf(t, server.URL(), time.Hour)
	freed := make(chan struct{})
	func() {
		payload := make([]byte, 1<<20)
		runtime.AddCleanup(&payload[0], func(freed chan struct{}) { close(freed) }, freed)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := l.One(ctx, redisconn.Command("SET", "k", payload))
			left <- err
		}()
		<-arrived
		leave()
		is.True(errors.Is(<-left, redisconn.ErrUnknown))
	}()
	close(goOn)
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t) // the reply to SET has come
	redistest.Eventually(t, "the payload is freed", func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	})
}

// Concurrent callers share a connection, and each gets its own reply.
func TestSharing(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for j := range 20 {
				want := fmt.Sprint(i, "/", j)
				got, err := redis.String(l.One(t.Context(), redisconn.Command("ECHO", want)))
				if err != nil || got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
		})
	}
	all.Wait()
	info := redistest.Sure(redis.String(redistest.Dial(t, server.URL()).Do("INFO", "clients")))(t)
	is.True(strings.Contains(info, "connected_clients:2")) // the line's and ours
}

// Scripts are loaded when Redis doesn't know them, even in the middle of a pipeline.
func TestScripts(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	s := redisconn.NewScript(func() string { return "return ARGV[1]" })
	c := redistest.Dial(t, server.URL())
	for range 3 {
		replies := l.Do(t.Context(), s.Call(nil, "a"), redisconn.Command("ECHO", "b"), s.Call([]string{"k"}, "c"))
		for i, want := range []string{"a", "b", "c"} {
			is.Equal(redistest.Sure(redis.String(replies[i].Value, replies[i].Err))(t), want)
		}
		redistest.Do(t, c, "SCRIPT", "FLUSH")
	}
}

// A call whose context ends before it is sent isn't carried out. After that, its outcome is
// unknown.
func TestContext(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	over, end := context.WithCancel(t.Context())
	end()
	_, err := l.One(over, redisconn.Command("INCR", "n"))
	is.True(errors.Is(err, context.Canceled) && !errors.Is(err, redisconn.ErrUnknown))

	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t) // connects
	c := redistest.Dial(t, server.URL())
	redistest.Do(t, c, "CLIENT", "PAUSE", 2000)
	first, end1 := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer end1()
	_, err = l.One(first, redisconn.Command("INCR", "n")) // sent, without a reply yet
	is.True(errors.Is(err, context.DeadlineExceeded) && errors.Is(err, redisconn.ErrUnknown))
	second, end2 := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer end2()
	_, err = l.One(second, redisconn.Command("INCR", "n")) // behind it, not sent
	is.True(errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redisconn.ErrUnknown))
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("GET", "n"))))(t), 1)
}

// A nosy is an error whose methods make calls on the line.
type nosy struct{ ask func() }

func (n *nosy) Error() string { n.ask(); return "nosy" }

// The cause of a context is user code. Its methods may use the line, so none is called under the
// line's lock.
func TestCauseUsesLine(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l, c := line(t, server.URL()), redistest.Dial(t, server.URL())
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := begin(ctx, l, redisconn.Command("BLPOP", "list", 0))
	until(t, c, "blocked_clients:1") // it was sent
	asked := false
	cancel(&nosy{func() {
		asked = true
		redistest.Do(t, c, "LPUSH", "list", "x")
		redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	}})
	err := <-ended
	is.True(errors.Is(err, redisconn.ErrUnknown))
	is.Equal(err.Error(), "the reply was lost: nosy")
	is.True(asked)
}

// If a reply is lost, the outcomes of its call and of those behind it are unknown. The next call
// works.
func TestLostReply(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	l := line(t, link.URL())
	link.LoseReplyTo("INCR")
	for _, r := range l.Do(t.Context(), redisconn.Command("INCR", "n"), redisconn.Command("INCR", "n")) {
		is.True(errors.Is(r.Err, redisconn.ErrUnknown))
	}
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("INCR", "n"))))(t), 3)
}

// Calls aren't sent on a connection that doesn't answer.
func TestDeafLink(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	l := lineOf(t, link.URL(), time.Second)
	link.Deafen(true)
	for range 3 {
		_, err := l.One(t.Context(), redisconn.Command("INCR", "n"))
		is.True(err != nil && !errors.Is(err, redisconn.ErrUnknown))
	}
	link.Deafen(false)
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("INCR", "n"))))(t), 1)
}

// An idle connection is checked before it is used for calls that can't be repeated.
func TestVerified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := line(t, server.URL()).Verified()
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	time.Sleep(1100 * time.Millisecond) // the idle time
	redistest.Do(t, redistest.Dial(t, server.URL()), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
}
