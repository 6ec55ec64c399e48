package redisconn_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// While Redis is silent, each caller waits for the timeout, however long others have waited when
// it comes. That holds again after the line was idle.
func TestTimeoutOfEach(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout = 500 * time.Millisecond
	over := make(chan struct{})
	l := redisconn.NewLine(redisconn.FromPool(deafPool{over}), timeout)
	t.Cleanup(func() { close(over); l.Close() })
	for range 2 {
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 90 * time.Millisecond)
				began := time.Now()
				_, err := l.One(t.Context(), redisconn.Command("PING"))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout {
					t.Errorf("caller %d: %v after %v", i, err, took)
				}
			})
		}
		callers.Wait()
		redistest.Eventually(t, "the timer stops", func() bool { return !l.Ticks() })
	}
	is.Equal(l.Waiting(), 0)
}

// A call that waits for its turn while Redis gives signs of life doesn't fail, even if Redis was
// silent when it began to wait.
func TestTimeoutBehindAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		const timeout, limit, piece, pieces = time.Second, 1625 * time.Millisecond, 4 << 10, 80
		arrived := make(chan bool, 1)
		serve := func(c net.Conn) {
			defer c.Close()
			for words := range redistest.Requests(c) {
				if words[0] == "PING" {
					_, _ = c.Write([]byte("+PONG\r\n"))
					continue
				}
				arrived <- true
				time.Sleep(limit / 4)
				_, _ = fmt.Fprintf(c, "$%d\r\n", piece*pieces)
				for range pieces {
					_, _ = c.Write(make([]byte, piece))
					time.Sleep(2 * limit / pieces)
				}
				_, _ = c.Write([]byte("\r\n"))
			}
		}
		l := redisconn.NewLine(redisconn.Over(func() net.Conn {
			client, server := net.Pipe()
			go serve(server)
			return client
		}), timeout)
		defer l.Close()
		redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
		time.Sleep(limit)
		first := begin(t.Context(), l, redisconn.Command("GET", "large"))
		<-arrived
		second := begin(t.Context(), l, redisconn.Command("PING"))
		is.NoErr(<-second)
		is.NoErr(<-first)
	})
}

// A closed line has no timer, which would keep it in memory for a long time if the timeout is long.
func TestTimerEnds(t *testing.T) {
	is := redistest.Parallel(t)
	l := lineOf(t, redistest.URL(), time.Hour)
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	is.True(l.Ticks())
	l.Close()
	is.True(!l.Ticks())
}
