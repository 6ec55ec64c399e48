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
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func lineOn(t testing.TB, dial redisconn.Dial, timeout time.Duration) *redisconn.Line {
	t.Helper()
	l := redisconn.NewLine(dial, timeout)
	t.Cleanup(l.Close)
	return l
}

// send sends calls, and returns where the replies arrive.
func send(s *redisconn.Line, calls ...redisconn.Call) <-chan []redisconn.Reply {
	replies := make(chan []redisconn.Reply, 1)
	s.Send(calls, nil, func(all []redisconn.Reply) { replies <- all })
	return replies
}

// Calls of many senders are made and answered in the order in which they were sent, over one connection, and each
// sender gets its own replies.
func TestSendKeepsOrder(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	s, c := line(t, server.URL()), redistest.Dial(t, server.URL())
	const senders, each = 16, 100
	var mu sync.Mutex // makes "the order in which they were sent" known
	sent, answered := 0, 0
	var callers, answers sync.WaitGroup
	answers.Add(senders * each)
	for range senders {
		callers.Go(func() {
			for range each {
				mu.Lock()
				n := sent
				sent++
				calls := []redisconn.Call{redisconn.Command("RPUSH", "list", n), redisconn.Command("ECHO", fmt.Sprint(n))}
				s.Send(calls, nil, func(replies []redisconn.Reply) {
					defer answers.Done()
					echo, err := redis.String(replies[1].Value, replies[1].Err)
					if length := replies[0].Value; length != int64(n+1) || answered != n || err != nil || echo != fmt.Sprint(n) {
						t.Errorf("%d was answered as number %d with %v", n, answered, replies)
					}
					answered++
				})
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	answers.Wait()
	is.Equal(redistest.Do(t, c, "LLEN", "list"), int64(senders*each))
	info := redistest.Sure(redis.String(c.Do("INFO", "clients")))(t)
	is.True(strings.Contains(info, "connected_clients:2")) // the line's and ours
}

// A call is sent although an earlier one isn't answered.
func TestSendDoesNotWait(t *testing.T) {
	is := redistest.Parallel(t)
	arrived := make(chan string, 2)
	goOn := make(chan struct{})
	server := redistest.Listen(t, func(c net.Conn) {
		for words := range redistest.Requests(c) {
			if words[0] == "GET" {
				if arrived <- words[1]; words[1] == "a" {
					go func() {
						<-goOn
						_, _ = c.Write([]byte("+of a\r\n+of b\r\n"))
					}()
				}
				continue
			}
			_, _ = c.Write([]byte("+PONG\r\n"))
		}
	})
	s := line(t, server.URL())
	a := send(s, redisconn.Command("GET", "a"))
	is.Equal(<-arrived, "a")
	b := send(s, redisconn.Command("GET", "b"))
	is.Equal(<-arrived, "b")
	close(goOn)
	is.Equal((<-a)[0].Value, "of a")
	is.Equal((<-b)[0].Value, "of b")
}

// What gathers while the line is busy goes out in one write.
func TestSendWritesTogether(t *testing.T) {
	is := redistest.Parallel(t)
	const n = 50
	goOn, written := make(chan struct{}), make(chan string, 1)
	server := redistest.Listen(t, func(c net.Conn) {
		buf := make([]byte, 1<<20)
		_, _ = c.Read(buf)
		<-goOn
		_, _ = c.Write([]byte("+PONG\r\n"))
		size, _ := c.Read(buf)
		written <- string(buf[:size])
		_, _ = c.Write([]byte(strings.Repeat("+OK\r\n", n)))
		_, _ = c.Read(buf)
	})
	s := line(t, server.URL())
	var all []<-chan []redisconn.Reply
	for range n {
		all = append(all, send(s, redisconn.Command("GET", "k"))) // while it dials
	}
	close(goOn)
	is.Equal(strings.Count(<-written, "GET"), n)
	for _, replies := range all {
		is.NoErr((<-replies)[0].Err)
	}
}

// A line with nothing in flight has no goroutine, and keeps its connection.
func TestIdle(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	s := line(t, server.URL())
	is.NoErr((<-send(s, redisconn.Command("PING")))[0].Err)
	made := s.Made()
	is.True(!made.IsZero() && s.Heard() < time.Minute)
	redistest.Eventually(t, "its goroutine has ended", func() bool { return !s.Running() })
	is.NoErr((<-send(s, redisconn.Command("PING")))[0].Err)
	is.Equal(s.Made(), made)
}

// A numbered script refuses a number that isn't the next one, as if rounds had been overtaken, and knows repeats.
var numbered = redisconn.NewScript(func() string {
	return `local last = tonumber(redis.call('GET', KEYS[1]) or '0')
		local n = tonumber(ARGV[1])
		if n <= last then return 'repeat' end
		if n > last + 1 then return redis.error_reply('OVERTAKEN ' .. n .. ' after ' .. last) end
		redis.call('SET', KEYS[1], n)
		return 'done'`
})

// A sender has two rounds in flight, and repeats those that fail. Its callbacks run one at a time.
type sender struct {
	t       *testing.T
	name    string
	send    func(calls []redisconn.Call, done func([]redisconn.Reply))
	sent    int
	most    int
	lost    int // rounds
	pending sync.WaitGroup
}

func (r *sender) start() {
	r.pending.Add(2)
	r.next()
	r.next()
}

func (r *sender) next() {
	if r.sent == r.most {
		r.pending.Done()
		return
	}
	r.sent++
	r.round(r.sent)
}

func (r *sender) round(n int) {
	payload := strings.Repeat("x", 10*n)
	calls := []redisconn.Call{numbered.Call([]string{r.name}, n), redisconn.Command("ECHO", payload)}
	r.send(calls, func(replies []redisconn.Reply) {
		for _, reply := range replies {
			switch {
			case reply.Err == nil:
			case redisconn.Answered(reply.Err) && !redisconn.Unloaded(reply.Err):
				r.t.Error(reply.Err)
			default:
				r.lost++
				r.round(n)
				return
			}
		}
		r.next()
	})
}

// However connections break, senders that repeat what fails keep their order, and a connection is closed
// before the next one is used. Scripts are known on each connection.
func TestSendBreaks(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	dial := redistest.Sure(redisconn.FromURL(link.URL()))(t)
	var open, dials atomic.Int64
	s := lineOn(t, func(ctx context.Context) (redis.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		if open.Add(1) > 1 {
			t.Error("the previous connection is open")
		}
		dials.Add(1)
		return &countedConn{Conn: conn, open: &open}, nil
	}, 0)
	var all []*sender
	for i := range 8 {
		r := &sender{t: t, name: fmt.Sprint("n", i), most: 400}
		r.send = func(calls []redisconn.Call, done func([]redisconn.Reply)) { s.Send(calls, nil, done) }
		all = append(all, r)
		r.start()
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, r := range all {
			r.pending.Wait()
		}
	}()
	for i := range 10 {
		redistest.Eventually(t, "it connects", func() bool { return !s.Made().IsZero() || isClosed(over) })
		if i%2 == 0 {
			link.Cut()
			continue
		}
		select {
		case <-link.LoseReplyTo("ECHO"):
		case <-over:
		}
	}
	<-over
	lost := 0
	for _, r := range all {
		lost += r.lost
	}
	is.True(lost > 0 && dials.Load() > 1)
	t.Log(lost, "rounds were lost, on", dials.Load(), "connections")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A countedConn is counted while it is open.
type countedConn struct {
	redis.Conn
	open   *atomic.Int64
	closed sync.Once
}

func (c *countedConn) ReceiveWithTimeout(d time.Duration) (any, error) {
	return redis.ReceiveWithTimeout(c.Conn, d)
}

func (c *countedConn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() { c.open.Add(-1) })
	return err
}

// When a connection breaks, what may have been carried out fails with ErrUnknown, and what wasn't written
// without it, in the order in which it was sent. What is sent in between comes after all of it.
func TestSendFailsInOrder(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Listen(t, func(c net.Conn) {
		buf := make([]byte, 64)
		_, _ = c.Read(buf)
		_, _ = c.Write([]byte("+PONG\r\n"))
		_, _ = c.Read(buf)
		_, _ = c.Write([]byte("+first\r\n")) // and hangs up in the middle of the next request
	})
	s := line(t, server.URL())
	var ended []string
	over := make(chan struct{})
	record := func(name string) func([]redisconn.Reply) {
		return func(replies []redisconn.Reply) {
			switch err := replies[len(replies)-1].Err; {
			case err == nil:
				name += " done"
			case errors.Is(err, redisconn.ErrUnknown):
				name += " unknown"
			default:
				name += " not sent"
			}
			if ended = append(ended, name); len(ended) == 4 {
				close(over)
			}
		}
	}
	large := redisconn.Command("SET", "k", make([]byte, 64<<20)) // takes a while to write, so that the next one waits
	s.Send([]redisconn.Call{redisconn.Command("GET", "k")}, nil, func(replies []redisconn.Reply) {
		record("first")(replies)
		s.Send([]redisconn.Call{large}, nil, record("large"))
		s.Send([]redisconn.Call{redisconn.Command("GET", "k")}, nil, record("last"))
	})
	s.Send([]redisconn.Call{large}, func() bool { return true }, record("stale"))
	<-over
	is.Equal(ended, []string{"first done", "stale not sent", "large unknown", "last not sent"})
}

// If Redis is silent, everything in flight fails after the timeout, and the line works when Redis does.
func TestSendSilence(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	for name, dial := range map[string]redisconn.Dial{
		"dialed": redistest.Sure(redisconn.FromURL(server.URL()))(t),
		"pooled": redisconn.FromPool(pool(func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, server.URL())
		})),
	} {
		s := lineOn(t, dial, silence)
		is.NoErr((<-send(s, redisconn.Command("PING")))[0].Err)
		server.Pause(t)
		began := time.Now()
		first := send(s, redisconn.Command("INCR", name), redisconn.Command("INCR", name))
		second := send(s, redisconn.Command("INCR", name))
		for _, replies := range [][]redisconn.Reply{<-first, <-second} {
			for _, r := range replies {
				is.True(errors.Is(r.Err, redisconn.ErrUnknown) && errors.Is(r.Err, os.ErrDeadlineExceeded))
			}
		}
		is.True(time.Since(began) < silence*9/5)
		is.True(s.Heard() >= silence && s.Made().IsZero())
		err := (<-send(s, redisconn.Command("INCR", name)))[0].Err // the server accepts the connection, and doesn't answer
		is.True(err != nil && redisconn.Away(err) && !errors.Is(err, redisconn.ErrUnknown))
		server.Resume(t)
		is.NoErr((<-send(s, redisconn.Command("PING")))[0].Err)
	}
}

// If there is no server, calls fail without ErrUnknown, and a sender that repeats them at once makes the
// stream dial only once in a while.
func TestSendDialFails(t *testing.T) {
	is := redistest.Parallel(t)
	dial := redistest.Sure(redisconn.FromURL("redis://" + redistest.Nowhere(t)))(t)
	dials := 0
	s := lineOn(t, func(ctx context.Context) (redis.Conn, error) { dials++; return dial(ctx) }, 0)
	over := make(chan struct{})
	began, n := time.Now(), 0
	var again func([]redisconn.Reply)
	again = func(replies []redisconn.Reply) {
		if err := replies[0].Err; !redisconn.Away(err) || errors.Is(err, redisconn.ErrUnknown) {
			t.Error(err)
		}
		if n++; n == 10 {
			close(over)
			return
		}
		s.Send([]redisconn.Call{redisconn.Command("PING")}, nil, again)
	}
	s.Send([]redisconn.Call{redisconn.Command("PING")}, nil, again)
	<-over
	is.Equal(dials, 10)
	is.True(time.Since(began) >= 9*20*time.Millisecond)
}

// A script is sent with its source once for each connection. If the server forgets it, the call fails with
// Unloaded, and the repeat is carried out.
func TestSendScripts(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	s := line(t, server.URL())
	script := redisconn.NewScript(func() string { return "return ARGV[1]" })
	both := func() []redisconn.Reply {
		return <-send(s, script.Call(nil, "a"), redisconn.Command("ECHO", "b"), script.Call([]string{"k"}, "c"))
	}
	check := func(replies []redisconn.Reply) {
		t.Helper()
		for i, want := range []string{"a", "b", "c"} {
			is.Equal(redistest.Sure(redis.String(replies[i].Value, replies[i].Err))(t), want)
		}
	}
	check(both())
	check(both())
	is.Equal(redistest.Calls(t, c, "eval"), 1)
	redistest.Do(t, c, "SCRIPT", "FLUSH")
	replies := both()
	is.True(redisconn.Unloaded(replies[0].Err) && replies[1].Err == nil && redisconn.Unloaded(replies[2].Err))
	check(both())
	s.Abort()
	redistest.Do(t, c, "SCRIPT", "FLUSH")
	check(both()) // on another connection
	is.Equal(redistest.Calls(t, c, "eval"), 3)
}

// After a reply that shows that the server is of no use anymore, what is in flight is answered, and what
// follows goes to the next connection.
func TestSendLeavesDemotedServer(t *testing.T) {
	is := redistest.Parallel(t)
	var conns atomic.Int64
	server := redistest.Listen(t, func(c net.Conn) {
		n := conns.Add(1)
		for words := range redistest.Requests(c) {
			switch {
			case words[0] == "PING":
				_, _ = c.Write([]byte("+PONG\r\n"))
			case n == 1 && words[0] == "SET":
				_, _ = c.Write([]byte("-READONLY You can't write against a read only replica.\r\n"))
			default:
				_, _ = fmt.Fprintf(c, ":%d\r\n", n)
			}
		}
	})
	s := line(t, server.URL())
	refused, read := send(s, redisconn.Command("SET", "k", "v")), send(s, redisconn.Command("GET", "k"))
	is.True(redisconn.Demoted((<-refused)[0].Err))
	is.NoErr((<-read)[0].Err)
	is.Equal((<-send(s, redisconn.Command("SET", "k", "v")))[0].Value, int64(2))
}

// Close waits for what is in flight. Everything else fails with ErrClosed, and never within Send.
func TestSendClose(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	s := line(t, server.URL())
	flight := send(s, redisconn.Command("BLPOP", "list", 0))
	until(t, c, "blocked_clients:1")
	closed := make(chan struct{})
	go func() { defer close(closed); s.Close() }()
	redistest.Eventually(t, "it closes", s.Closed)
	var mu sync.Mutex
	late := make(chan error, 1)
	mu.Lock()
	s.Send([]redisconn.Call{redisconn.Command("INCR", "n")}, nil, func(replies []redisconn.Reply) {
		mu.Lock()
		defer mu.Unlock()
		late <- replies[0].Err
	})
	mu.Unlock()
	redistest.Do(t, c, "LPUSH", "list", "x")
	is.NoErr((<-flight)[0].Err)
	<-closed
	is.True(errors.Is(<-late, redisconn.ErrClosed))
	is.True(errors.Is((<-send(s, redisconn.Command("INCR", "n")))[0].Err, redisconn.ErrClosed))
	is.Equal(redistest.Do(t, c, "EXISTS", "n"), int64(0))
	redistest.Eventually(t, "its connection is closed", func() bool {
		return strings.Contains(redistest.Sure(redis.String(c.Do("INFO", "clients")))(t), "connected_clients:1\r")
	})
}

// Close gives up on what isn't answered in time, and ends a dial.
func TestSendCloseGivesUp(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	s := lineOn(t, redistest.Sure(redisconn.FromURL(server.URL()))(t), silence)
	flight := send(s, redisconn.Command("BLPOP", "list", 0))
	until(t, c, "blocked_clients:1")
	s.Close()
	is.True(errors.Is((<-flight)[0].Err, redisconn.ErrUnknown))

	dialing := make(chan struct{})
	s = redisconn.NewLine(func(ctx context.Context) (redis.Conn, error) {
		close(dialing)
		<-ctx.Done()
		return nil, ctx.Err()
	}, time.Hour)
	unsent := send(s, redisconn.Command("PING"))
	<-dialing
	s.Close()
	is.True(errors.Is((<-unsent)[0].Err, redisconn.ErrClosed))

	asked := make(chan string, 1) // by a line to a server that accepts connections and doesn't answer
	s = redisconn.NewLine(redistest.Sure(redisconn.FromURL(replying(t, func(request string) string { asked <- request; return "" })))(t), time.Hour)
	unsent = send(s, redisconn.Command("GET", "k"))
	select {
	case request := <-asked:
		is.Equal(request, "PING")
	case replies := <-unsent: // a machine may be too busy to connect
		t.Fatal(replies[0].Err)
	}
	s.Close()
	is.True(errors.Is((<-unsent)[0].Err, redisconn.ErrClosed))
}

// Abort makes everything in flight fail, and the next call dials again.
func TestSendAbort(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	s := line(t, server.URL())
	for range 3 {
		flight, behind := send(s, redisconn.Command("BLPOP", "list", 0)), send(s, redisconn.Command("INCR", "n"))
		until(t, c, "blocked_clients:1")
		s.Abort()
		is.True(errors.Is((<-flight)[0].Err, redisconn.ErrUnknown))
		is.True((<-behind)[0].Err != nil)
		is.NoErr((<-send(s, redisconn.Command("PING")))[0].Err)
		redistest.Eventually(t, "it's idle", func() bool { return !s.Running() })
		s.Abort()
		is.NoErr((<-send(s, redisconn.Command("PING")))[0].Err)
	}
}

// A connection is replaced by its age, and nothing fails. If that isn't possible, the old one is used.
func TestSendRenewed(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	dial := redistest.Sure(redisconn.FromURL(server.URL()))(t)
	var dials atomic.Int64
	var away atomic.Bool
	s := lineOn(t, func(ctx context.Context) (redis.Conn, error) {
		if dials.Add(1); away.Load() {
			return nil, errors.New("no credentials")
		}
		return dial(ctx)
	}, 0).Renewed(50 * time.Millisecond)
	var stop atomic.Bool
	var failed atomic.Int64
	over := make(chan struct{}, 2)
	var next func([]redisconn.Reply)
	next = func(replies []redisconn.Reply) {
		if replies[0].Err != nil {
			failed.Add(1)
		}
		if stop.Load() {
			over <- struct{}{}
			return
		}
		s.Send([]redisconn.Call{redisconn.Command("PING")}, nil, next)
	}
	for range 2 {
		s.Send([]redisconn.Call{redisconn.Command("PING")}, nil, next)
	}
	redistest.Eventually(t, "it was replaced three times", func() bool { return dials.Load() > 3 })
	away.Store(true)
	tried := dials.Load()
	redistest.Eventually(t, "it tries in vain", func() bool { return dials.Load() > tried+1 })
	stop.Store(true)
	<-over
	<-over
	is.Equal(failed.Load(), int64(0))
}

// While the dial of a replacement hangs, calls go on over the old connection, and no other dial begins. When the
// connection is there, it's used, even if no call comes. If the line was closed or aborted, or has lost the old
// connection, it's not kept.
func TestReplacementDelaysNobody(t *testing.T) {
	for _, end := range []string{"ready", "refused", "closed", "aborted", "lost"} {
		t.Run(end, func(t *testing.T) {
			is := redistest.Parallel(t)
			server, c := redistest.StartAndDial(t)
			dial := redistest.Sure(redisconn.FromURL(server.URL()))(t)
			var dials atomic.Int64
			begun, ready, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
			l := lineOn(t, func(ctx context.Context) (redis.Conn, error) {
				switch n := dials.Add(1); {
				case n == 2:
					close(begun)
					select {
					case <-refused:
						return nil, errors.New("no credentials")
					case <-ready:
					case <-ctx.Done():
					}
					return dial(context.WithoutCancel(ctx)) // too late if ctx has ended
				case n > 2 && end == "ready":
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx)
			}, 30*time.Second).Renewed(time.Millisecond)
			call := func(name string, args ...any) int64 {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a generous limit: the dial would hang longer
				defer cancel()
				return redistest.Sure(redis.Int64(l.One(ctx, redisconn.Command(name, args...))))(t)
			}
			old := call("CLIENT", "ID")
			redistest.Eventually(t, "the dial begins", func() bool { return call("CLIENT", "ID") == old && isClosed(begun) })
			for range 100 {
				is.Equal(call("CLIENT", "ID"), old)
			}
			is.Equal(dials.Load(), int64(2))
			switch end {
			case "ready":
				close(ready)
				redistest.Eventually(t, "the old one is closed", func() bool {
					return !strings.Contains(redistest.Sure(redis.String(c.Do("CLIENT", "LIST")))(t), fmt.Sprintf("id=%d ", old))
				})
				is.True(call("CLIENT", "ID") > old)
			case "refused":
				close(refused)
				redistest.Eventually(t, "it's replaced later", func() bool { return call("CLIENT", "ID") > old })
			case "closed":
				l.Close()
				until(t, c, "connected_clients:1")
			case "aborted":
				l.Abort()
				is.True(call("CLIENT", "ID") > old)
			case "lost":
				redistest.Do(t, c, "CLIENT", "KILL", "ID", old)
				_, err := l.One(t.Context(), redisconn.Command("PING"))
				is.True(err != nil)
				is.True(call("CLIENT", "ID") > old)
			}
			l.Close()
			until(t, c, "connected_clients:1")
		})
	}
}

// Once calls are answered, the line keeps nothing of them.
func TestSendKeepsNothing(t *testing.T) {
	redistest.Parallel(t)
	server := redistest.Start(t)
	s := line(t, server.URL())
	var freed atomic.Int64
	const many = 20
	for range many {
		payload := make([]byte, 1<<20)
		runtime.AddCleanup(&payload[0], func(struct{}) { freed.Add(1) }, struct{}{})
		<-send(s, redisconn.Command("ECHO", payload))
	}
	redistest.Eventually(t, "no payload is kept", func() bool { runtime.GC(); return freed.Load() == many })
}

// The time of a dial is the line's own: a caller whose context is alive doesn't get a context's error.
func TestSlowDial(t *testing.T) {
	is := redistest.Parallel(t)
	line := lineOn(t, func(ctx context.Context) (redis.Conn, error) {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}, 50*time.Millisecond)
	_, err := line.One(t.Context(), redisconn.Command("PING"))
	is.True(errors.Is(err, os.ErrDeadlineExceeded))
	is.True(!errors.Is(err, context.DeadlineExceeded))
	_, ok := errors.AsType[*net.OpError](err) // findings say its address
	is.True(ok)
}
