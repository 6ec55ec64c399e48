package store

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// Jitter returns a random time from half of d to d.
func Jitter(d time.Duration) time.Duration { return redisconn.Jitter(d) }

// A Beat is one heartbeat of a worker, on all its queues.
type Beat struct {
	Worker string

	Registers bool          // the registration is renewed, too
	TTL       time.Duration // of the registration; 0: none

	Lease  time.Duration // 0: forever
	Grace  time.Duration // from suspecting a worker whose lease has expired to evicting it
	Judge  int64         // ms of Redis time until which other workers may be evicted; 0: none may
	Queues []Keys
	Spare  []bool // by queue: the beat evicts no worker there, whatever Judge is; nil: no such queue
}

// A Beaten is the reply to a Beat.
type Beaten struct {
	Registered bool
	Again      bool  // the connection was cut: the beat was repeated, and the repetition evicted no worker
	Err        error // of renewing the registration
	Pulses     []*Pulse
	Errs       []error // by queue
}

// cut reports whether a reply was lost because the connection was cut, not because Redis is silent.
func cut(r redisconn.Reply) bool {
	return errors.Is(r.Err, ErrUnknown) && !errors.Is(r.Err, os.ErrDeadlineExceeded)
}

// Beat sends the heartbeat in one exchange. If the connection is cut, it repeats the heartbeat
// once, immediately: renewing a lease twice does no harm, and servers cut connections whose login
// has expired. The repeated heartbeat evicts no worker, because its connection is new.
func (b Beat) Beat(ctx context.Context, r Runner, s Space) (of Beaten) {
	replies := r.Do(ctx, b.calls(s)...)
	if ctx.Err() == nil && slices.ContainsFunc(replies, cut) {
		of.Again, b.Judge = true, 0
		replies = r.Do(ctx, b.calls(s)...)
	}
	if b.Registers {
		of.Registered, of.Err = redis.Bool(replies[0].Value, replies[0].Err)
		replies = replies[1:]
	}
	of.Pulses, of.Errs = make([]*Pulse, len(b.Queues)), make([]error, len(b.Queues))
	for i, reply := range replies {
		of.Pulses[i], of.Errs[i] = ReadBeat(reply)
	}
	return of
}

func (b Beat) calls(s Space) []redisconn.Call {
	calls := make([]redisconn.Call, 0, 1+len(b.Queues))
	switch {
	case !b.Registers:
	case b.TTL > 0:
		calls = append(calls, redisconn.Command("PEXPIRE", s.Worker(b.Worker), b.TTL.Milliseconds()))
	default:
		calls = append(calls, redisconn.Command("EXISTS", s.Worker(b.Worker)))
	}
	for i, q := range b.Queues {
		judge := b.Judge
		if b.Spare != nil && b.Spare[i] {
			judge = 0
		}
		calls = append(calls, BeatCall(q, b.Worker, b.Lease, b.Grace, judge))
	}
	return calls
}

// Tokens reads the last tokens of queues, which joins have to name. of is the index of the
// queue that the error is about.
func Tokens(ctx context.Context, r Runner, queues []Keys) (tokens []int64, of int, err error) {
	tokens = make([]int64, len(queues))
	for i, reply := range doEach(ctx, r, queues, TokenCall) {
		if tokens[i], err = ReadToken(reply); err != nil {
			return nil, i, err
		}
	}
	return tokens, 0, nil
}

// Known returns the last tokens of queues as far as Redis answers: 0 if none was issued, and -1 if
// it's unknown.
func Known(ctx context.Context, r Runner, queues []Keys) []int64 {
	if len(queues) == 0 {
		return nil
	}
	var replies []redisconn.Reply
	_ = Twice(func() error { // the connection may lead to the previous Redis
		replies = doEach(ctx, r, queues, TokenCall)
		return replies[0].Err
	})
	tokens := make([]int64, len(queues))
	for i, reply := range replies {
		var err error
		if tokens[i], err = redis.Int64(reply.Value, reply.Err); err != nil && !errors.Is(err, redis.ErrNil) {
			tokens[i] = -1
		}
	}
	return tokens
}

// A Join is a request to become a member of a queue.
type Join struct {
	Queue Keys
	Asked int64 // the token that the queue had before
	Round int64 // rounds of the membership have higher numbers
}

// A Joined is the answer to a Join; see ReadJoin.
type Joined struct {
	Joined bool
	Err    error
}

// JoinAll asks for memberships for the lease (0: forever), in one exchange.
func JoinAll(ctx context.Context, r Runner, worker string, lease time.Duration, joins []Join) []Joined {
	join := func(j Join) redisconn.Call { return JoinCall(j.Queue, worker, lease, j.Asked, j.Round) }
	all := make([]Joined, len(joins))
	for i, reply := range doEach(ctx, r, joins, join) {
		all[i].Joined, all[i].Err = ReadJoin(reply)
	}
	return all
}
