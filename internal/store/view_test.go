package store

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// viewOf returns a view of the queue q, of which w is a member. Its rounds begin after 1.
func viewOf(t *testing.T, servers *Servers) *View {
	t.Helper()
	l := NewLines(servers, logs.New(slog.New(slog.DiscardHandler)), 0, 0)
	t.Cleanup(l.Close)
	v := l.Serve("q", "q", keys.NewSpace("p").Queue("q"))
	joined := redistest.Sure(ReadJoin(reply(l.Control.One(t.Context(), JoinCall(v.Shared, "w", 0, 0, 1)))))(t)
	if joined != IsMember {
		t.Fatal(joined)
	}
	return v
}

// asks is a round that asks for tasks.
func asks(number int64, wanted int, ends ...*End) *Round {
	r := &Round{Start: &Start{Worker: "w", Round: number, Stamp: 1, Wanted: wanted}}
	if len(ends) > 0 {
		r.Finish = &Finish{Worker: "w", Ends: ends}
	}
	return r
}

// outcome sends a round, and returns where the result arrives.
func outcome(v *View, r *Round) <-chan Result {
	result := make(chan Result, 1)
	v.Send(r, func(r *Replied) { result <- r.Read() })
	return result
}

// After the scripts were flushed, both halves of a round fail, and the repeat is carried out.
func TestRoundAfterFlush(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	v := viewOf(t, DialPool(poolOf(server.URL())))
	is.NoErr((<-outcome(v, asks(2, 1))).StartErr)
	redistest.Do(t, c, "SCRIPT", "FLUSH")
	is.True(redisconn.Unloaded((<-outcome(v, asks(3, 1))).StartErr))
	is.NoErr((<-outcome(v, asks(3, 1))).StartErr)
	is.True(!v.Silent())
	v.Close()
	is.True(errors.Is((<-outcome(v, asks(4, 1))).StartErr, ErrClosed))
}

// A poolOf is a Pool of the user's own kind.
type poolOf string

func (p poolOf) GetContext(ctx context.Context) (redis.Conn, error) {
	return redis.DialURLContext(ctx, string(p))
}
