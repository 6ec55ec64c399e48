package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

func line(t testing.TB, url string) *redisconn.Line {
	t.Helper()
	dial := redistest.Sure(redisconn.FromURL(url))(t)
	l := redisconn.NewLine(dial, 0)
	t.Cleanup(l.Close)
	return l
}

// What a call waits for others on the line is not part of the time that it took.
func TestTook(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := line(t, server.URL())
	defer l.Close()
	l.Do(context.Background(), redisconn.Command("PING")) // connects, and leaves the line free
	const blocked = 300 * time.Millisecond
	slow := l.Start(redisconn.Command("BLPOP", redistest.Prefix(t), blocked.Seconds()))
	for conn := redistest.Dial(t, server.URL()); ; { // else the two may travel as one
		clients := redistest.Sure(redis.String(conn.Do("INFO", "clients")))(t)
		if strings.Contains(clients, "blocked_clients:1") {
			break
		}
	}
	quick := l.Start(redisconn.Command("PING"))
	slow.Wait(t.Context())
	quick.Wait(t.Context())
	if slow.Took() < blocked || quick.Took() >= blocked {
		t.Errorf("a call that blocks for %v took %v, and a PING behind it %v", blocked, slow.Took(), quick.Took())
	}
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
	is.True(strings.Contains(info, "connected_clients:2")) // it and us
}

// Errors are told apart, and do not hurt the neighbours.
func TestErrors(t *testing.T) {
	is := redistest.Parallel(t)
	l := line(t, redistest.URL())
	replies := l.Do(t.Context(), redisconn.Command("ECHO", "a"), redisconn.Command("NONSENSE"), redisconn.Command("ECHO", "b"))
	is.Equal(string(replies[0].Value.([]byte)), "a")
	_, isReply := errors.AsType[redis.Error](replies[1].Err)
	is.True(isReply && !errors.Is(replies[1].Err, redisconn.ErrUnknown))
	is.Equal(string(replies[2].Value.([]byte)), "b")
	l.Close()
	_, err := l.One(t.Context(), redisconn.Command("PING"))
	is.True(errors.Is(err, redisconn.ErrClosed))
}

// Scripts are loaded when Redis does not know them, in the middle of a
// pipeline too.
func TestScripts(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	s := redisconn.NewScript("return ARGV[1]")
	c := redistest.Dial(t, server.URL())
	for range 3 {
		replies := l.Do(t.Context(), s.Call(nil, "a"), redisconn.Command("ECHO", "b"), s.Call([]string{"k"}, "c"))
		for i, want := range []string{"a", "b", "c"} {
			is.Equal(redistest.Sure(redis.String(replies[i].Value, replies[i].Err))(t), want)
		}
		redistest.Do(t, c, "SCRIPT", "FLUSH")
	}
}

// A call that its context cuts off before it is sent was not made; afterwards
// nobody knows.
func TestContext(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	over, end := context.WithCancel(t.Context())
	end()
	_, err := l.One(over, redisconn.Command("INCR", "n"))
	is.True(errors.Is(err, context.Canceled) && !errors.Is(err, redisconn.ErrUnknown))

	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t) // there is a connection
	c := redistest.Dial(t, server.URL())
	redistest.Do(t, c, "CLIENT", "PAUSE", 300)
	first, end1 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end1()
	_, err = l.One(first, redisconn.Command("INCR", "n")) // sent, no reply yet
	is.True(errors.Is(err, context.DeadlineExceeded) && errors.Is(err, redisconn.ErrUnknown))
	second, end2 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end2()
	_, err = l.One(second, redisconn.Command("INCR", "n")) // behind it, not sent
	is.True(errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redisconn.ErrUnknown))
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("GET", "n"))))(t), 1)
}

// A nosy is an error whose methods make calls on the line.
type nosy struct{ ask func() }

func (n *nosy) Error() string { n.ask(); return "nosy" }

// The cause with which a context ends is user code. Its methods may use the line, so
// nobody asks them anything under its lock.
func TestCauseUsesLine(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l, c := line(t, server.URL()), redistest.Dial(t, server.URL())
	sent := l.Start(redisconn.Command("BLPOP", "list", 0))
	for blocked := ""; !strings.Contains(blocked, "blocked_clients:1"); { // until it is sent
		blocked = redistest.Sure(redis.String(c.Do("INFO", "clients")))(t)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := false
	cancel(&nosy{func() {
		asked = true
		redistest.Do(t, c, "LPUSH", "list", "x")
		redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	}})
	err := sent.Wait(ctx)[0].Err
	is.True(errors.Is(err, redisconn.ErrUnknown))
	is.Equal(err.Error(), "the reply was lost: nosy")
	is.True(asked)
}

// A lost reply is unknown, what was behind it too, and the next call works.
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

// Nothing is sent on a connection that does not answer.
func TestDeafLink(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	dial := redistest.Sure(redisconn.FromURL(link.URL()))(t)
	l := redisconn.NewLine(dial, 100*time.Millisecond)
	defer l.Close()
	link.Deafen(true)
	for range 3 {
		_, err := l.One(t.Context(), redisconn.Command("INCR", "n"))
		is.True(err != nil && !errors.Is(err, redisconn.ErrUnknown))
	}
	link.Deafen(false)
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("INCR", "n"))))(t), 1)
}

// A connection that was idle is tried before it is used for what cannot be
// repeated.
func TestVerified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := line(t, server.URL()).Verified()
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	time.Sleep(1100 * time.Millisecond) // the idle time itself
	redistest.Do(t, redistest.Dial(t, server.URL()), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
}

// Replies that say that the connection leads astray have it dropped.
func TestPoison(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	id := func() int {
		n := redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("CLIENT", "ID"))))(t)
		return n
	}
	first := id()
	is.Equal(id(), first)
	c := redistest.Dial(t, server.URL())
	redistest.Do(t, c, "REPLICAOF", "127.0.0.1", "1")
	_, err := l.One(t.Context(), redisconn.Command("SET", "a", "b"))
	is.True(strings.HasPrefix(err.Error(), "READONLY"))
	is.True(id() != first)
}

// Abort fails what is under way at once.
func TestAbort(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	c := redistest.Dial(t, server.URL())
	failed := make(chan error, 1)
	go func() {
		_, err := l.One(context.Background(), redisconn.Command("BLPOP", "nothing", 60))
		failed <- err
	}()
	for blocked := 0; blocked == 0; { // until it waits there
		info := redistest.Sure(redis.String(c.Do("INFO", "clients")))(t)
		if strings.Contains(info, "blocked_clients:1") {
			blocked = 1
		}
	}
	l.Abort()
	is.True(errors.Is(<-failed, redisconn.ErrUnknown))
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
}

// Errors of URLs never repeat them. What is not understood is not passed over, and
// where a password was not escaped no part of it is dialed.
func TestURLs(t *testing.T) {
	t.Parallel()
	const escape = "write @ : / ? # % as %40 %3A %2F %3F %23 %25"
	for url, want := range map[string]string{
		"": "the URL is empty", "hunter2": escape, "redis:hunter2": escape, "redis://:hunter2@host:x": escape,
		"redis://h/hunter2": escape, "redis://h/1/hunter2": escape, "unix://": escape, "unix:///s?db=hunter2": escape,

		"redis://localhost:7391?db=2": "the database is written as /2", "rediss://h/1?hunter2": "the database is written as /2",
		"redis://h?": "the database is written as /2", "unix:///s?database=2": escape, "unix:///s?db=1&db=2": escape,

		"redis://user:p@ss#hunter2/word@localhost:7391": escape, "redis://:12#hunter2@localhost:7391": escape, "redis://:12#": escape,
		"redis://:12/hunter2@localhost": escape, "redis://:12?hunter2@localhost": escape,
		"redis://ann:12/34@localhost": escape, "redis://ann:hunter2@x@localhost": escape, "redis://ann:12@hunter2/3@localhost": escape,
		"redis://hunter2%40localhost": escape, "unix://ann/hunter2@/s": escape, "unix:///hunter2@/s": escape, "unix://ann:12#hunter2@/s": escape,
		"unix://hunter2/s": escape, "unix://:12?db=3@/s": escape,
	} {
		_, err := redisconn.FromURL(url)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
	for _, url := range []string{
		"redis://", "redis://h", "redis://h/", "redis://h:1/2", "rediss://ann:p%40%3A%2F%3F%23%25@[::1]:1/2", "unix:///s", "unix:///s?db=", "unix://ann:x@/s?db=3",
	} {
		if _, err := redisconn.FromURL(url); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// Whatever stands around a password, the error of the URL does not show it; nor does
// that of the connection what is before an @.
func FuzzURL(f *testing.F) {
	f.Add("redis://", "@localhost:6379/0")
	f.Add("redis://user:p@ss#w/", "@localhost:7391")
	f.Add("redis://:12#", "@localhost:7391")
	f.Add("redis://:12/", "@localhost:7391")
	f.Add("redis://:12?", "@localhost:7391")
	f.Add("unix://ann/", "@/nowhere?db=1")
	ended, cancel := context.WithCancel(f.Context()) // nothing is dialed
	cancel()
	f.Fuzz(func(t *testing.T, before, after string) {
		const canary = "c4n4ryp4ssw0rd"
		_, bad := redisconn.FromURL(before + ":" + canary + after)
		dial, err := redisconn.FromURL(before + canary + "@" + after)
		if err == nil {
			_, err = dial(ended)
		}
		for _, err := range []error{bad, err} {
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Error(err)
			}
		}
	})
}

// Abort may be called at any time, as often as one likes, while others call.
func TestAbortAmongCalls(t *testing.T) {
	t.Parallel()
	l := line(t, redistest.URL())
	over := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_, _ = l.One(context.Background(), redisconn.Command("PING")) // may be aborted
				}
			}
		})
	}
	for range 2000 {
		l.Abort()
	}
	close(over)
	callers.Wait()
	if _, err := l.One(t.Context(), redisconn.Command("PING")); err != nil {
		t.Error(err)
	}
}
