package store

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

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

// Rounds that are lost are repeated unchanged by their callbacks, and carried out once, in order.
func TestRoundsAreRepeated(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	link := redistest.NewLink(t, server.Addr())
	v := viewOf(t, redistest.Sure(Open(link.URL(), Access{}))(t))
	redistest.Do(t, c, "LPUSH", v.Keys.Waiting(), "a", "b", "c", "d")
	first := <-outcome(v, asks(2, 2))
	is.NoErr(first.StartErr)
	is.Equal(len(first.Answer.Tasks), 2)

	link.LoseReplyTo(first.Answer.Tasks[0].ID)
	results := make(chan Result, 2)
	lost := 0
	send := func(round *Round) {
		var done func(*Replied)
		done = func(r *Replied) {
			res := r.Read()
			if res.StartErr == nil {
				results <- res
				return
			}
			lost++
			v.Send(round, done)
		}
		v.Send(round, done)
	}
	for i, a := range first.Answer.Tasks {
		send(asks(int64(3+i), 1, &End{Attempt: a.ID, Token: a.Token, Verb: Done}))
	}
	for _, want := range []string{"c", "d"} {
		res := <-results
		is.NoErr(res.FinishErr)
		is.NoErr(res.StartErr)
		is.Equal(string(res.Answer.Tasks[0].Record.Payload), want)
	}
	is.True(lost > 0)
	is.Equal(redistest.Do(t, c, "ZCARD", v.Keys.Working("w")), int64(2)) // c and d run, a and b have ended
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

// A worker hears its wakes, and what producers and cancels publish.
func TestListen(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	v := viewOf(t, redistest.Sure(Open(server.URL(), Access{}))(t))
	synced, told := make(chan struct{}, 1), make(chan string, 3)
	hear := func(n Notice, message []byte) { told <- string(n) + " " + string(message) }
	stop := v.Listen("w", hear, func() { synced <- struct{}{} })
	defer stop()
	select {
	case <-synced:
	case <-time.After(time.Minute):
		t.Fatal("it isn't subscribed")
	}
	for _, channel := range []string{v.Keys.Wake("w"), v.Keys.Channel(keys.KindWork), v.Keys.Channel(keys.KindCancel)} {
		redistest.Do(t, c, "PUBLISH", channel, "m")
	}
	for _, want := range []Notice{Woken, Work, IsCanceled} {
		is.Equal(<-told, string(want)+" m")
	}
}
