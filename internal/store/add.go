package store

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

// A call of Add takes at most MaxTasks tasks, and one of Enqueue at most MaxPayloads payloads. Either
// takes MaxBytes, or a single task of any size.
const (
	MaxTasks    = 1000
	MaxPayloads = 5000
	MaxBytes    = 2 << 20
)

// A Rule says when the one of two tasks starts that stays, if one waits under the name.
type Rule string

// The rules: always the new time; never; only if it's later; only if it's earlier; the call fails if a
// task waits or runs under the name.
const (
	Always  Rule = "always"
	Never   Rule = "never"
	Later   Rule = "later"
	Earlier Rule = "earlier"
	Unique  Rule = "unique"
)

// A Task is a named task to add.
type Task struct {
	Name       string
	At         int64 // ms of Redis's time; 0: now
	Rule       Rule
	KeepRecord bool // the one that waits keeps its record and its counts
	KeepCounts bool // it keeps its counts of retries and crashes
	Nonce      string
	Window     time.Duration // for how long the nonce is known, at least 1 ms
	Record     Record
}

// addCall returns the call that adds tasks.
func addCall(s *Shared, tasks []Task) (redisconn.Call, error) {
	all, bytes := add.line(s, 8*len(tasks), s.q.Once("")), 0
	for i := range tasks {
		t := &tasks[i]
		record := t.Record.Append(nil)
		bytes += len(record)
		all = append(all, t.Name, max(t.At, 0), string(t.Rule), flag(t.KeepRecord), flag(t.KeepCounts),
			t.Nonce, max(t.Window.Milliseconds(), 1), record)
	}
	if len(tasks) > MaxTasks || len(tasks) > 1 && bytes > MaxBytes {
		return redisconn.Call{}, ErrTooLarge
	}
	return add.callOf(s, all), nil
}

// readAdd reads the reply to an addCall of n tasks.
func readAdd(reply redisconn.Reply, n int) (names []string, skipped []int, alone bool, err error) {
	in := read(reply.Value, reply.Err)
	names = in.strings()
	numbers := in.list()
	numbers.each(func() { skipped = append(skipped, int(numbers.int())-1) })
	in.join(numbers)
	alone = in.int() == 1
	for _, i := range skipped {
		if i < 0 || i >= n {
			in.fail(errMismatch)
		}
	}
	if len(names) != n {
		in.fail(errMismatch)
	}
	if in.err != nil {
		return nil, nil, false, in.err
	}
	return names, skipped, alone, nil
}

// Add adds 1 to MaxTasks named tasks, all or none. It returns their names, and the numbers of those that
// were skipped, since their nonces are known: such a task's name is the one that the first call gave,
// which is no task's if that call enqueued. It fails with ErrDuplicate if a unique task is waiting or
// running, and with ErrTooLarge. The same name or nonce twice is an error.
func (p *Producer) Add(ctx context.Context, q Target, tasks []Task) (names []string, skipped []int, err error) {
	if len(tasks) == 0 {
		return nil, nil, nil
	}
	k := p.of(q)
	c, err := addCall(k.shared, tasks)
	if err != nil {
		return nil, nil, err
	}
	names, skipped, alone, err := readAdd(reply(p.calls.One(ctx, c)), len(tasks))
	return names, skipped, p.added(ctx, q, k, alone, err)
}
