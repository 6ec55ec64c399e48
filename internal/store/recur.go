package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Schedule is what a peer asserts under a key. Without Times, the peer only asserts that it has the
// schedule; the answer says whether Redis wants the times.
type Schedule struct {
	Entry   string
	Print   string // its instant, as of the last answer, and its digest: "<ms>:<hex>"; empty if there is none yet
	Since   int64  // since when it has been asserted, from an earlier answer; 0 if there is none, JustNow if it has just changed
	Late    int64  // ms after which an occurrence is skipped; 0 is never
	Times   []int64
	Payload []byte
	Card    []byte // empty: none
	Renewed string // with Times: its print after the time in the answer that wanted them
}

// JustNow stands for the time of the call, in Schedule.Since.
const JustNow = -1

// An Asserted is the answer about an asserted schedule.
type Asserted struct {
	Since int64
	After int64 // ms of Redis time after which times, or its print, are wanted
	State string
}

// The states of an asserted schedule.
const (
	ScheduleHeld    = "held"
	ScheduleCompare = "compare" // its print after another instant is wanted
	ScheduleWanted  = "wanted"  // its times and its payload are wanted
	ScheduleMore    = "more"    // the same, because its times are running out
	ScheduleOlder   = "older"   // a newer one is in force
	ScheduleDamaged = "damaged" // its keys are of another type
)

// Whenever is later than all times of Redis, in ms.
const Whenever = 1 << 52

// Recur asserts schedules for a period, in ms. If the time of Redis isn't past judge, it also ends
// schedules that no peer has asserted for their period. It returns their entries, a page of them,
// and the time of Redis.
func Recur(ctx context.Context, r Runner, q keys.Queue, period, judge int64, all []Schedule) (told []Asserted, ended []string, now int64, err error) {
	args := make([]any, 0, 8*len(all))
	for _, s := range all {
		var times []byte
		for i, at := range s.Times {
			if i > 0 {
				times = append(times, ' ')
			}
			times = strconv.AppendInt(times, at, 10)
		}
		args = append(args, s.Entry, s.Print, s.Since, s.Late, times, s.Payload, s.Card, s.Renewed)
	}
	a := recur.ask(ctx, r, q, "period", period, "judge", judge, "schedules", args)
	a.each("asserted", func(d *decoder) {
		one := d.list()
		told = append(told, Asserted{Since: one.int(), After: one.int(), State: one.string()})
		d.join(one)
	})
	a.each("ended", func(d *decoder) { ended = append(ended, d.string()) })
	if a.err == nil && len(told) != len(all) {
		a.err = errTooShort
	}
	return told, ended, a.int("now"), a.err
}

// EndRecurring ends the schedules of a queue that no peer asserts anymore, page by page.
func EndRecurring(ctx context.Context, r Runner, q keys.Queue) error {
	for {
		if _, ended, _, err := Recur(ctx, r, q, 0, Whenever, nil); err != nil || len(ended) == 0 {
			return err
		}
	}
}

// Occurrence returns the payload and the card of the occurrences of a schedule, if there is one under
// the entry.
func Occurrence(ctx context.Context, r Runner, q keys.Queue, entry string) (payload, card []byte, found bool, err error) {
	known, err := redis.ByteSlices(r.One(ctx, redisconn.Command("HMGET", q.Recurrence(entry), "print", "payload", "card")))
	if err == nil && len(known) != 3 {
		err = errReply
	}
	if err != nil || known[0] == nil {
		return nil, nil, false, err
	}
	return known[1], known[2], true, nil
}

// A RecurringTask is a schedule as Redis has it.
type RecurringTask struct {
	Key     string
	Next    int64 // time of the next occurrence, ms; 0 if none is planned
	Running int64 // time of the occurrence that runs, or waits for its retry; 0 if none
	Until   int64 // asserted until then
	Now     int64 // the time of the listing
	Outcome string
	Of      int64 // the time of the occurrence that had this outcome
	At      int64 // when that occurrence ended
}

// A damagedError says that some schedules can't be read. Its text has the hash of the first one's key.
type damagedError struct {
	count int
	first string
	err   error
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("recurring tasks can't be read: %d, the first under the key %s; the keys are of another type; run worqr check: %v", e.count, logs.Hash(e.first), e.err)
}
func (e *damagedError) Unwrap() error { return e.err }

// Recurring yields the schedules of a queue, in no particular order. If some are damaged, it yields
// an error after the others.
func Recurring(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[RecurringTask, error] {
	return rows(ctx, func() pager[RecurringTask] {
		return atNow(r, q, func(now int64) pager[RecurringTask] {
			entries := filter(names(scan(r, "ZSCAN", q.Recurring())), sieve{}.passes)
			var bad damagedError
			failed := func() error {
				if bad.count == 0 {
					return nil
				}
				return &bad
			}
			return ending(each(entries, func(ctx context.Context, some []string) (all []RecurringTask, err error) {
				calls := make([]redisconn.Call, 0, 3*len(some))
				for _, entry := range some {
					calls = append(calls, recurringCalls(q, entry)...)
				}
				replies := r.Do(ctx, calls...)
				for i, entry := range some {
					t, err := recurring(replies[3*i : 3*i+3])
					if errors.Is(err, redis.ErrNil) {
						continue // it has ended in the meantime
					}
					if IsWrongType(err) {
						if bad.count++; bad.count == 1 {
							bad.first, bad.err = KeyOf(entry), err
						}
						continue
					}
					if err != nil {
						return all, err
					}
					t.Key, t.Now = KeyOf(entry), now
					all = append(all, t)
				}
				return all, nil
			}), failed)
		})
	})
}

func recurringCalls(q keys.Queue, entry string) []redisconn.Call {
	return []redisconn.Call{
		redisconn.Command("ZSCORE", q.Recurring(), entry),
		redisconn.Command("HMGET", q.Recurrence(entry), "passed", "times", "last"),
		redisconn.Command("HMGET", q.Keyed(entry), "turn", "took"),
	}
}

// RecurringUnder returns the schedule of an entry, as of the Redis time now; nil if there is none, or
// if its keys have another type.
func RecurringUnder(ctx context.Context, r Runner, q keys.Queue, entry string, now int64) (*RecurringTask, error) {
	t, err := recurring(r.Do(ctx, recurringCalls(q, entry)...))
	if errors.Is(err, redis.ErrNil) || IsWrongType(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t.Key, t.Now = KeyOf(entry), now
	return &t, nil
}

func recurring(replies []redisconn.Reply) (t RecurringTask, err error) {
	until := readAs(replies[0], redis.Float64, &err)
	schedule, entry := readAs(replies[1], redis.Strings, &err), readAs(replies[2], redis.Strings, &err)
	switch {
	case err != nil:
		return t, err
	case len(schedule) != 3 || len(entry) != 2:
		return t, errReply
	}
	t.Until = int64(min(until, 1<<52))
	passed, turn, took := numberIn(schedule[0]), numberIn(entry[0]), numberIn(entry[1])
	switch {
	case took > 0:
		t.Running = took
	case turn > 0 && turn <= passed: // it waits for its retry
		t.Running = turn
	}
	if turn > passed {
		t.Next = turn
	}
	for word := range strings.FieldsSeq(schedule[1]) {
		if at := numberIn(word); t.Next == 0 && at > passed {
			t.Next = at
		}
	}
	last := strings.SplitN(schedule[2], ":", 3)
	if len(last) == 3 {
		t.Outcome, t.Of, t.At = wordIn(last[0]), numberIn(last[1]), numberIn(last[2])
	}
	return t, nil
}
