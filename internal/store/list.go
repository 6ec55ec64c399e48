package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/past"
	"github.com/worqr/worqr/internal/redisconn"
)

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

// A NamedTask is a named task that waits.
type NamedTask struct {
	Name    string
	State   inspect.NamedState
	At      int64 // ms of Redis's time when it may start; 0: now
	Record  Record
	Retries int
	Crashes int
	Error   past.Text // of the attempt before; "" if there was none
}

// Named yields the named tasks that wait: those that are ready, in the order of their starts; those that
// are scheduled, earliest first; those that have become ready meanwhile; then risky ones, and those behind
// a running one. With states, it yields and reads only those in one of them. A task that waits during the
// whole listing comes once; more than 100,000 may repeat.
func Named(ctx context.Context, r Runner, q keys.Queue, states ...inspect.NamedState) iter.Seq2[NamedTask, error] {
	found := sieve{}
	wanted := func(s inspect.NamedState) bool { return len(states) == 0 || slices.Contains(states, s) }
	ready := func(yield func([]NamedTask, error) bool) {
		in := &ranking{by: r, key: q.Ready()}
		for _, of := range []struct {
			*ranking
			state inspect.NamedState
		}{
			{in, inspect.NamedReady}, {&ranking{by: r, key: q.Schedule()}, inspect.NamedScheduled}, {in, inspect.NamedReady},
			{&ranking{by: r, key: q.Risky()}, inspect.NamedRisky},
		} {
			for wanted(of.state) {
				some, err := of.page(ctx)
				page := make([]NamedTask, 0, len(some))
				for _, m := range some {
					if found.passes(m.name) {
						t := NamedTask{Name: m.name, State: of.state}
						if of.state == inspect.NamedScheduled {
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
	waiting := described(ctx, r, q, ready, func(t NamedTask) string { return t.Name }, func(t *NamedTask, f named) bool {
		t.Record, t.Retries, t.Crashes, t.Error = f.record, f.run.retries, f.run.crashes, f.run.failure
		return f.there && f.run.attempt == "" // otherwise it was taken meanwhile
	})
	if !wanted(inspect.NamedBlocked) {
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
			texts, err := redis.Strings(r.One(ctx, redisconn.Command("HMGET", append([]any{key}, listed(some)...)...)))
			for i := range min(len(texts), len(some)) {
				if b, _ := readBehind(texts[i], q.IsFailed()); b != nil {
					page = append(page, NamedTask{Name: some[i], State: inspect.NamedBlocked, At: b.At, Record: b.Record})
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
	failure          past.Text
}

// readRun reads "attempt:retries:crashes:error".
func readRun(text []byte) run {
	parts := strings.SplitN(string(text), ":", 4)
	if len(parts) < 4 {
		return run{}
	}
	return run{parts[0], countIn(parts[1]), countIn(parts[2]), past.Text(parts[3])}
}

func readNamed[T any](ctx context.Context, r Runner, q keys.Queue, tasks []T, name func(T) string) ([]named, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	var names []string
	for _, t := range tasks {
		names = append(names, name(t))
	}
	of := func(key string) redisconn.Call {
		return redisconn.Command("HMGET", append([]any{key}, listed(names)...)...)
	}
	replies := r.Do(ctx, of(q.Tasks()), of(q.Runs()))
	var err error
	records, runs := readAs(replies[0], redis.ByteSlices, &err), readAs(replies[1], redis.ByteSlices, &err)
	if err == nil && (len(records) != len(names) || len(runs) != len(names)) {
		err = errReply
	}
	if err != nil {
		return nil, err
	}
	all := make([]named, len(names))
	for i, text := range records {
		all[i] = named{text != nil, ReadRecord(text, q.IsFailed()), readRun(runs[i])}
	}
	return all, nil
}

// described adds what Redis has of named tasks, and leaves out those for which add returns false.
func described[T any](ctx context.Context, r Runner, q keys.Queue, of pages[T], name func(T) string, add func(*T, named) bool) pages[T] {
	size := func(t T) redisconn.Call { return redisconn.Command("HSTRLEN", q.Tasks(), name(t)) }
	return each(sized(ctx, r, of, size), func(some []T) ([]T, error) {
		found, err := readNamed(ctx, r, q, some, name)
		if err != nil {
			return nil, err
		}
		left := some[:0]
		for i, t := range some {
			if add(&t, found[i]) {
				left = append(left, t)
			}
		}
		return left, nil
	})
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

// A RunningTask is held by a worker.
type RunningTask struct {
	Attempt string // StartedAt says when it started
	Worker  string
	Token   int64
	Stops   bool   // it was canceled
	Name    string // "" for a raw task
	Record  Record // of a raw task only the payload
	Retries int
	Crashes int
	Error   past.Text // of the attempt before; "" if there was none
}

// Running yields the tasks that workers hold, worker by worker, oldest first. Those that a worker holds
// during the whole listing come once.
func Running(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[RunningTask, error] {
	return rows(func(yield func([]RunningTask, error) bool) {
		for workers, err := range holders(ctx, r, q) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, worker := range workers {
				for page, err := range running(ctx, r, q, worker) {
					if !yield(page, err) || err != nil {
						return
					}
				}
			}
		}
	})
}

// holders reads the workers that may hold tasks: members, and then those whose tasks are being returned.
func holders(ctx context.Context, r Runner, q keys.Queue) pages[string] {
	found := sieve{}
	all := chain(members(ctx, r, "ZSCAN", q.Workers()), members(ctx, r, "ZSCAN", q.Leaving()))
	return filter(all, found.passes)
}

// running reads what a worker holds. Tasks that end meanwhile are left out.
func running(ctx context.Context, r Runner, q keys.Queue, worker string) pages[RunningTask] {
	var pace pacer
	tasks := each(attempts(ctx, r, q, worker, pace.next), func(some []RunningTask) ([]RunningTask, error) {
		return withLists(ctx, r, q, some, &pace)
	})
	tasks = each(tasks, func(some []RunningTask) ([]RunningTask, error) { return some, crashesOf(ctx, r, q, some) })
	return described(ctx, r, q, tasks, func(t RunningTask) string { return t.Name }, func(t *RunningTask, f named) bool {
		if t.Name == "" { // a raw one
			return true
		}
		t.Record, t.Retries, t.Crashes, t.Error = f.record, f.run.retries, f.run.crashes, f.run.failure
		return f.there && f.run.attempt == t.Attempt
	})
}

// crashesOf adds how many workers died holding the raw ones of some running tasks.
func crashesOf(ctx context.Context, r Runner, q keys.Queue, some []RunningTask) error {
	n, err := redis.Int(r.One(ctx, redisconn.Command("HLEN", q.Crashes())))
	if n == 0 || err != nil {
		if IsAnswer(err) {
			return nil // the key is another program's, or denied
		}
		return err
	}
	for i, reply := range doEach(ctx, r, some, func(t RunningTask) redisconn.Call {
		return redisconn.Command("HGET", q.Crashes(), DigestOf(t.Record.Payload))
	}) {
		if text, err := redis.String(reply.Value, reply.Err); err == nil && some[i].Name == "" {
			some[i].Crashes = countIn(text)
		}
	}
	return nil
}

// attempts reads the attempts of a worker, oldest first, limit() at a time. A token that becomes negative
// meanwhile keeps its place: both ranges are read, and a page ends where the shorter one does.
func attempts(ctx context.Context, r Runner, q keys.Queue, worker string, limit func() int) pages[RunningTask] {
	return paged(func() func() ([]RunningTask, error) {
		after := 0.0
		return func() (page []RunningTask, _ error) {
			n := limit()
			replies := r.Do(ctx,
				redisconn.Command("ZRANGE", q.Working(worker), "("+strconv.FormatFloat(after, 'f', -1, 64), "+inf", "BYSCORE", "LIMIT", 0, n, "WITHSCORES"),
				redisconn.Command("ZRANGE", q.Working(worker), "("+strconv.FormatFloat(-after, 'f', -1, 64), "-inf", "BYSCORE", "REV", "LIMIT", 0, n, "WITHSCORES"))
			running, err := readRanked(replies[0], n)
			stopping, bad := readRanked(replies[1], n)
			if err = cmp.Or(err, bad); err != nil {
				return nil, err
			}
			upTo := math.Inf(1)
			for _, some := range [][]ranked{running, stopping} {
				if len(some) == n {
					upTo = min(upTo, math.Abs(some[n-1].score))
				}
			}
			found := map[string]bool{}
			for _, m := range slices.Concat(stopping, running) {
				if token := math.Abs(m.score); token <= upTo && !found[m.name] {
					found[m.name], after = true, max(after, token)
					page = append(page, RunningTask{Attempt: m.name, Worker: worker, Token: whole(token), Stops: m.score < 0})
				}
			}
			slices.SortFunc(page, func(a, b RunningTask) int { return cmp.Compare(a.Token, b.Token) })
			return page, nil
		}
	})
}

// withLists reads the lists of attempts: payloads, or names.
func withLists(ctx context.Context, r Runner, q keys.Queue, some []RunningTask, pace *pacer) (left []RunningTask, _ error) {
	list := func(t RunningTask) redisconn.Call { return redisconn.Command("LINDEX", q.Process(t.Attempt), 0) }
	for i, reply := range doEach(ctx, r, some, list) {
		item, err := redis.Bytes(reply.Value, reply.Err)
		if errors.Is(err, redis.ErrNil) {
			continue
		}
		if err != nil {
			return left, err
		}
		pace.saw(len(item))
		t := some[i]
		if strings.HasSuffix(t.Attempt, "n") {
			t.Name = string(item)
		} else {
			t.Record.Payload = item
		}
		left = append(left, t)
	}
	return left, nil
}
