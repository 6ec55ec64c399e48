package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

var push = redisconn.NewScript(func() string {
	return "for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end return #ARGV - 1"
})

// pushes returns the call that pushes three payloads of a caller.
func pushes(i int) redisconn.Call {
	return push.Call([]string{"k"}, "first").Head().Call(redisconn.Payloads(context.Background(), [][]byte{
		fmt.Append(nil, i, "/0"), fmt.Append(nil, i, "/1"), fmt.Append(nil, i, "/2")}))
}

// A plain is a pool whose dial function FromPool can't use.
type plain struct{ *redis.Pool }

func (p plain) GetContext(ctx context.Context) (redis.Conn, error) { return p.Pool.GetContext(ctx) }

// Calls that gather are combined, on any connection: each caller's arguments are sent once and in
// order, and each caller gets the reply.
func TestJoin(t *testing.T) {
	t.Parallel()
	dials := map[string]func(url string) redisconn.Dial{
		"url": func(url string) redisconn.Dial {
			d, err := redisconn.FromURL(url)
			is.New(t).NoErr(err)
			return d
		},
		"redigo's pool": func(url string) redisconn.Dial {
			return redisconn.FromPool(&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }})
		},
		"a pool": func(url string) redisconn.Dial {
			return redisconn.FromPool(plain{&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}})
		},
	}
	for name, dial := range dials {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			server, c := redistest.StartAndDial(t)
			l := redisconn.NewLine(dial(server.URL()), 0)
			defer l.Close()
			redistest.Sure(l.One(t.Context(), pushes(99)))(t) // loads the script
			redistest.Do(t, c, "DEL", "k")
			before := redistest.Calls(t, c, "evalsha")
			_, release := occupy(t, l, server)
			errs := gather(t, l, 50, func(i int) error {
				n, err := redis.Int(l.One(t.Context(), pushes(i)))
				if err == nil && n != 150 {
					err = fmt.Errorf("the reply is %d", n)
				}
				return err
			})
			is.NoErr(release())
			for _, err := range errs() {
				is.NoErr(err)
			}
			is.Equal(redistest.Calls(t, c, "evalsha")-before, 1)
			got := redistest.Sure(redis.Strings(c.Do("LRANGE", "k", 0, -1)))(t)
			is.Equal(len(got), 150)
			var want []string
			for some := range slices.Chunk(got, 3) {
				caller, _, _ := strings.Cut(some[0], "/")
				is.Equal(some, []string{caller + "/0", caller + "/1", caller + "/2"})
				want = append(want, caller)
			}
			slices.Sort(want)
			is.Equal(len(slices.Compact(want)), 50)
		})
	}
}

// A caller that leaves before the calls are sent is left out.
func TestJoinWithout(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	_, release := occupy(t, l, server)
	ctx, cancel := cancellable(t)
	gone := gather(t, l, 2, func(i int) error { _, err := l.One(ctx, pushes(i)); return err })
	stay := gather(t, l, 2, func(i int) error { _, err := l.One(t.Context(), pushes(2+i)); return err })
	cancel()
	for _, err := range gone() {
		is.True(errors.Is(err, context.Canceled) && !errors.Is(err, redisconn.ErrUnknown))
	}
	is.NoErr(release())
	for _, err := range stay() {
		is.NoErr(err)
	}
	got := redistest.Sure(redis.Strings(redistest.Dial(t, server.URL()).Do("LRANGE", "k", 0, -1)))(t)
	slices.Sort(got)
	is.Equal(got, []string{"2/0", "2/1", "2/2", "3/0", "3/1", "3/2"})
}

// If the only reply is lost, all outcomes are unknown.
func TestJoinLost(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	l := line(t, link.URL())
	redistest.Sure(l.One(t.Context(), pushes(99)))(t) // loads the script
	_, release := occupy(t, l, server)
	errs := gather(t, l, 10, func(i int) error { _, err := l.One(t.Context(), pushes(i)); return err })
	lost := link.LoseReplyTo("7/1")
	is.NoErr(release())
	<-lost
	for _, err := range errs() {
		is.True(errors.Is(err, redisconn.ErrUnknown))
	}
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("LLEN", "k"))))(t), 33)
}

// All callers get a refusal, and the connection stays open.
func TestJoinRefused(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	redistest.Sure(l.One(t.Context(), redisconn.Command("SET", "k", "no list")))(t)
	id := clientID(t, l)
	_, release := occupy(t, l, server)
	errs := gather(t, l, 10, func(i int) error { _, err := l.One(t.Context(), pushes(i)); return err })
	is.NoErr(release())
	for _, err := range errs() {
		_, refused := errors.AsType[redis.Error](err)
		is.True(refused && strings.Contains(err.Error(), "WRONGTYPE") && !errors.Is(err, redisconn.ErrUnknown))
	}
	is.Equal(clientID(t, l), id)
}

// Calls that are too large together are sent as several, and so are calls that differ.
func TestJoinBounds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := line(t, server.URL())
	c := redistest.Dial(t, server.URL())
	head := push.Call([]string{"k"}, "first").Head()
	many := func(n, size int) redisconn.Call {
		return head.Call(redisconn.Payloads(context.Background(), slices.Repeat([][]byte{make([]byte, size)}, n)))
	}
	if _, err := l.One(t.Context(), many(1, 1)); err != nil { // loads the script
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		calls []redisconn.Call // one per caller
		want  int
	}{
		"few":             {[]redisconn.Call{many(500, 1), many(2000, 1)}, 1},
		"one more":        {[]redisconn.Call{many(500, 1), many(2001, 1)}, 2},
		"many":            {[]redisconn.Call{many(1001, 1), many(1001, 1), many(1001, 1)}, 2},
		"small":           {[]redisconn.Call{many(1, 60<<10), many(1, 60<<10), many(1, 60<<10), many(1, 60<<10)}, 1},
		"large":           {[]redisconn.Call{many(1, 200<<10), many(1, 200<<10), many(1, 200<<10)}, 3},
		"alone":           {[]redisconn.Call{many(1, 1<<20), many(1, 1)}, 2},
		"other keys":      {[]redisconn.Call{many(1, 1), push.Call([]string{"l"}, "first").Head().Call(redisconn.Payloads(context.Background(), [][]byte{nil}))}, 2},
		"other arguments": {[]redisconn.Call{many(1, 1), push.Call([]string{"k"}, "second").Head().Call(redisconn.Payloads(context.Background(), [][]byte{nil}))}, 2},
		"no head":         {[]redisconn.Call{many(1, 1), push.Call([]string{"k"}, "first", "x")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			before := redistest.Calls(t, c, "evalsha")
			_, release := occupy(t, l, server)
			errs := gather(t, l, len(test.calls), func(i int) error { _, err := l.One(t.Context(), test.calls[i]); return err })
			is.NoErr(release())
			for _, err := range errs() {
				is.NoErr(err)
			}
			is.Equal(redistest.Calls(t, c, "evalsha")-before, test.want)
		})
	}
}

// The calls of one caller stay separate and in order.
func TestOrder(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	redistest.Sure(l.One(t.Context(), pushes(0)))(t) // loads the script
	redistest.Sure(l.One(t.Context(), redisconn.Command("DEL", "k")))(t)
	_, release := occupy(t, l, server)
	errs := gather(t, l, 10, func(int) error {
		for i, r := range l.Do(t.Context(), pushes(0), redisconn.Command("DEL", "k"), pushes(1), redisconn.Command("DEL", "k")) {
			if n, err := redis.Int(r.Value, r.Err); err != nil || n != []int{3, 1, 3, 1}[i] {
				return fmt.Errorf("reply %d is %d, %v", i, n, err)
			}
		}
		return nil
	})
	is.NoErr(release())
	for _, err := range errs() {
		is.NoErr(err)
	}
}
