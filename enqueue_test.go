package worqr_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Many callers share few calls, and each payload is there once, in the order of
// its caller.
func TestEnqueueTogether(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	conn := redistest.Dial(t, server.URL())
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
				clear(payload) // it is ours again
			}
		})
	}
	all.Wait()
	is.True(redistest.Calls(t, conn, "evalsha")+redistest.Calls(t, conn, "publish") < callers*calls)
	got, err := redis.Strings(conn.Do("LRANGE", "p:queues:{q}", 0, -1))
	is.NoErr(err)
	slices.Reverse(got) // the oldest first
	next := map[string]int{}
	for _, payload := range got {
		caller, call, _ := strings.Cut(payload, " ")
		is.Equal(call, fmt.Sprintf("%03d", next[caller]))
		next[caller]++
	}
	is.Equal(len(got), callers*calls)
}

// A producer that has seen a long queue wakes nobody, and whoever has become idle
// meanwhile all the same. No beat helps: the next is minutes away.
func TestEnqueueAfterLongQueue(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	for i := range 150 {
		enqueue(t, q, fmt.Sprint(i))
	}
	p := open(t, worqr.Options{Prefix: prefix, Lease: 15 * time.Minute})
	open := newValve()
	p.Queue("q").Handle(open.handle, nil)
	run(t, p)
	eventually(t, "all ran", func() bool { return open.through.Load() == 150 })
	idle(t, q, 1)
	for i := range 3 {
		enqueue(t, q, "one more")
		eventually(t, "it ran", func() bool { return open.through.Load() == int64(151+i) })
		idle(t, q, 1)
	}
}
