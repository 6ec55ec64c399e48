package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// keyMark begins the entry of a key, and uniqueMark that of a unique task, with the digest of its payload. Other
// entries belong to keyless tasks that wait for a retry.
const (
	keyMark    = "k:"
	uniqueMark = "u:"
)

// UniqueEntry returns the entry of a unique task.
func UniqueEntry(payload []byte) string {
	sum := sha1.Sum(payload)
	return uniqueMark + hex.EncodeToString(sum[:])
}

// EntryOf returns the entry of a key.
func EntryOf(key string) string { return keyMark + key }

// KeyOf returns the key of an entry; "" if it has none.
func KeyOf(entry string) string {
	key, ok := strings.CutPrefix(entry, keyMark)
	if !ok {
		return ""
	}
	return key
}

// A ScheduledTask waits in the schedule.
type ScheduledTask struct {
	Key     string // "" if it has none
	Payload []byte
	Due     int64 // ms of Redis time; the time of the listing if it went back to the front
	Retries int
	Crashes int
	Card    string // "" without properties
	Error   string // of the last attempt
}

// Scheduled yields the tasks in the schedule that aren't blocked, earliest first.
func Scheduled(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[ScheduledTask, error] {
	return rows(ctx, func() pager[ScheduledTask] {
		return atNow(r, q, func(now int64) pager[ScheduledTask] { return scheduled(r, q, now, math.Inf(-1), math.Inf(1)) })
	})
}

// Tasks yields the waiting payloads, front first: due tasks of the schedule, the list
// and added tasks, which take turns, then tasks that aren't due yet.
func Tasks(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[[]byte, error] {
	return rows(ctx, func() pager[[]byte] {
		return atNow(r, q, func(now int64) pager[[]byte] {
			return chain(ready(r, q, now), payloadsOf(scheduled(r, q, now, float64(now), math.Inf(1)), scheduledPayload))
		})
	})
}

// ready reads the payloads of tasks that could start now, front first.
func ready(r Runner, q keys.Queue, now int64) pager[[]byte] {
	return chain(payloadsOf(scheduled(r, q, now, math.Inf(-1), float64(now)), scheduledPayload), byIndex(r, q.Waiting()), payloadsOf(added(r, q), addedPayload))
}

// atNow begins a pager with the time of the queue's Redis, which it reads first.
func atNow[T any](r Runner, q keys.Queue, begin func(now int64) pager[T]) pager[T] {
	var next pager[T]
	return func(ctx context.Context) ([]T, error) {
		if next == nil {
			now, err := NowAt(ctx, r, q)
			if err != nil {
				return nil, err
			}
			next = begin(now)
		}
		return next(ctx)
	}
}

func payloadsOf[T any](of pager[T], payload func(T) []byte) pager[[]byte] {
	return each(of, func(_ context.Context, some []T) ([][]byte, error) {
		all := make([][]byte, len(some))
		for i, t := range some {
			all[i] = payload(t)
		}
		return all, nil
	})
}

func scheduledPayload(t ScheduledTask) []byte { return t.Payload }

// lastName sorts after the name of every entry, which begins with a letter.
const lastName = "\xff"

// scheduled reads the tasks with scores above after, up to and including until.
func scheduled(r Runner, q keys.Queue, now int64, after, until float64) pager[ScheduledTask] {
	from := &ranking{by: r, key: q.Schedule()}
	if !math.IsInf(after, -1) {
		from.last = &ranked{name: lastName, score: after}
	}
	entries := sized(r, upTo(from.page, until), func(e ranked) string { return q.Keyed(e.name) })
	return each(entries, func(ctx context.Context, some []ranked) (tasks []ScheduledTask, err error) {
		read := func(e ranked) redisconn.Call {
			return redisconn.Command("HMGET", q.Keyed(e.name), "payload", "retries", "crashes", "card", "error")
		}
		for i, reply := range doEach(ctx, r, some, read) {
			fields, err := redis.ByteSlices(reply.Value, reply.Err)
			if err == nil && len(fields) != 5 {
				err = errReply
			}
			if err != nil {
				return tasks, err
			}
			if fields[0] == nil {
				continue // taken in the meantime
			}
			t := ScheduledTask{Key: KeyOf(some[i].name), Payload: fields[0], Due: Due(int64(some[i].score), now), Card: string(fields[3]), Error: string(fields[4])}
			t.Retries, t.Crashes = countIn(string(fields[1])), countIn(string(fields[2]))
			tasks = append(tasks, t)
		}
		return tasks, nil
	})
}

// upTo ends after the last member with at most this score.
func upTo(of pager[ranked], most float64) pager[ranked] {
	over := false
	return func(ctx context.Context) ([]ranked, error) {
		if over {
			return nil, nil
		}
		some, err := of(ctx)
		if i := slices.IndexFunc(some, func(e ranked) bool { return e.score > most }); i >= 0 {
			some, over = some[:i], true
		}
		return some, err
	}
}

// ancient is a time, in ms. A lower score isn't a time, but the place of a task that was returned to
// the front: the token of its start.
const ancient = 1_000_000_000_000

// Due returns when an entry with that score starts. An entry at the front starts now.
func Due(score, now int64) int64 {
	if score < ancient {
		return now
	}
	return score
}

// A RunningTask is held by a worker.
type RunningTask struct {
	Attempt string
	Worker  string
	Payload []byte
	Key     string // "" for a task from the list
	Token   int64
	Card    string // "" without properties
	Error   string // of the previous attempt
	Retries int
	Crashes int   // of a task with a key
	Due     int64 // ms of Redis time when it was added, or that of an occurrence; 0: unknown

	entry string // of the schedule
}

// Running yields the tasks that workers hold, worker by worker, oldest first.
func Running(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[RunningTask, error] {
	return rows(ctx, func() pager[RunningTask] {
		return within(holders(r, q), func(worker string) pager[RunningTask] { return held(r, q, worker) })
	})
}

// holders reads the workers that may hold tasks: members, and workers whose tasks are being
// returned. Beats change their order all the time, so they are not read by rank.
func holders(r Runner, q keys.Queue) pager[string] {
	found := sieve{}
	return filter(names(chain(scan(r, "ZSCAN", q.Workers()), scan(r, "ZSCAN", q.Suspects()))), found.passes)
}

// held reads what a worker holds; tasks that end meanwhile are left out.
func held(r Runner, q keys.Queue, worker string) pager[RunningTask] {
	var pace pacer
	from := &ranking{by: r, key: q.Working(worker)}
	return each(split(from.page, pace.next), func(ctx context.Context, some []ranked) (tasks []RunningTask, err error) {
		calls := make([]redisconn.Call, 0, 2*len(some))
		for _, p := range some {
			calls = append(calls, redisconn.Command("LINDEX", q.Process(p.name), 0), redisconn.Command("HGET", q.Entries(), p.name))
		}
		replies := r.Do(ctx, calls...)
		for i, p := range some {
			payload, err := redis.Bytes(replies[2*i].Value, replies[2*i].Err)
			if errors.Is(err, redis.ErrNil) {
				continue
			}
			entry, noEntry := redis.String(replies[2*i+1].Value, replies[2*i+1].Err)
			if err == nil && noEntry != nil && !errors.Is(noEntry, redis.ErrNil) {
				err = noEntry
			}
			if err != nil {
				return tasks, err
			}
			pace.saw(len(payload))
			t := RunningTask{Attempt: p.name, Worker: worker, Payload: payload, Token: int64(p.score)}
			if key, card, ok := keys.SplitAdded(entry); ok {
				t.Key, t.Card = key, card
				if at, ok := keys.AddedAt(key); ok {
					t.Due = at.UnixMilli()
				}
			} else {
				t.Key, t.entry = KeyOf(entry), entry
			}
			tasks = append(tasks, t)
		}
		return tasks, withCards(ctx, r, q, tasks)
	})
}

// withCards reads the cards of running tasks that come from the schedule.
func withCards(ctx context.Context, r Runner, q keys.Queue, tasks []RunningTask) error {
	var calls []redisconn.Call
	var of []*RunningTask
	for i := range tasks {
		if t := &tasks[i]; t.entry != "" {
			calls, of = append(calls, redisconn.Command("HMGET", q.Keyed(t.entry), "process", "held", "error", "tried", "died", "took")), append(of, t)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	for i, reply := range r.Do(ctx, calls...) {
		fields, err := redis.ByteSlices(reply.Value, reply.Err)
		if err == nil && len(fields) != 6 {
			err = errReply
		}
		if err != nil {
			return err
		}
		if t := of[i]; string(fields[0]) == t.Attempt { // otherwise it has ended
			t.Card, t.Error = string(fields[1]), string(fields[2])
			t.Retries, t.Crashes, t.Due = countIn(string(fields[3])), countIn(string(fields[4])), numberIn(string(fields[5])) // 0 if another program wrote something else
		}
	}
	return nil
}

// Held returns what a worker holds, according to Redis: process → token. It misses nothing that the
// worker holds during the whole call: tokens only rise, so nothing moves from page to page.
func Held(ctx context.Context, r Runner, q keys.Queue, worker string) (map[string]int64, error) {
	const most = 10_000 // far below the limit of a reply
	all := map[string]int64{}
	for from, known := int64(0), -1; len(all) > known; {
		some, err := redis.Int64Map(r.One(ctx, redisconn.Command("ZRANGEBYSCORE", q.Working(worker), from, "+inf", "WITHSCORES", "LIMIT", 0, most)))
		if err != nil {
			return nil, err
		}
		known = len(all)
		for id, token := range some {
			all[id] = token
			from = max(from, token)
		}
	}
	return all, nil
}
