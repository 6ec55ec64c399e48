package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Aliases for packages that examine keys.
type (
	Space = keys.Space // the keys of a fleet
	Keys  = keys.Queue // the keys of a queue
	Key   = keys.Key   // one key, parsed
)

// SpaceOf returns the keys with a prefix.
func SpaceOf(prefix string) Space { return keys.NewSpace(prefix) }

// SpaceAt returns the keys with a prefix on the given servers.
func SpaceAt(place *Servers, prefix string) Space {
	if place.IsCluster() {
		return SpaceOf(prefix).InCluster()
	}
	return SpaceOf(prefix)
}

// DefaultPrefix is the prefix of a fleet that hasn't chosen one.
const DefaultPrefix = keys.DefaultPrefix

// pages yields page by page, and ends at the first error.
func pages[T any](ctx context.Context, next pager[T]) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		for {
			some, err := next(ctx)
			if (err != nil || len(some) > 0) && !yield(some, err) || err != nil || len(some) == 0 {
				return
			}
		}
	}
}

// untyped ends the listing if the key has another type.
func untyped[T any](of pager[T]) pager[T] {
	return func(ctx context.Context) ([]T, error) {
		some, err := of(ctx)
		if IsWrongType(err) {
			return nil, nil
		}
		return some, err
	}
}

// Alone fails if the server is a node of a cluster, which has only some of the keys.
func Alone(ctx context.Context, r Runner, s Space) error {
	_, err := r.One(ctx, redisconn.Command("EXISTS", s.Registry(), s.Workers(), s.Protocol()))
	return err
}

// A Found is a key under the prefix.
type Found struct {
	Name string
	Key  Key  // what it is, by its name
	Ours bool // its name is the name of one of our keys
	Is   string
}

// Keyspace yields the keys of a server under the prefix, page by page, without those of a fleet with
// a longer prefix. It asks r for their types, since keys may move to another node meanwhile.
func Keyspace(ctx context.Context, at, r Runner, s Space) iter.Seq2[[]Found, error] {
	all := byCursor(at, 1, func(cursor string) redisconn.Call {
		return redisconn.Command("SCAN", cursor, "MATCH", s.Keys(), "COUNT", 10*perPage)
	})
	return pages(ctx, each(all, func(ctx context.Context, some []item) (found []Found, err error) {
		var types []redisconn.Call
		var typed []int
		for _, one := range some {
			f := Found{Name: one.name}
			if f.Key, f.Ours = s.Parse(one.name); f.Ours {
				types, typed = append(types, redisconn.Command("TYPE", one.name)), append(typed, len(found))
			} else if s.Others(one.name) {
				continue
			}
			found = append(found, f)
		}
		for i, reply := range r.Do(ctx, types...) {
			if found[typed[i]].Is, err = redis.String(reply.Value, reply.Err); err != nil {
				return nil, err
			}
		}
		return slices.DeleteFunc(found, func(f Found) bool { return f.Is == "none" }), nil
	}))
}

// Names yields the names that a check examines, page by page and each once, and none if the key has another type.
func Names(ctx context.Context, r Runner, q Keys, what What) iter.Seq2[[]string, error] {
	if what == CheckAdded {
		return pages(ctx, untyped(doubtful(r, q)))
	}
	command, key := "HSCAN", q.Entries()
	if what != CheckRunning {
		command, key = "ZSCAN", map[What]string{
			CheckMembers: q.Workers(), CheckSuspects: q.Suspects(), CheckIdle: q.Idle(), CheckScheduled: q.Schedule(),
			CheckContents: q.Contents(), CheckCanceled: q.Canceled(), CheckHolding: q.Holders(), CheckRecurring: q.Recurring(),
		}[what]
	}
	return pages(ctx, filter(names(untyped(scan(r, command, key))), sieve{}.passes))
}

// Runs yields the processes that a worker holds, page by page.
func Runs(ctx context.Context, r Runner, q Keys, worker string) iter.Seq2[[]string, error] {
	return pages(ctx, names(untyped(scan(r, "ZSCAN", q.Working(worker)))))
}

// A Health holds counts that show whether a queue's tasks are being processed.
type Health struct {
	Now      int64 // ms of Redis time, when they were read
	Waiting  int   // on the list, and added tasks
	Due      int
	FirstDue int64 // ms; when the first due task was due; 0 if that isn't known
	Workers  int   // with an unexpired lease
	Idle     int
	Paused   bool
}

// ReadHealth reads the counts. A key of another type counts as empty.
func ReadHealth(ctx context.Context, r Runner, q Keys) (Health, error) {
	now, err := NowAt(ctx, r, q)
	if err != nil {
		return Health{}, err
	}
	replies := r.Do(ctx, redisconn.Command("LLEN", q.Waiting()), redisconn.Command("XLEN", q.Added()),
		redisconn.Command("ZCOUNT", q.Schedule(), "-inf", now), redisconn.Command("ZCOUNT", q.Workers(), now, "+inf"),
		redisconn.Command("ZCARD", q.Idle()), redisconn.Command("EXISTS", q.Paused()),
		overdueCall(q, strconv.FormatInt(now, 10)))
	n, err := numbers(replies[:6])
	if err != nil {
		return Health{}, err
	}
	return Health{now, int(n[0] + n[1]), int(n[2]), firstDue(replies[6]), int(n[3]), int(n[4]), n[5] > 0}, nil
}

// FailedSince counts the tasks that wait in these entries of a failed queue, and those that failed at a time or later.
// The scores of the entries don't tell: OnFailed may have had the tasks since.
func FailedSince(ctx context.Context, r Runner, failed Keys, entries []string, since int64) (all, recent int, err error) {
	read := func(e string) redisconn.Call { return redisconn.Command("HMGET", failed.Keyed(e), "due", "at") }
	for _, reply := range doEach(ctx, r, entries, read) {
		f, err := redis.Strings(reply.Value, reply.Err)
		switch {
		case IsWrongType(err):
			continue
		case err != nil:
			return all, recent, err
		case len(f) != 2:
			return all, recent, errReply
		case f[0] == "":
			continue // it runs, or is gone
		}
		all++
		if numberIn(f[1]) >= since {
			recent++
		}
	}
	return all, recent, nil
}

// ReadyKey returns a key that has tasks which could start.
func ReadyKey(ctx context.Context, r Runner, q Keys) (string, error) {
	now, err := NowAt(ctx, r, q)
	if err != nil {
		return "", err
	}
	n, err := asks(ctx, r, redisconn.Command("LLEN", q.Waiting()), redisconn.Command("XLEN", q.Added()),
		redisconn.Command("ZCOUNT", q.Schedule(), "-inf", now))
	if err != nil {
		return "", err
	}
	for i, key := range []string{q.Waiting(), q.Added(), q.Schedule()} {
		if n[i] > 0 {
			return key, nil
		}
	}
	return q.Waiting(), nil // they have started since
}

// asks makes plain calls that return numbers. It returns 0 for a key of another type, and 0 for all
// if it fails.
func asks(ctx context.Context, r Runner, calls ...redisconn.Call) ([]int64, error) {
	return numbers(r.Do(ctx, calls...))
}

func numbers(replies []redisconn.Reply) ([]int64, error) {
	all := make([]int64, len(replies))
	for i, reply := range replies {
		if reply.Err != nil && !IsWrongType(reply.Err) {
			return make([]int64, len(replies)), reply.Err
		}
		all[i], _ = redis.Int64(reply.Value, reply.Err) // 0 if it isn't a number
	}
	return all, nil
}

// Leases reads the leases of workers; 0 if unknown.
func Leases(ctx context.Context, r Runner, s Space, ids []string) ([]time.Duration, error) {
	lease := func(id string) redisconn.Call { return redisconn.Command("HGET", s.Worker(id), "lease") }
	leases := make([]time.Duration, len(ids))
	for i, reply := range doEach(ctx, r, ids, lease) {
		if reply.Err != nil && !IsRefusal(reply.Err) {
			return nil, reply.Err
		}
		ms, _ := redis.Int64(reply.Value, reply.Err)
		leases[i] = time.Duration(ms) * time.Millisecond
	}
	return leases, nil
}

// A Holder describes a worker that holds tasks of a queue.
type Holder struct {
	Name, Host string
	PID        int
	Member     bool
	Until      int64 // ms of Redis time; the lease of a member
	Suspect    bool
	Judged     int64 // ms of Redis time at which a suspect may be evicted; 0 or less: it was evicted
}

// ReadHolder reads a Holder, its membership first: an evicted member becomes a suspect.
func ReadHolder(ctx context.Context, r Runner, s Space, q Keys, worker string) (h Holder, err error) {
	replies := inOrder(ctx, r, q.Scattered(),
		[]redisconn.Call{redisconn.Command("HMGET", s.Worker(worker), "name", "host", "pid"), redisconn.Command("ZSCORE", q.Workers(), worker)},
		[]redisconn.Call{redisconn.Command("ZSCORE", q.Suspects(), worker)})
	for i, reply := range replies {
		if IsWrongType(reply.Err) {
			replies[i] = redisconn.Reply{}
		}
	}
	about, err := redis.Strings(replies[0].Value, replies[0].Err)
	if err != nil && !errors.Is(err, redis.ErrNil) {
		return h, err
	}
	if len(about) == 3 {
		h.Name, h.Host = about[0], about[1]
		h.PID = countIn(about[2]) // 0 if it isn't a number
	}
	var until, judged float64
	if until, h.Member, err = readScore(replies[1]); err != nil {
		return h, err
	}
	if judged, h.Suspect, err = readScore(replies[2]); err != nil {
		return h, err
	}
	h.Until, h.Judged = int64(until), int64(judged)
	return h, nil
}

// Setting reads one of Redis's settings; ok is false if it has none with that name.
func Setting(ctx context.Context, r Runner, name string) (value string, ok bool, err error) {
	pair, err := redis.Strings(r.One(ctx, redisconn.Command("CONFIG", "GET", name)))
	if err != nil || len(pair) != 2 {
		return "", false, err
	}
	return pair[1], true, nil
}
