package store

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var recur = verb("recur")

// A Schedule is what a peer asserts under a name. Without Times, the peer only says which schedule it
// has; the answer says whether Redis wants the times.
type Schedule struct {
	Name   string
	Since  int64    // since when the peer has it, from an earlier answer; 0: unknown; JustNow: it has just changed
	Prints []string // "instant:digest", as PrintOf makes them. With Times, the last one is after the time in the answer
	Times  []int64  // ms, ascending
	Record []byte   // with Times: as Record.Append writes it, with Due 0. Expires is how late an occurrence may start, in ms; 0: however late
}

// JustNow stands for the time of the call, in Schedule.Since.
const JustNow = -1

// A Word is the answer to a Schedule.
type Word string

// The answers to a Schedule.
const (
	ScheduleHeld    Word = "held"    // it's in force
	ScheduleCompare Word = "compare" // its prints after some instants are wanted, too
	ScheduleWanted  Word = "wanted"  // its times and record are wanted
	ScheduleMore    Word = "more"    // the same, because its times are running out
	ScheduleOlder   Word = "older"   // another one is in force
)

// mostEnds is how many ends of a recurring task are kept.
const mostEnds = 5

// An Asserted is the answer about an asserted schedule.
type Asserted struct {
	Since int64
	Word  Word
	After []int64 // ms of Redis's time after which times or, if it's to compare, prints are wanted
}

// Whenever is later than all times of Redis, in ms.
const Whenever = 1 << 52

// Recur asserts schedules for a period, in ms. If the time of Redis isn't past judge, it also ends
// schedules that no peer has asserted for their period. It returns the names of those, a page of them,
// and the time of Redis.
func Recur(ctx context.Context, r Runner, q keys.Queue, period, judge int64, all []Schedule) (told []Asserted, ended []string, now int64, err error) {
	args := []any{period, judge}
	for _, s := range all {
		var times []byte
		for _, at := range s.Times {
			times = append(strconv.AppendInt(times, at, 10), ' ')
		}
		args = append(args, s.Name, s.Since, strings.Join(s.Prints, " "), bytes.TrimRight(times, " "), s.Record)
	}
	in := recur.ask(ctx, r, q, args...)
	in.lists(func(answers *decoder) {
		one := answers.list()
		a := Asserted{Since: one.int(), Word: Word(one.string())}
		for word := range strings.FieldsSeq(one.string()) {
			a.After = append(a.After, numberIn(word))
		}
		told = append(told, a)
		if answers.join(one); (a.Word == ScheduleWanted || a.Word == ScheduleMore) && len(a.After) != 1 {
			answers.join(&decoder{err: errMismatch})
		}
	})
	ended, now = in.strings(), in.int()
	if in.err == nil && len(told) != len(all) {
		in.err = errMismatch
	}
	return told, ended, now, in.err
}

// EndRecurring ends the schedules of a queue that no peer asserts anymore, page by page.
func EndRecurring(ctx context.Context, r Runner, q keys.Queue) error {
	for {
		if _, ended, _, err := Recur(ctx, r, q, 0, Whenever, nil); err != nil || len(ended) == 0 {
			return err
		}
	}
}

// Occurrence returns what the occurrences of a schedule are, if there is one under the name.
func Occurrence(ctx context.Context, r Runner, q keys.Queue, name string) (record Record, found bool, err error) {
	text, err := redis.Bytes(r.One(ctx, redisconn.Command("HGET", q.Recurrence(), name)))
	if errors.Is(err, redis.ErrNil) {
		return Record{}, false, nil
	}
	_, text, found = bytes.Cut(text, []byte("|"))
	record = ReadRecord(text, false)
	record.Expires = 0 // see Schedule.Record
	return record, found, err
}

// Recurring yields the schedules of a queue, in no particular order.
func Recurring(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[inspect.RecurringTask, error] {
	names := members(ctx, r, "ZSCAN", q.Recurring())
	size := func(name string) redisconn.Call { return redisconn.Command("HSTRLEN", q.Recurrence(), name) }
	return rows(each(sized(ctx, r, names, size), func(some []string) ([]inspect.RecurringTask, error) {
		now, err := NowAt(ctx, r, q)
		if err != nil {
			return nil, err
		}
		return recurringTasks(ctx, r, q, now, some)
	}))
}

// RecurringUnder returns the schedule of a name, as of the Redis time now; nil if there is none.
func RecurringUnder(ctx context.Context, r Runner, q keys.Queue, name string, now int64) (*inspect.RecurringTask, error) {
	all, err := recurringTasks(ctx, r, q, now, []string{name})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// recurringTasks returns the schedules of those names that have one.
func recurringTasks(ctx context.Context, r Runner, q keys.Queue, now int64, names []string) (all []inspect.RecurringTask, err error) {
	var calls []redisconn.Call
	for _, name := range names {
		calls = append(calls,
			redisconn.Command("ZSCORE", q.Recurring(), name),
			redisconn.Command("HMGET", q.Recurrence(), name, "passed:"+name, "last:"+name),
			redisconn.Command("HGET", q.Tasks(), name))
	}
	replies := r.Do(ctx, calls...)
	for i, name := range names {
		t, found, err := recurringTask(replies[3*i:3*i+3], now)
		if err != nil {
			return all, err
		}
		if found {
			t.Key = KeyOf(name)
			all = append(all, t)
		}
	}
	return all, nil
}

func recurringTask(replies []redisconn.Reply, now int64) (t inspect.RecurringTask, found bool, err error) {
	if replies[0].Err == nil && replies[0].Value == nil {
		return t, false, nil
	}
	until, fields := readAs(replies[0], redis.Float64, &err), readAs(replies[1], redis.Strings, &err)
	task, failed := redis.Bytes(replies[2].Value, replies[2].Err)
	switch {
	case err != nil:
		return t, false, err
	case failed != nil && !errors.Is(failed, redis.ErrNil):
		return t, false, failed
	case len(fields) != 3:
		return t, false, errMismatch
	}
	t.Asserted = until >= float64(now)
	passed := numberIn(fields[1])
	if r := ReadRecord(task, false); r.Occurrence && r.Due <= passed {
		t.Current = Moment(r.Due)
	} else if r.Occurrence {
		t.Next = Moment(r.Due)
	}
	times, record, _ := strings.Cut(fields[0], "|")
	t.Expression = ReadRecord([]byte(record), false).Metadata.Expression
	for word := range strings.FieldsSeq(times) {
		at := numberIn(word)
		if at <= passed {
			continue
		}
		if t.Next.IsZero() {
			t.Next = Moment(at)
		}
		if len(t.Times) < 10 {
			t.Times = append(t.Times, Moment(at))
		}
	}
	for word := range strings.FieldsSeq(fields[2]) {
		if end := strings.SplitN(word, ":", 3); len(end) == 3 && wordIn(end[0]) != "" && len(t.Ends) < mostEnds {
			t.Ends = append(t.Ends, inspect.RecurringEnd{Outcome: wordIn(end[0]), DueAt: Moment(numberIn(end[1])), At: Moment(numberIn(end[2]))})
		}
	}
	return t, true, nil
}
