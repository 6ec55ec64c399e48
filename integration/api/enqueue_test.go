package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Concurrent callers share calls to Redis, and each payload is enqueued once, in the order of
// its caller.
func TestEnqueueTogether(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	const callers, calls = 32, 200
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			q := p.Queue("q") // handles are cheap
			payload := make([]byte, 0, 20)
			for j := range calls {
				payload = fmt.Appendf(payload[:0], "%d %03d", i, j)
				if err := q.Enqueue(t.Context(), payload); err != nil {
					t.Error(err)
				}
				clear(payload) // Enqueue doesn't keep it
			}
		})
	}
	all.Wait()
	is.True(redistest.Calls(t, conn, "evalsha")+redistest.Calls(t, conn, "publish") < callers*calls)
	got := sure(redis.Strings(conn.Do("LRANGE", "p:queues:{q}", 0, -1)))(t)
	slices.Reverse(got) // the oldest first
	next := map[string]int{}
	for _, payload := range got {
		caller, call, _ := strings.Cut(payload, " ")
		is.Equal(call, fmt.Sprintf("%03d", next[caller]))
		next[caller]++
	}
	is.Equal(len(got), callers*calls)
}

// A yesConn is a connection without a server. It replies 1 to every command.
type yesConn struct{}

func (yesConn) Close() error                                             { return nil }
func (yesConn) Err() error                                               { return nil }
func (yesConn) Send(string, ...any) error                                { return nil }
func (yesConn) Flush() error                                             { return nil }
func (yesConn) Do(string, ...any) (any, error)                           { return int64(1), nil }
func (yesConn) Receive() (any, error)                                    { return int64(1), nil }
func (yesConn) ReceiveWithTimeout(time.Duration) (any, error)            { return int64(1), nil }
func (yesConn) DoWithTimeout(time.Duration, string, ...any) (any, error) { return int64(1), nil }

// Enqueue adds the queue to the list of queues after the tasks. If Redis doesn't reply to that,
// Enqueue returns when its context ends.
func TestEnqueueEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		stalled, asked := make(chan struct{}), 0
		conn := &through{Conn: yesConn{}, OnReply: func(command string, _ []any, reply any, err error) (any, error) {
			if command == "SADD" {
				asked++
				cancel()
				<-stalled
			}
			return reply, err
		}}
		p := worqr.New(&redis.Pool{Dial: func() (redis.Conn, error) { return conn, nil }}, nil)
		defer p.Close()
		defer close(stalled)
		began := time.Now()
		is.NoErr(p.Queue("q").Enqueue(ctx, []byte("a")))
		is.Equal(asked, 1)
		is.Equal(time.Since(began), time.Duration(0)) // virtual time: nothing has waited for a timer
	})
}

// One call enqueues up to MaxBatchSize payloads with MaxBatchBytes in total, or a single payload of any size.
func TestEnqueueOfMany(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{Prefix: redistest.Prefix(t), MaxPayload: 4 << 20}).Queue("q")
	many, inOrder := make([][]byte, worqr.MaxBatchSize), make([]string, worqr.MaxBatchSize)
	for i := range many {
		inOrder[i] = fmt.Sprint(i)
		many[i] = []byte(inOrder[i])
	}
	is.NoErr(q.Enqueue(t.Context(), many...))
	is.Equal(waiting(t, q), inOrder)
	is.NoErr(q.Delete(t.Context()))
	for fresh := range 2 {
		is.Equal(sure(q.EnqueueOnce(t.Context(), "nonce", many...))(t), fresh == 0)
	}
	is.NoErr(q.Delete(t.Context()))

	half := make([]byte, worqr.MaxBatchBytes/2)
	is.NoErr(q.Enqueue(t.Context(), half, half))
	is.NoErr(q.Enqueue(t.Context(), make([]byte, worqr.MaxBatchBytes+1)))
	err := q.Enqueue(t.Context(), half, half, []byte("a"))
	is.True(is_(err, worqr.ErrTooLarge) && is_(err, worqr.ErrInvalid))
	is.Equal(len(waiting(t, q)), 3)
}
