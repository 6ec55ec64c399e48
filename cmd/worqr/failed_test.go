package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// fail makes tasks fail, one after the other.
func (s *shell) fail(q *worqr.Queue, payload, reason string, headers map[string]string) {
	s.Helper()
	ctx := s.Context()
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte(payload), Headers: headers}))(s.T)
	s.is.NoErr(redistest.Sure(q.StartTask(ctx))(s.T).Fail(ctx, errors.New(reason)))
}

func TestFailed(t *testing.T) {
	s := newShell(t)
	q := peertest.Working(t, s.peer, "q")
	for i := range 12 {
		s.fail(q, fmt.Sprintf("task %02d", i), []string{"timeout", "refused\x1b", "no such customer"}[i%3], map[string]string{"n": fmt.Sprint(i % 2)})
	}
	s.is.Equal(len(s.rows(exitWell, "failed", "q")), 12)
	s.is.Equal(len(s.rows(exitWell, "failed", "q", "-n", "5")), 5)
	s.is.Equal(len(s.rows(exitWell, "failed", "q", "--reason", "^(timeout|refused)")), 8)
	s.is.Equal(len(s.rows(exitWell, "failed", "q", "--reason", "timeout", "--header", "n=0")), 2)
	s.is.Equal(all(s.rows(exitWell, "failed", "q", "--payload", "0[12]$"), "payload"), []any{"task 02", "task 01"})
	s.is.Equal(len(s.rows(exitWell, "failed", "q", "--kind", "crashed")), 0)
	s.is.Equal(len(s.rows(exitWell, "failed", "q", "--since", "1h", "--kind", "failed")), 12)
	s.is.True(strings.Contains(s.run(exitWell, "failed", "q"), `refused\x1b`))
	s.is.Equal(s.run(exitWell, "failed", "q", "--group", "-n", "2"), "TASKS  KIND    ERROR\n4      failed  no such customer\n4      failed  refused\\x1b\n")

	s.fail(q, "x", "no such mailbox: 1", nil)
	s.fail(q, "x", "no such mailbox: 2", nil)
	groups := s.rows(exitWell, "failed", "q", "--group", "--reason", "mailbox")
	s.is.Equal(groups, []map[string]any{{"tasks": 2., "kind": "failed", "error": "no such mailbox: …", "example": "no such mailbox: 2"}})
	s.run(exitWell, "failed", "q", "--delete", "--payload", "^x$", "--yes", "q")

	would := s.run(exitFailed, "failed", "q", "--reason", "timeout", "--requeue")
	s.is.True(strings.Contains(would, `this would requeue 4 of 12 failed tasks of the queue "q"`))
	s.is.Equal(s.run(exitWell, "failed", "q", "--reason", "timeout", "--requeue", "--yes", "q"), "4 tasks matched, 4 requeued\n")
	s.is.Equal(s.rows(exitWell, "failed", "q", "--reason", "refused", "--delete", "--yes", "q")[0], map[string]any{"matched": 4., "deleted": 4.})
	s.run(exitUnwell, "failed", "q", "--reason", "refused", "--delete", "--yes", "q")
	stats := peertest.Stats(t, q)
	s.is.Equal([]int{stats.Failed, stats.Waiting + stats.Scheduled}, []int{4, 4})

	ids := all(s.rows(exitWell, "failed", "q"), "id")
	s.is.True(strings.Contains(s.run(exitWell, "failed", "q"), "  "+ids[0].(string)+"  ")) // whole, to be copied
	s.is.Equal(s.run(exitWell, "requeue", "q", ids[0].(string)), "1 task requeued\n")
	said := s.run(exitUnwell, "requeue", "q", ids[0].(string))
	s.is.True(strings.HasPrefix(said, "0 tasks requeued\nworqr: 1 id not requeued: "))
	s.is.Equal(s.run(exitWell, "failed", "q", "--requeue", "--yes", "q"), "3 tasks matched, 3 requeued\n")
	s.run(exitFailed, "requeue", "q")
	s.run(exitFailed, "failed", "q", "--requeue", "--delete")
	out := s.run(exitFailed, "failed", "q", "--reason", "(")
	s.is.True(strings.Contains(out, "--reason"))
	s.run(exitFailed, "failed", "q", "--kind", "x")
}

// Tasks that fail after the count are left alone: the question didn't include them.
func TestFailedLater(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := peertest.Working(t, s.peer, "q")
	s.fail(q, "before", "x", nil)
	conn := redistest.Conn(t)
	now := func() int64 {
		at := redistest.Sure(redis.Int64s(conn.Do("TIME")))(t)
		return at[0]*1000 + at[1]/1000
	}
	for began := now(); now() == began; { // failure times are in milliseconds
	}
	c := failedCommand{onQueue: onQueue{form: form{JSON: true}, Queue: "q"}, Delete: true, confirmation: confirmation{Yes: "q"}}
	var out strings.Builder
	counted := false
	s.is.NoErr(c.act(ctx, &console{out: &out, errs: &out}, q, func(yield func(inspect.FailedTask, error) bool) {
		if counted {
			s.fail(q, "after", "x", nil)
		}
		counted = true
		q.Failed(ctx)(yield)
	}))
	s.is.Equal(out.String(), `{"deleted":1,"matched":1}`+"\n")
	s.is.Equal(all(s.rows(exitWell, "failed", "q"), "payload"), []any{"after"})
}

// Tasks that can't be requeued stay, and the exit status shows it.
func TestRequeueWhatStays(t *testing.T) {
	s := newShell(t)
	ctx := t.Context()
	q := peertest.Working(t, s.peer, "q")
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: "k", Payload: []byte("a")}))(s.T)
	task := peertest.Take(t, q)
	s.is.NoErr(task.Fail(ctx, errors.New("no")))
	s.fail(q, "x", "no", nil)
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: "k", Payload: []byte("b")}))(s.T)
	s.is.Equal(s.run(exitUnwell, "failed", "q", "--requeue", "--yes", "q"), "2 tasks matched, 1 requeued\n")
	id := all(s.rows(exitWell, "failed", "q"), "id")[0].(string)
	s.is.Equal(s.run(exitUnwell, "requeue", "q", id), "0 tasks requeued\nworqr: 1 id not requeued: there is no such failed task, OnFailed is handling it, or a task with its key waits or runs; "+
		"to list them, use: worqr failed --prefix "+s.args[3]+" q\n")
}
