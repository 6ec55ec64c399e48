package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The verbs on the keys of the fleet.
var (
	register = verb("register")
	agree    = verb("agree")
	list     = verb("list")
)

// fleetCall returns the call of a verb on a key of the fleet. None of them publishes, so they have no variant.
func (v *Verb) fleetCall(s keys.Space, key string, args ...any) redisconn.Call {
	return v.script.Call([]string{key, keys.NoneBeside(s, key)}, args...)
}

// List adds names of queues to the registry.
func List(ctx context.Context, r Runner, s keys.Space, queues ...string) error {
	return failure(doEach(ctx, r, queues, func(q string) redisconn.Call { return list.fleetCall(s, s.Registry(), q) }))
}

// use returns the keys of which one exists while a queue has tasks, workers or recurring tasks.
func use(q keys.Queue) []string {
	return []string{q.Waiting(), q.Tasks(), q.Workers(), q.Leaving(), q.Recurring()}
}

// InUse reports whether one of some queues has tasks, workers or recurring tasks, or is paused. It asks
// for key after key, so that it's answered even if the queue's slot is moving.
func InUse(ctx context.Context, r Runner, queues ...keys.Queue) (bool, error) {
	var calls []redisconn.Call
	for _, q := range queues {
		for _, key := range use(q) {
			calls = append(calls, redisconn.Command("EXISTS", key))
		}
		calls = append(calls, redisconn.Command("HEXISTS", q.State(), "paused"))
	}
	n, err := sum(ctx, r, calls...)
	return n > 0, err
}

// Unlist removes a queue's name from the registry, unless one of its tasks waits, runs or has
// failed, a worker serves it, it has recurring tasks, or it is paused. It may be repeated. It checks again
// afterwards, and lists a queue that came into use meanwhile. If it dies before that, the next
// worker or producer of the queue lists it.
func Unlist(ctx context.Context, r Runner, s keys.Space, q keys.Queue, name string) error {
	if used, err := InUse(ctx, r, q, q.Failed()); err != nil || used {
		return err
	}
	removed, err := redis.Int(r.One(ctx, redisconn.Command("SREM", s.Registry(), name)))
	if err == nil && removed == 0 || err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	used, again := InUse(ctx, r, q, q.Failed())
	if again != nil || used {
		again = errors.Join(again, List(ctx, r, s, name))
	}
	return cmp.Or(err, again)
}

// A Worker is the registration of a peer.
type Worker = inspect.Worker

// health is what a peer says about itself in its registration: times in ms.
type health struct {
	Clock  int64    `json:"clock,omitempty"`
	Queues []string `json:"queues,omitempty"` // with stuck handlers
	Since  int64    `json:"since,omitempty"`
	Slots  int      `json:"slots,omitempty"`
}

// TTL returns how long a registration lasts after the last heartbeat, for a lease; 0 is forever.
func TTL(lease time.Duration) time.Duration {
	if lease < 0 {
		return 0
	}
	return max(2*lease, time.Second)
}

// Register writes the registration and lists the worker. A ttl of 0 is forever.
func Register(ctx context.Context, r Runner, s keys.Space, ttl time.Duration, w Worker) error {
	queues, _ := json.Marshal(w.Queues) // strings always marshal
	state, _ := json.Marshal(health{w.ClockAhead.Milliseconds(), w.StuckQueues, max(w.StuckSince.UnixMilli(), 0), w.Slots})
	return failure(r.Do(ctx,
		register.fleetCall(s, s.Worker(w.ID), ttl.Milliseconds(), "name", w.Name, "host", w.Host, "pid", w.PID,
			"started", w.StartedAt.UnixMilli(), "version", w.Version, "queues", string(queues), "lease", w.Lease.Milliseconds(),
			"stuck", w.StuckHandlers, "protocol", w.Protocol, "health", string(state)),
		list.fleetCall(s, s.Workers(), w.ID)))
}

// Delist removes workers from the list of peers if their registration has expired. It checks again
// afterwards, and lists workers that came back meanwhile. A live worker does that itself, too.
func Delist(ctx context.Context, r Runner, s keys.Space, workers []string) error {
	some, err := existing(ctx, r, workers, s.Worker, false)
	if err != nil || len(some) == 0 {
		return err
	}
	_, err = r.One(ctx, redisconn.Command("SREM", redis.Args{s.Workers()}.AddFlat(some)...))
	if err != nil && !errors.Is(err, ErrUnknown) {
		return err
	}
	gone, again := existing(ctx, r, some, s.Worker, false)
	for _, w := range some {
		if again != nil || !slices.Contains(gone, w) {
			again = errors.Join(again, failure(r.Do(ctx, list.fleetCall(s, s.Workers(), w))))
		}
	}
	return cmp.Or(err, again)
}

// existing returns those whose key exists, or, if want is false, those whose key doesn't.
func existing(ctx context.Context, r Runner, all []string, key func(string) string, want bool) (some []string, err error) {
	exists := func(one string) redisconn.Call { return redisconn.Command("EXISTS", key(one)) }
	for i, reply := range doEach(ctx, r, all, exists) {
		there, err := redis.Bool(reply.Value, reply.Err)
		if err != nil {
			return nil, err
		}
		if there == want {
			some = append(some, all[i])
		}
	}
	return some, nil
}

// registered lists the fields of a registration.
var registered = []string{"name", "host", "pid", "started", "version", "queues", "lease", "stuck", "protocol", "health"}

// Workers yields the registered peers. If nodes of a cluster are down, it leaves out the peers
// registered there, and ends with an error.
func Workers(ctx context.Context, r Runner, s keys.Space) iter.Seq2[Worker, error] {
	return rows(func(yield func([]Worker, error) bool) {
		ids := filter(members(ctx, r, "SSCAN", s.Workers()), keys.IsWorker)
		away := NewAbsence(r)
		read := each(ids, func(some []string) ([]Worker, error) {
			some = slices.DeleteFunc(slices.Clone(some), func(id string) bool { return away.has(s.Worker(id)) })
			groups, workers := away.groups(some, s.Worker), []Worker{}
			for _, home := range slices.Sorted(maps.Keys(groups)) { // one request for each node
				of, err := Registrations(ctx, r, s, groups[home])
				if err != nil && (!s.Scattered() || ctx.Err() != nil || !IsAway(err)) {
					return workers, err
				}
				away.note(home, err)
				workers = append(workers, of...)
			}
			return workers, nil
		})
		chain(read, func(yield func([]Worker, error) bool) { yield(nil, away.err) })(yield)
	})
}

// Registrations reads the registrations of some workers: first their sizes, then those of at most 1 MiB. Any user who
// may write under the prefix can write more.
func Registrations(ctx context.Context, r Runner, s keys.Space, ids []string) (workers []Worker, err error) {
	var calls []redisconn.Call
	for _, id := range ids {
		for _, field := range registered {
			calls = append(calls, redisconn.Command("HSTRLEN", s.Worker(id), field))
		}
	}
	sizes, some := r.Do(ctx, calls...), []string{}
	for i, id := range ids {
		size := 0
		for _, reply := range sizes[i*len(registered) : (i+1)*len(registered)] {
			n, err := redis.Int(reply.Value, reply.Err)
			if err != nil && !IsWrongType(err) {
				return nil, err
			}
			size += n
		}
		if size > 0 && size <= listBytes {
			some = append(some, id)
		}
	}
	calls = nil
	for _, id := range some {
		calls = append(calls, redisconn.Command("HMGET", redis.Args{s.Worker(id)}.AddFlat(registered)...), redisconn.Command("PTTL", s.Worker(id)))
	}
	now, replies := time.Now().Round(0), r.Do(ctx, calls...)
	for i := range some {
		reply := replies[2*i]
		values, err := redis.Strings(reply.Value, reply.Err)
		switch {
		case IsWrongType(err):
			continue // another program's
		case err != nil:
			return nil, err
		case len(values) != len(registered):
			return nil, errReply
		case strings.Join(values, "") != "": // it exists
			w := registration(some[i], values)
			if left, err := redis.Int64(replies[2*i+1].Value, replies[2*i+1].Err); err == nil && left > 0 {
				if at := now.Add(time.Duration(min(left, longestTimeout))*time.Millisecond - TTL(w.Lease)); !at.After(now) {
					w.LastHeartbeat = at
				}
			}
			workers = append(workers, w)
		}
	}
	return workers, nil
}

// registration decodes one registration. Malformed values are shown as far as possible.
func registration(id string, values []string) Worker {
	w := Worker{ID: id, Name: values[0], Host: values[1], Version: values[4]}
	w.PID = countIn(values[2])
	w.StartedAt = Moment(numberIn(values[3]))
	_ = json.Unmarshal([]byte(values[5]), &w.Queues)
	w.Lease = time.Duration(min(max(numberIn(values[6]), 0), longestTimeout)) * time.Millisecond
	w.StuckHandlers, w.Protocol = countIn(values[7]), countIn(values[8])
	var h health
	_ = json.Unmarshal([]byte(values[9]), &h)
	w.Slots = max(h.Slots, 0)
	w.StuckQueues, w.StuckSince, w.ClockAhead = h.Queues, Moment(h.Since), time.Duration(min(max(h.Clock, -longestTimeout), longestTimeout))*time.Millisecond
	return w
}

// Queues yields the names of queues in the registry, in no particular order.
func Queues(ctx context.Context, r Runner, s keys.Space) iter.Seq2[string, error] {
	return rows(filter(members(ctx, r, "SSCAN", s.Registry()), func(name string) bool { return keys.CheckName(name) == nil }))
}

// Unregister removes registrations. It may be repeated, and repeats itself once if
// the reply was lost.
func Unregister(ctx context.Context, r Runner, s keys.Space, ids ...string) error {
	calls := make([]redisconn.Call, 0, 2*len(ids))
	for _, id := range ids {
		calls = append(calls, redisconn.Command("DEL", s.Worker(id)), redisconn.Command("SREM", s.Workers(), id))
	}
	return Twice(func() error { return failure(r.Do(ctx, calls...)) })
}

// Prune removes peers whose registration has expired from the list. A live peer adds itself again
// with its next heartbeat.
func Prune(ctx context.Context, r Runner, s keys.Space) error {
	for some, err := range members(ctx, r, "SSCAN", s.Workers()) {
		if err == nil {
			err = Delist(ctx, r, s, some)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PruneSome is Prune for a few random peers, so that its cost doesn't grow with the fleet.
func PruneSome(ctx context.Context, r Runner, s keys.Space) error {
	some, err := redis.Strings(r.One(ctx, redisconn.Command("SRANDMEMBER", s.Workers(), perPage)))
	if err != nil {
		return err
	}
	return Delist(ctx, r, s, some)
}

// Unknown reports whether the queue has neither keys nor a name in the
// registry, as far as the user may read that.
func Unknown(ctx context.Context, r Runner, s keys.Space, q keys.Queue, name string) (bool, error) {
	n, err := redis.Int(r.One(ctx, redisconn.Command("EXISTS", redis.Args{q.State()}.AddFlat(use(q)).AddFlat(use(q.Failed()))...)))
	if err != nil || n > 0 {
		return false, err
	}
	for listed, err := range Queues(ctx, r, s) {
		if redisconn.Denied(err) {
			return false, nil // the queue may be known
		}
		if err != nil || listed == name {
			return false, err
		}
	}
	return true, nil
}

// A Protocol is the version that a peer or a fleet speaks.
type Protocol struct {
	Newest int // the version that it speaks
	Oldest int // the oldest version that other peers may speak
}

// Ours is this library's protocol. Newest rises when scripts or keys change in a way that older
// peers can notice. Oldest follows in a later release, so that the release in between works with
// both. 2 was made anew, and works with none before it: 1, and 0, from before versions were numbered.
var Ours = Protocol{Newest: 2, Oldest: 2}

// ErrProtocol says that a peer can't work with the running peers.
var ErrProtocol = errors.New("the peers of this fleet speak another protocol")

// Beside returns why a peer can't work in a fleet with this protocol; nil if it can.
func (p Protocol) Beside(fleet Protocol) error {
	switch {
	case p.Newest < fleet.Oldest:
		return fmt.Errorf("%w: they speak protocol %d and need every peer to speak %d or later, but this program speaks %d; upgrade this program",
			ErrProtocol, fleet.Newest, fleet.Oldest, p.Newest)
	case fleet.Newest < p.Oldest:
		return fmt.Errorf("%w: they speak protocol %d, and this program works with %d or later; see \"To upgrade\" in the changelog",
			ErrProtocol, fleet.Newest, p.Oldest)
	}
	return nil
}

// Agree raises the protocol of the fleet to that of a peer. It fails with ErrProtocol if the peer
// can't work beside current or earlier peers. It may be repeated.
//
// If the peer would be the first that can't work beside older ones, it looks for them on the roster
// before it raises the protocol. So a peer that was started by mistake doesn't stop an old fleet.
func Agree(ctx context.Context, r Runner, s keys.Space, ours Protocol) error {
	spoken, known, err := Spoken(ctx, r, s)
	switch {
	case err != nil:
		return err
	case known && ours.Beside(spoken) != nil:
		return ours.Beside(spoken)
	case known && ours.Newest <= spoken.Newest && ours.Oldest <= spoken.Oldest:
		return nil
	case ours.Oldest > spoken.Oldest:
		for w, err := range Workers(ctx, r, s) {
			if err != nil {
				return err
			}
			if err := ours.Beside(Protocol{Newest: w.Protocol}); err != nil {
				return fmt.Errorf("worker %s (%.*q): %w", w.ID, MaxName, w.Name, err)
			}
		}
	}
	text, err := redis.String(r.One(ctx, agree.fleetCall(s, s.Protocol(), ours.Newest, ours.Oldest)))
	if err != nil {
		return err
	}
	spoken, _ = parseProtocol(text)
	return ours.Beside(spoken)
}

// Spoken reads the fleet's protocol, if it's known.
func Spoken(ctx context.Context, r Runner, s keys.Space) (p Protocol, known bool, err error) {
	text, err := redis.String(r.One(ctx, redisconn.Command("GETRANGE", s.Protocol(), 0, longestProtocol)))
	p, known = parseProtocol(text)
	return p, known, err
}

const longestProtocol = len("1234:1234") // bytes; GETRANGE brings one more, which is too long

func parseProtocol(text string) (p Protocol, ok bool) {
	newest, oldest, ok := strings.Cut(text, ":")
	if !ok || len(text) > longestProtocol {
		return Protocol{}, false
	}
	var errs [2]error
	p.Newest, errs[0] = strconv.Atoi(newest)
	p.Oldest, errs[1] = strconv.Atoi(oldest)
	if errs[0] != nil || errs[1] != nil || p.Newest < 0 || p.Oldest < 0 {
		return Protocol{}, false
	}
	return p, true
}
