package store

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/google/uuid"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	join      = verb("join")
	leave     = verb("leave")
	heartbeat = verb("heartbeat")
	evict     = verb("evict")
)

// TokenCall asks for the last token of a queue, which a join has to name.
func TokenCall(q keys.Queue) redisconn.Call {
	return redisconn.Command("HGET", q.State(), "token")
}

// ReadToken reads the answer to a TokenCall: 0 if the queue never had one, and −1 if the key has the wrong type or the
// token is no number. A join then reports that.
func ReadToken(reply redisconn.Reply) (int64, error) {
	text, err := redis.String(reply.Value, reply.Err)
	switch token, bad := strconv.ParseInt(text, 10, 64); {
	case errors.Is(err, redis.ErrNil):
		return 0, nil
	case err != nil && !IsWrongType(err):
		return 0, err
	case bad != nil:
		return -1, nil
	default:
		return token, nil
	}
}

// A Joined is the answer to a join.
type Joined int64

// The answers to a join: the worker is a member; somebody has left since the token was read, so read
// it again, and repeat the join; tasks of this worker are still being returned, so repeat it later.
const (
	IsMember  Joined = 1
	JoinLate  Joined = 0
	JoinWaits Joined = -1
)

// JoinCall returns the call that makes the worker a member for the lease (0: forever). asked is the
// token that the queue had before; round is the next of the worker's numbers on this queue, and the
// membership's rounds begin after it.
func JoinCall(s *Shared, worker string, lease time.Duration, asked, round int64) redisconn.Call {
	return join.call(s, worker, lease.Milliseconds(), asked, round)
}

// ReadJoin reads the answer to a JoinCall.
func ReadJoin(reply redisconn.Reply) (Joined, error) {
	in := read(reply.Value, reply.Err)
	return Joined(in.int()), in.err
}

// LeaveCall returns the call that ends a membership, and returns tasks. round is the worker's last
// one. A worker that is no member has left, or was evicted: then the call only makes sure that no
// copy of its join has an effect anymore.
func LeaveCall(s *Shared, worker string, round int64) redisconn.Call {
	return leave.call(s, worker, round)
}

// ReadLeave reads the answer to a LeaveCall: how many tasks were returned, of this worker or of
// others, and whether to repeat it.
func ReadLeave(reply redisconn.Reply) (returned int, more bool, err error) {
	in := read(reply.Value, reply.Err)
	return int(in.int()), in.int() == 1, in.err
}

// Leave makes a LeaveCall, and repeats it until all tasks of the worker are returned, also if a reply is lost. It
// answers how many were, of this worker or of others that leave.
func Leave(ctx context.Context, r Runner, q *Shared, worker string, round int64) (returned int, err error) {
	for more, lost := true, false; more; {
		var n int
		n, more, err = ReadLeave(reply(r.One(ctx, LeaveCall(q, worker, round))))
		if returned += n; err == nil {
			continue
		}
		if lost || !errors.Is(err, ErrUnknown) {
			return returned, err
		}
		more, lost = true, true
	}
	return returned, nil
}

// A Pulse is the answer to a heartbeat.
type Pulse struct {
	Deadline   int64    // when the lease would have expired, in ms of Redis time
	Now        int64    // ms of Redis time
	Held       int      // attempts of the worker
	More       int      // how many tasks can start now; or InPause or InReturn
	Rank       int      // place among the idle workers; -1 when not among them
	Idle       int      // how many workers are idle, if this one holds something
	Stops      []string // attempts that must stop
	Evict      bool     // call evict
	Unasserted bool     // there are schedules that no peer asserts anymore
	Unrecorded bool     // tasks were enqueued since the history was written
}

// HeartbeatCall returns the call of one heartbeat; several can be sent together. judge says that the
// worker may evict others.
func HeartbeatCall(s *Shared, worker string, lease time.Duration, judge bool) redisconn.Call {
	return heartbeat.call(s, worker, lease.Milliseconds(), flag(judge))
}

// ReadHeartbeat reads the answer to a HeartbeatCall. It fails with ErrNoMember when the worker isn't a
// member of the queue.
func ReadHeartbeat(reply redisconn.Reply) (*Pulse, error) {
	in := read(reply.Value, reply.Err)
	p := &Pulse{
		Deadline: in.int(), Now: in.int(), Held: int(in.int()), More: int(in.int()), Rank: int(in.int()), Idle: int(in.int()),
	}
	p.Stops = in.strings()
	asks := in.int()
	p.Evict, p.Unasserted, p.Unrecorded = asks&1 != 0, asks&2 != 0, asks&4 != 0
	return p, in.err
}

// A Dead is a worker that was evicted.
type Dead struct {
	Worker string
	Tasks  int // how many it held; they return to the queue
}

// A Look is the result of looking for workers whose lease has expired.
type Look struct {
	Evicted  []Dead
	Returned int           // tasks returned to the front
	Wait     time.Duration // until the next look; 0: there is more to do immediately; negative: the caller may not judge
}

// Evict evicts a worker, whether its lease has expired or not; or, if the worker is "", looks for
// those whose lease has expired. It makes one call, so repeat it while Wait is 0. judge is Redis's
// time in ms until which the caller may evict others, since a copy that arrives late doesn't know
// what has happened since; 0 means never.
func Evict(ctx context.Context, r Runner, q keys.Queue, worker string, judge int64, grace time.Duration) (l Look, err error) {
	return ReadEvict(reply(r.One(ctx, EvictCall(SharedOf(q), worker, judge, grace))))
}

// EvictAll calls Evict until there's nothing more to do at present. It answers what all calls did.
func EvictAll(ctx context.Context, r Runner, q keys.Queue, worker string, judge int64, grace time.Duration) (all Look, err error) {
	for ; ; worker = "" {
		l, err := Evict(ctx, r, q, worker, judge, grace)
		all.Evicted, all.Returned, all.Wait = append(all.Evicted, l.Evicted...), all.Returned+l.Returned, l.Wait
		if err != nil || l.Wait != 0 {
			return all, err
		}
	}
}

// EvictCall returns the call of Evict.
func EvictCall(s *Shared, worker string, judge int64, grace time.Duration) redisconn.Call {
	return evict.call(s, worker, judge, grace.Milliseconds())
}

// ReadEvict reads the answer to an EvictCall.
func ReadEvict(reply redisconn.Reply) (l Look, err error) {
	in := read(reply.Value, reply.Err)
	in.lists(func(in *decoder) { l.Evicted = append(l.Evicted, Dead{in.string(), int(in.int())}) })
	l.Returned, l.Wait = int(in.int()), time.Duration(in.int())*time.Millisecond
	return l, in.err
}

func reply(value any, err error) redisconn.Reply { return redisconn.Reply{Value: value, Err: err} }

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
