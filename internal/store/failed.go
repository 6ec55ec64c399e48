package store

import (
	"cmp"
	"context"
	"iter"
	"strings"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var requeue = verb("requeue")

// A FailedTask is a task in a failed queue.
type FailedTask struct {
	Name   string // in the failed queue
	Record Record // its Failure is nil if another program has written it
}

// FailedTasks yields the failed tasks of q that wait, newest first: those that were set aside, since a
// handler of the failed queue has failed, and then the others. Tasks that fail meanwhile don't come.
func FailedTasks(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[FailedTask, error] {
	all := each(failedNames(ctx, r, q), func(names []string) (tasks []FailedTask, _ error) {
		for _, name := range names {
			tasks = append(tasks, FailedTask{Name: name})
		}
		return tasks, nil
	})
	return rows(described(ctx, r, q.Failed(), all, func(t FailedTask) string { return t.Name }, func(t *FailedTask, f named) bool {
		t.Record = f.record
		return f.there && f.run.attempt == ""
	}))
}

// FailureOf returns how a task failed that is to go back to a name; nil if it isn't among the newest failed ones. name
// is that of the task, without an occurrence.
func FailureOf(ctx context.Context, r Runner, q keys.Queue, name, back string) (*Failure, error) {
	for names, err := range failedNames(ctx, r, q) {
		for _, of := range names {
			if err != nil || !strings.HasPrefix(of, name+"#") {
				continue
			}
			var text []byte
			if text, err = readText(r.One(ctx, redisconn.Command("HGET", q.Failed().Tasks(), of))); err == nil {
				if f := ReadRecord(text, true).Failure; f != nil && f.Back == back {
					return f, nil
				}
			}
		}
		return nil, err // of one page
	}
	return nil, nil
}

// failedNames reads the names of failed tasks that wait.
func failedNames(ctx context.Context, r Runner, q keys.Queue) pages[string] {
	failed := q.Failed()
	return func(yield func([]string, error) bool) {
		// Tasks that fail meanwhile come before this one, even if there are many aside, which are read first.
		newest, err := readRanked(reply(r.One(ctx, redisconn.Command("ZRANGE", failed.Ready(), 0, 0, "REV", "WITHSCORES"))), 1)
		if err != nil {
			yield(nil, err)
			return
		}
		first := ranked{} // only those that are returned come after it
		if len(newest) > 0 {
			first = ranked{newest[0].name + "\x00", newest[0].score}
		}
		chain(namesIn(ctx, &ranking{by: r, key: failed.Aside(), reverse: true}),
			namesIn(ctx, &ranking{by: r, key: failed.Ready(), reverse: true, last: &first}),
			namesIn(ctx, &ranking{by: r, key: failed.Risky(), reverse: true}),
			namesIn(ctx, &ranking{by: r, key: failed.Schedule(), reverse: true}))(yield)
	}
}

func namesIn(ctx context.Context, of *ranking) pages[string] {
	return each(paged(func() func() ([]ranked, error) {
		return func() ([]ranked, error) { return of.page(ctx) }
	}), func(some []ranked) (names []string, _ error) {
		for _, m := range some {
			names = append(names, m.name)
		}
		return names, nil
	})
}

// Requeue puts failed tasks back where they came from, and returns how many. The others stay failed: another task
// waits or runs under their names, or a handler of the failed queue has them.
func Requeue(ctx context.Context, r Runner, q keys.Queue, names []string) (int, error) {
	return requeueEach(ctx, r, q, given(names))
}

// RequeueAll is Requeue for all of them. It goes from the newest to the oldest, so it ends even if more
// tasks fail meanwhile.
func RequeueAll(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	return requeueEach(ctx, r, q, failedNames(ctx, r, q))
}

func requeueEach(ctx context.Context, r Runner, q keys.Queue, of pages[string]) (n int, _ error) {
	s := SharedOf(q)
	for names, err := range of {
		for len(names) > 0 && err == nil {
			in := read(r.One(ctx, requeue.callOf(s, append(requeue.line(s, len(names)), listed(names)...))))
			if in.err == nil && (len(in.rest) == 0 || len(in.rest) > len(names)) {
				in.err = errMismatch
			}
			names = names[min(len(in.rest), len(names)):]
			in.each(func() {
				if in.string() == "requeued" {
					n++
				}
			})
			err = in.err
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// DeleteFailed drops failed tasks that wait, and returns how many.
func DeleteFailed(ctx context.Context, r Runner, q keys.Queue, names []string) (int, error) {
	return deleteEach(ctx, r, q, given(names))
}

// DeleteAllFailed deletes all of them. Like RequeueAll, it ends even if more tasks fail.
func DeleteAllFailed(ctx context.Context, r Runner, q keys.Queue) (int, error) {
	return deleteEach(ctx, r, q, failedNames(ctx, r, q))
}

func deleteEach(ctx context.Context, r Runner, q keys.Queue, of pages[string]) (n int, _ error) {
	s := SharedOf(q.Failed())
	for names, err := range of {
		for _, reply := range doEach(ctx, r, names, func(name string) redisconn.Call { return remove.call(s, name, EndRemoved) }) {
			removed, _, failed := readRemove(reply)
			n += flag(removed)
			err = cmp.Or(err, failed)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
