package store

import (
	"context"
	"iter"
	"slices"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// SpaceAt returns the keys with a prefix on the given servers.
func SpaceAt(place *Servers, prefix string) Space {
	if place.IsCluster() {
		return SpaceOf(prefix).InCluster()
	}
	return SpaceOf(prefix)
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
	return func(yield func([]Found, error) bool) {
		for cursor := "0"; ; {
			reply, err := redis.Values(at.One(ctx, redisconn.Command("SCAN", cursor, "MATCH", s.Keys(), "COUNT", 1000)))
			var names []string
			if err == nil {
				_, err = redis.Scan(reply, &cursor, &names)
			}
			var page []Found
			if err == nil {
				page, err = typed(ctx, r, s, names)
			}
			if !yield(page, err) || err != nil || cursor == "0" {
				return
			}
		}
	}
}

// typed reads the types of keys. Those of another fleet, and those that are gone, are left out.
func typed(ctx context.Context, r Runner, s Space, names []string) (page []Found, err error) {
	var calls []redisconn.Call
	var ours []int
	for _, name := range names {
		f := Found{Name: name}
		if f.Key, f.Ours = s.Parse(name); f.Ours {
			calls, ours = append(calls, redisconn.Command("TYPE", name)), append(ours, len(page))
		} else if s.Others(name) {
			continue
		}
		page = append(page, f)
	}
	for i, reply := range r.Do(ctx, calls...) {
		if page[ours[i]].Is, err = redis.String(reply.Value, reply.Err); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(page, func(f Found) bool { return f.Is == "none" }), nil
}

// HeldBy yields the attempts that a worker holds, page by page. Those that it holds during the whole
// listing come at least once.
func HeldBy(ctx context.Context, r Runner, q Keys, worker string) iter.Seq2[[]string, error] {
	return members(ctx, r, "ZSCAN", q.Working(worker))
}

// FirstDue returns when the first task that waits and could start was due, in ms; 0 if none does, or
// if it isn't known.
func FirstDue(ctx context.Context, r Runner, q Keys, now int64) (due int64, err error) {
	replies := r.Do(ctx, firstCall(q.Schedule()), firstCall(q.Ready()))
	first, ready := readFirst(replies[0], &err), readFirst(replies[1], &err)
	if len(first) > 0 && first[0].score <= float64(now) {
		due = whole(first[0].score)
	}
	if len(ready) > 0 && err == nil {
		var of []About
		of, _, err = aboutEach(ctx, r, q, []string{ready[0].name})
		if len(of) > 0 && of[0].Record.Due > 0 && (due == 0 || of[0].Record.Due < due) {
			due = of[0].Record.Due
		}
	}
	return due, err
}

// Setting reads one of Redis's settings; ok is false if it has none with that name.
func Setting(ctx context.Context, r Runner, name string) (value string, ok bool, err error) {
	pair, err := redis.Strings(r.One(ctx, redisconn.Command("CONFIG", "GET", name)))
	if err != nil || len(pair) != 2 {
		return "", false, err
	}
	return pair[1], true, nil
}

// Crashes counts the raw tasks that several workers died holding, and returns the most of one.
func Crashes(ctx context.Context, r Runner, q Keys, several int) (tasks, most int, err error) {
	for page, err := range members(ctx, r, "HSCAN", q.Crashes()) {
		if err != nil {
			return tasks, most, err
		}
		for _, reply := range doEach(ctx, r, page, func(digest string) redisconn.Call { return redisconn.Command("HGET", q.Crashes(), digest) }) {
			text, _ := redis.String(reply.Value, reply.Err)
			n := countIn(text)
			if most = max(most, n); n >= several {
				tasks++
			}
		}
	}
	return tasks, most, nil
}
