package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// answering returns a line to a server that answers a PING normally, and other requests by calling
// answer until that returns false.
func answering(t *testing.T, timeout time.Duration, answer func(c net.Conn) bool) *redisconn.Line {
	t.Helper()
	return lineOf(t, redistest.Listen(t, func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			switch {
			case err != nil:
				return
			case strings.Contains(string(buf[:n]), "PING"):
				_, _ = fmt.Fprint(c, "+PONG\r\n")
			case !answer(c):
				_, _ = c.Read(buf) // it sends nothing more, and waits for the end
				return
			}
		}
	}).URL(), timeout)
}

// pieces sends the same bytes n times, with a pause before each.
func pieces(c net.Conn, what string, n int, pause time.Duration) bool {
	for range n {
		time.Sleep(pause)
		if _, err := c.Write([]byte(what)); err != nil {
			return false
		}
	}
	return true
}

var piece = strings.Repeat("x", 16<<10)

// A reply that keeps coming is read, however long that takes.
func TestReplyInPieces(t *testing.T) {
	t.Parallel()
	const timeout, n, pause = 3 * time.Second, 70, 100 * time.Millisecond
	for name, of := range map[string]struct{ begins, piece string }{
		"a bulk":   {fmt.Sprintf("$%d\r\n", n*len(piece)-2), piece},
		"an array": {fmt.Sprintf("*%d\r\n", n), fmt.Sprintf("$%d\r\n%s\r\n", len(piece), piece)},
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			l := answering(t, timeout, func(c net.Conn) bool {
				_, _ = fmt.Fprint(c, of.begins)
				if of.piece != piece {
					return pieces(c, of.piece, n, pause)
				}
				return pieces(c, of.piece, n-1, pause) && pieces(c, piece[2:]+"\r\n", 1, pause)
			})
			for range 2 {
				sent := time.Now()
				redistest.Sure(l.One(t.Context(), redisconn.Command("GET", "large")))(t)
				is.True(time.Since(sent) > 2*timeout) // otherwise this shows nothing
			}
		})
	}
}

// A reply that stops midway fails within the timeout, even if most of it arrived at once.
func TestReplyStops(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout = 2 * time.Second // also for the dial, on a busy machine
	l := answering(t, timeout, func(c net.Conn) bool {
		_, _ = fmt.Fprintf(c, "$%d\r\n", 1<<24)
		_, _ = c.Write(make([]byte, 1<<23))
		return false
	})
	sent := time.Now()
	_, err := l.One(t.Context(), redisconn.Command("GET", "large"))
	is.True(errors.Is(err, redisconn.ErrUnknown))
	if took := time.Since(sent); took < timeout || took > 5*timeout {
		t.Errorf("it took %v", took)
	}
}

// A reply that comes too slowly doesn't block the line.
func TestTrickle(t *testing.T) {
	is := redistest.Parallel(t)
	l := answering(t, time.Second, func(c net.Conn) bool {
		_, _ = fmt.Fprintf(c, "$%d\r\n%s", 1<<24, strings.Repeat(piece, 100)) // a normal beginning
		return pieces(c, "x", 1<<24, 5*time.Millisecond)
	})
	sent := time.Now()
	_, err := l.One(t.Context(), redisconn.Command("GET", "large"))
	is.True(errors.Is(err, redisconn.ErrUnknown))
	if took := time.Since(sent); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// endless sends more than a test waits for.
func endless(c net.Conn) bool {
	_, _ = fmt.Fprintf(c, "$%d\r\n", 1<<29)
	return pieces(c, piece, 1<<15, 20*time.Millisecond)
}

// If a caller's context ends while its reply arrives, it returns at once. If nobody else wants
// the exchange's replies, later callers and Close wait for it no longer than the timeout.
func TestUnwantedReply(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout = 5 * time.Second
	asked := make(chan bool, 10)
	l := answering(t, timeout, func(c net.Conn) bool {
		asked <- true
		return endless(c)
	})
	for range 2 {
		ctx, cancel := cancellable(t)
		failed := make(chan error, 1)
		go func() {
			_, err := l.One(ctx, redisconn.Command("GET", "large"))
			failed <- err
		}()
		<-asked
		time.Sleep(timeout + 100*time.Millisecond)
		began := time.Now()
		cancel()
		err := <-failed
		is.True(errors.Is(err, redisconn.ErrUnknown) && errors.Is(err, context.Canceled))
		is.True(time.Since(began) < timeout*9/10)                                             // at once, not when the exchange has timed out
		got := redistest.Sure(redis.String(l.One(t.Context(), redisconn.Command("PING"))))(t) // behind the unwanted reply
		is.Equal(got, "PONG")
		is.True(time.Since(began) < 4*timeout) // the reply would take ten minutes
	}
}

// A reply whose caller has left is read if another caller waits behind it.
func TestReplyWantedByOther(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout = 1500 * time.Millisecond
	asked, on := make(chan bool, 3), make(chan bool)
	l := answering(t, timeout, func(c net.Conn) bool {
		asked <- true
		if on != nil {
			<-on
			on = nil
			return pieces(c, "+first\r\n", 1, 0)
		}
		part := strings.Repeat(piece, 4) // each extends the deadline by a second, for busy machines
		_, _ = fmt.Fprintf(c, "$%d\r\n", 25*len(part))
		return pieces(c, part, 25, 150*time.Millisecond) && pieces(c, "\r\n+last\r\n", 1, 0) // for both callers
	})
	first, release := make(chan error, 1), on
	go func() {
		_, err := l.One(context.Background(), redisconn.Command("GET", "first"))
		first <- err
	}()
	<-asked
	ctx, cancel := cancellable(t)
	large := gather(t, l, 1, func(int) error {
		_, err := l.One(ctx, redisconn.Command("GET", "large"))
		return err
	})
	last := gather(t, l, 1, func(int) error {
		got, err := redis.String(l.One(t.Context(), redisconn.Command("GET", "last")))
		if err == nil && got != "last" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
	close(release)
	is.NoErr(<-first)
	<-asked // both, in one exchange
	sent := time.Now()
	cancel()
	is.True(errors.Is(large()[0], redisconn.ErrUnknown))
	is.NoErr(last()[0])
	is.True(time.Since(sent) > 2*timeout) // otherwise this shows nothing
}

// A server that doesn't know a script, although the call has none, refuses the call.
func TestNoScript(t *testing.T) {
	is := redistest.Parallel(t)
	l := lineOf(t, replying(t, func(request string) string {
		if request == "PING" {
			return "+PONG\r\n"
		}
		return "-NOSCRIPT No matching script.\r\n"
	}), silence)
	script := redisconn.NewScript(func() string { return "return 1" })
	for _, r := range l.Do(t.Context(), redisconn.Command("GET", "k"), script.Call(nil)) {
		is.True(redisconn.Unloaded(r.Err))
	}
}
