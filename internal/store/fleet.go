package store

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/google/uuid"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// NewID returns a new id of a worker, a UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// NewBackoff returns a Backoff for the first try.
func NewBackoff() *Backoff { return redisconn.NewBackoff() }

// Jitter returns a random time from half of d to d.
func Jitter(d time.Duration) time.Duration { return redisconn.Jitter(d) }

// A Heartbeat renews a worker's leases on several queues, and its registration.
type Heartbeat struct {
	Worker    string
	Registers bool          // the registration is renewed, too
	TTL       time.Duration // of the registration; 0: none
	Lease     time.Duration // 0: forever
	Queues    []*Shared
	Judge     []bool // for each queue: the worker may evict others
}

// A Heard is the answer to a Heartbeat.
type Heard struct {
	Registered bool
	Again      bool     // the connection was cut, and the heartbeat was repeated on a new one
	Err        error    // of the registration
	Pulses     []*Pulse // for each queue, and the error
	Errs       []error
}

// Send sends the heartbeat in one exchange, and waits for the answers. If the connection is cut, it repeats the
// heartbeat once, immediately: renewing a lease twice does no harm, and servers cut connections whose login has
// expired. The repetition doesn't ask to judge, since its connection is new.
func (h *Heartbeat) Send(ctx context.Context, r Runner, s keys.Space) (all Heard) {
	replies := r.Do(ctx, h.calls(s)...)
	if ctx.Err() == nil && slices.ContainsFunc(replies, cut) {
		all.Again, h.Judge = true, make([]bool, len(h.Queues))
		replies = r.Do(ctx, h.calls(s)...)
	}
	if h.Registers {
		all.Registered, all.Err = redis.Bool(replies[0].Value, replies[0].Err)
		replies = replies[1:]
	}
	all.Pulses, all.Errs = make([]*Pulse, len(replies)), make([]error, len(replies))
	for i, reply := range replies {
		all.Pulses[i], all.Errs[i] = ReadHeartbeat(reply)
	}
	return all
}

// cut reports whether a reply was lost because the connection was cut, not because Redis is silent.
func cut(r redisconn.Reply) bool {
	return errors.Is(r.Err, ErrUnknown) && !errors.Is(r.Err, os.ErrDeadlineExceeded)
}

func (h *Heartbeat) calls(s keys.Space) []redisconn.Call {
	calls := make([]redisconn.Call, 0, 1+len(h.Queues))
	switch {
	case !h.Registers:
	case h.TTL > 0:
		calls = append(calls, redisconn.Command("PEXPIRE", s.Worker(h.Worker), h.TTL.Milliseconds()))
	default:
		calls = append(calls, redisconn.Command("EXISTS", s.Worker(h.Worker)))
	}
	for i, q := range h.Queues {
		calls = append(calls, HeartbeatCall(q, h.Worker, h.Lease, h.Judge[i]))
	}
	return calls
}

// Tokens reads the last tokens of queues, in one exchange: 0 if none was issued, and −1 if there's something else in
// its place. It repeats itself once if a reply was lost: the connection may lead to a Redis that's gone.
func Tokens(ctx context.Context, r Runner, queues []keys.Queue) (tokens []int64, errs []error) {
	tokens, errs = make([]int64, len(queues)), make([]error, len(queues))
	_ = Twice(func() error {
		for i, reply := range doEach(ctx, r, queues, TokenCall) {
			tokens[i], errs[i] = ReadToken(reply)
		}
		return errors.Join(errs...)
	})
	return tokens, errs
}

// A Join is a request to become a member of a queue; see JoinCall.
type Join struct {
	Queue        *Shared
	Asked, Round int64
}

// JoinAll asks for memberships for the lease (0: forever), in one exchange.
func JoinAll(ctx context.Context, r Runner, worker string, lease time.Duration, joins []Join) (all []Joined, errs []error) {
	call := func(j Join) redisconn.Call { return JoinCall(j.Queue, worker, lease, j.Asked, j.Round) }
	all, errs = make([]Joined, len(joins)), make([]error, len(joins))
	for i, reply := range doEach(ctx, r, joins, call) {
		all[i], errs[i] = ReadJoin(reply)
	}
	return all, errs
}

// LookAll calls Evict without a worker for some queues, in one exchange.
func LookAll(ctx context.Context, r Runner, queues []*Shared, judge []int64, grace time.Duration) (all []Look, errs []error) {
	all, errs = make([]Look, len(queues)), make([]error, len(queues))
	calls := make([]redisconn.Call, len(queues))
	for i, q := range queues {
		calls[i] = EvictCall(q, "", judge[i], grace)
	}
	for i, reply := range r.Do(ctx, calls...) {
		all[i], errs[i] = ReadEvict(reply)
	}
	return all, errs
}
