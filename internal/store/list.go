package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// ErrEmpty says that there is nothing to peek at.
var ErrEmpty = errors.New("no task is ready to start")

// Tasks yields the payloads on the list, front first. One that waits there during the whole listing
// comes, and maybe twice if others are canceled or returned. Those that are added meanwhile don't come.
func Tasks(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[[]byte, error] {
	return rows(paged(func() func() ([][]byte, error) {
		l := &listing{by: r, q: q, slack: -1}
		return func() ([][]byte, error) { return l.page(ctx) }
	}))
}

// A listing reads a list, while tasks are taken from its front. Its tasks are numbered in order: when as
// many have left as taken says, the front has the next number.
type listing struct {
	by               Runner
	q                keys.Queue
	pace             pacer
	next, end, taken int // the number to read next, and the one after the last
	slack            int // how many are read again, since so many may be taken meanwhile; -1: nothing was read yet
}

// page reads the next payloads; none at the end.
func (l *listing) page(ctx context.Context) ([][]byte, error) {
	taken := redisconn.Command("HGET", l.q.State(), "taken")
	if l.slack < 0 {
		replies := l.by.Do(ctx, redisconn.Command("LLEN", l.q.Waiting()), taken)
		length, err := redis.Int(replies[0].Value, replies[0].Err)
		if err != nil {
			return nil, err
		}
		l.taken = readTaken(replies[1])
		l.next, l.end, l.slack = l.taken, l.taken+length, 0
	}
	for tries := 0; l.next < l.end; tries++ {
		from := max(0, l.next-l.taken-l.slack) // those before it, counted from the front, were read
		count := min(l.pace.next()+l.slack, l.end-l.taken-from)
		replies := l.by.Do(ctx, redisconn.Command("LRANGE", l.q.Waiting(), -from-count, -from-1), taken)
		all, err := redis.ByteSlices(replies[0].Value, replies[0].Err)
		if err != nil {
			return nil, err
		}
		for _, payload := range all {
			l.pace.saw(len(payload))
		}
		slices.Reverse(all)
		before := l.taken
		l.taken = readTaken(replies[1])
		l.slack = min(2*max(0, l.taken-before), perPage)
		first := l.taken + from // the number of the first one
		switch {
		case first > l.next && from > 0 && tries < 100:
			continue // more were taken than were read again, so that those before it may be unread
		case len(all) == 0: // another program has taken some
			return nil, nil
		}
		l.next = max(l.next, first)
		if left := all[min(l.next-first, len(all)):]; len(left) > 0 {
			l.next += len(left)
			return left, nil
		}
	}
	return nil, nil
}

// readTaken returns how many raw tasks have left the list, less those that came back.
func readTaken(reply redisconn.Reply) int {
	text, _ := redis.String(reply.Value, reply.Err)
	return int(min(max(numberIn(text), -1<<53), 1<<53)) // another program may have written any number
}

// A State says where a named task waits.
type State string

// The states: it may start; it waits for its time; it may start while no other risky one runs on the
// worker; it's behind the running task of its name.
const (
	Ready     State = "ready"
	Scheduled State = "scheduled"
	Risky     State = "risky"
	Behind    State = "behind"
)

// A NamedTask is a named task that waits.
type NamedTask struct {
	Name    string
	State   State
	At      int64 // ms of Redis's time when it may start; 0: now
	Record  Record
	Retries int
	Crashes int
	Error   string // of the attempt before; "" if there was none
}

// Named yields the named tasks that wait: those that are ready, in the order of their starts; those that
// are scheduled, earliest first; those that have become ready meanwhile; then risky ones, and those behind
// a running one. With states, it yields and reads only those in one of them. A task that waits during the
// whole listing comes once; more than 100,000 may repeat.
func Named(ctx context.Context, r Runner, q keys.Queue, states ...State) iter.Seq2[NamedTask, error] {
	n, found := q, sieve{}
	wanted := func(s State) bool { return len(states) == 0 || slices.Contains(states, s) }
	ready := func(yield func([]NamedTask, error) bool) {
		in := &ranking{by: r, key: n.Ready()}
		schedule := &ranking{by: r, key: q.Schedule()}
		risky := &ranking{by: r, key: n.Risky()}
		for _, of := range []struct {
			*ranking
			State
		}{{in, Ready}, {schedule, Scheduled}, {in, Ready}, {risky, Risky}} {
			for wanted(of.State) {
				some, err := of.page(ctx)
				page := make([]NamedTask, 0, len(some))
				for _, m := range some {
					if found.passes(m.name) {
						t := NamedTask{Name: m.name, State: of.State}
						if of.State == Scheduled {
							t.At = whole(m.score)
						}
						page = append(page, t)
					}
				}
				if !yield(page, err) || err != nil {
					return
				}
				if len(some) == 0 {
					break
				}
			}
		}
	}
	size := func(t NamedTask) redisconn.Call { return redisconn.Command("HSTRLEN", n.Tasks(), t.Name) }
	waiting := each(sized(ctx, r, ready, size), func(some []NamedTask) ([]NamedTask, error) {
		records, err := readNamed(ctx, r, q, some, func(t NamedTask) string { return t.Name })
		if err != nil {
			return nil, err
		}
		left := some[:0]
		for i, t := range some {
			if f := records[i]; f.there && f.run.attempt == "" { // otherwise it was taken meanwhile
				t.Record, t.Retries, t.Crashes, t.Error = f.record, f.run.retries, f.run.crashes, f.run.failure
				left = append(left, t)
			}
		}
		return left, nil
	})
	if !wanted(Behind) {
		return rows(waiting)
	}
	return rows(chain(waiting, behind(ctx, r, q)))
}

// whole returns a score that is a time or a token. Another program may have written any number.
func whole(score float64) int64 { return int64(min(max(score, 0), 1<<53)) }

// behind reads the tasks behind running ones. These are fewer than those that run, so their names are
// read at once.
func behind(ctx context.Context, r Runner, q keys.Queue) pages[NamedTask] {
	key := q.Next()
	return func(yield func([]NamedTask, error) bool) {
		names, err := redis.Strings(r.One(ctx, redisconn.Command("HKEYS", key)))
		if err != nil {
			yield(nil, err)
			return
		}
		size := func(name string) redisconn.Call { return redisconn.Command("HSTRLEN", key, name) }
		each(sized(ctx, r, given(names), size), func(some []string) (page []NamedTask, err error) {
			texts, err := redis.ByteSlices(r.One(ctx, redisconn.Command("HMGET", append([]any{key}, listed(some)...)...)))
			for i := range min(len(texts), len(some)) {
				if parts := bytes.SplitN(texts[i], []byte(":"), 5); len(parts) == 5 { // time, rule, keep, counts, record
					at := min(max(numberIn(string(parts[0])), 0), 1<<53)
					page = append(page, NamedTask{Name: some[i], State: Behind, At: at, Record: ReadRecord(parts[4], q.IsFailed())})
				}
			}
			return page, err
		})(yield)
	}
}

// A named is what Redis has of a named task.
type named struct {
	there  bool
	record Record
	run    run
}

// A run says how the attempts of a named task have ended, and which one runs.
type run struct {
	attempt          string // "" if none does
	retries, crashes int
	failure          string // of the last one
}

// readRun reads "attempt:retries:crashes:error".
func readRun(text []byte) run {
	parts := bytes.SplitN(text, []byte(":"), 4)
	if len(parts) < 4 {
		return run{}
	}
	return run{string(parts[0]), countIn(string(parts[1])), countIn(string(parts[2])), string(parts[3])}
}

// readNamed reads the records and runs of tasks.
func readNamed[T any](ctx context.Context, r Runner, q keys.Queue, tasks []T, name func(T) string) ([]named, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	names := make([]any, 1, 1+len(tasks))
	for _, t := range tasks {
		names = append(names, name(t))
	}
	of := func(key string) redisconn.Call {
		return redisconn.Command("HMGET", append([]any{key}, names[1:]...)...)
	}
	replies := r.Do(ctx, of(q.Tasks()), of(q.Runs()))
	var err error
	records, runs := readAs(replies[0], redis.ByteSlices, &err), readAs(replies[1], redis.ByteSlices, &err)
	if err == nil && (len(records) != len(tasks) || len(runs) != len(tasks)) {
		err = errReply
	}
	if err != nil {
		return nil, err
	}
	all := make([]named, len(tasks))
	for i, text := range records {
		all[i] = named{text != nil, ReadRecord(text, q.IsFailed()), readRun(runs[i])}
	}
	return all, nil
}

// Peek returns the payload that starts next, or ErrEmpty: one that was returned; or the first of those
// that are ready or of the list, which take turns; or a scheduled one whose time has come; or a risky one.
func Peek(ctx context.Context, r Runner, q keys.Queue) ([]byte, error) {
	replies := r.Do(ctx, firstCall(q.Ready()), firstCall(q.Schedule()), firstCall(q.Risky()), timeCall(q), TokenCall(q),
		redisconn.Command("LINDEX", q.Waiting(), -1))
	var err error
	ready, schedule, risky := readFirst(replies[0], &err), readFirst(replies[1], &err), readFirst(replies[2], &err)
	now, noTime := timeIn(replies[3])
	token, noToken := ReadToken(replies[4])
	raw, none := redis.Bytes(replies[5].Value, replies[5].Err)
	if err = cmp.Or(err, noTime, noToken); err == nil && !errors.Is(none, redis.ErrNil) {
		err = none
	}
	if err != nil {
		return nil, err
	}
	if len(schedule) > 0 && schedule[0].score > float64(now) {
		schedule = nil
	}
	named := slices.Concat(ready, schedule, risky)
	if none == nil {
		named = ready
		if len(ready) > 0 && ready[0].score >= 0 && token%2 != 0 {
			named = nil
		}
	}
	for _, m := range named {
		found, err := readNamed(ctx, r, q, []string{m.name}, func(name string) string { return name })
		if err != nil {
			return nil, err
		}
		if found[0].there {
			return found[0].record.Payload, nil
		}
	}
	if none == nil {
		return raw, nil
	}
	return nil, ErrEmpty
}

// firstCall asks for the first member of a sorted set, which readFirst reads: one or none.
func firstCall(key string) redisconn.Call {
	return redisconn.Command("ZRANGE", key, 0, 0, "WITHSCORES")
}

func readFirst(reply redisconn.Reply, err *error) []ranked {
	first, failed := readRanked(reply, 1)
	*err = cmp.Or(*err, failed)
	return first
}
