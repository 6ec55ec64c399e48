package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
)

// now is Redis's time in these tests.
var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// attempt returns the id of an attempt that began that long ago.
func attempt(ago time.Duration) string {
	ms := now.Add(-ago).UnixMilli()
	return fmt.Sprintf("w.1.%d.1", ms)
}

// TestHealth checks findings about a queue that doesn't do its work, and their severity.
func TestHealth(t *testing.T) {
	t.Parallel()
	q := store.SpaceOf("p").Queue("q")
	working := store.Queue{Members: 1, Alive: 1}
	for name, test := range map[string]struct {
		vitals
		runs   []run
		limits inspect.CheckOptions
		in     store.Keys
		want   string
	}{
		"nothing":                  {in: q},
		"a run":                    {in: q, vitals: vitals{Queue: working}, runs: []run{{attempt: attempt(time.Minute)}}},
		"a long run":               {in: q, vitals: vitals{Queue: working}, runs: []run{{attempt: attempt(2 * time.Hour)}}, want: "stuck long-run"},
		"longer than was set":      {in: q, vitals: vitals{Queue: working}, runs: []run{{attempt: attempt(time.Minute)}}, limits: inspect.CheckOptions{MaxRunTime: time.Second}, want: "stuck long-run"},
		"an id that isn't ours":    {in: q, vitals: vitals{Queue: working}, runs: []run{{attempt: "x"}}},
		"all busy":                 {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 1}}, runs: []run{{attempt: attempt(11 * time.Minute)}}, want: "stopped stalled"},
		"one is idle":              {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 1, Idle: 1}}, runs: []run{{attempt: attempt(11 * time.Minute)}}},
		"paused":                   {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 1, Paused: "1:me"}}, runs: []run{{attempt: attempt(11 * time.Minute)}}},
		"overdue":                  {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1}, firstDue: now.Add(-time.Hour).UnixMilli()}, want: "stuck overdue"},
		"overdue by what was set":  {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1}, firstDue: now.Add(-time.Minute).UnixMilli()}, limits: inspect.CheckOptions{MaxWaitTime: time.Second}, want: "stuck overdue"},
		"a backlog without limit":  {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 1000}}},
		"a backlog":                {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 2, Due: 1}}, limits: inspect.CheckOptions{MaxBacklog: 2}, want: "stuck backlog"},
		"none may wait":            {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 1}}, limits: inspect.CheckOptions{MaxBacklog: -1}, want: "stuck backlog"},
		"retries":                  {in: q, vitals: vitals{Queue: working, retries: 11}, want: "notice retrying"},
		"most are retried":         {in: q, vitals: vitals{Queue: working, retries: 60}, want: "stuck retrying"},
		"few of many":              {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Idle: 1, Listed: 100}, retries: 60}, want: "notice retrying"},
		"nothing runs":             {in: q, vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Due: 1}, firstDue: now.Add(-4 * time.Minute).UnixMilli()}, want: "stuck starved"},
		"a task that crashes":      {in: q, vitals: vitals{Queue: working, crashing: crashes{1, 2}}, want: "stuck crashing"},
		"few retries":              {in: q, vitals: vitals{Queue: working, retries: 10}},
		"more retries than set":    {in: q, vitals: vitals{Queue: working, retries: 10}, limits: inspect.CheckOptions{MaxRetrying: 9}, want: "stuck retrying"},
		"failed":                   {in: q.Failed(), vitals: vitals{failed: 1}, want: "notice failed"},
		"none may fail":            {in: q.Failed(), vitals: vitals{failed: 1, recent: 1}, limits: inspect.CheckOptions{MaxFailed: -1}, want: "stuck failed"},
		"as many as may fail":      {in: q.Failed(), vitals: vitals{failed: 2}, limits: inspect.CheckOptions{MaxFailed: 2}},
		"a backlog of what failed": {in: q.Failed(), vitals: vitals{Queue: store.Queue{Members: 1, Alive: 1, Listed: 5}}, limits: inspect.CheckOptions{MaxBacklog: 1}},
	} {
		v := test.vitals
		v.Now = now.UnixMilli()
		for _, r := range test.runs {
			r.since = store.StartedAt(r.attempt)
			v.runs.add(v.Now, test.limits, r)
		}
		var said []string
		for _, f := range v.judge(test.in, "q", test.limits) {
			said = append(said, string(f.Severity)+" "+string(f.Kind))
		}
		if got := strings.Join(said, ", "); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A finding about exceeded limits says how many tasks there are, and where.
func TestCounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := store.SpaceOf("p").Queue("q")
	v := vitals{Queue: store.Queue{Listed: 3, Due: 3}, retries: 6}
	var said []string
	for _, f := range v.judge(q, "q", inspect.CheckOptions{MaxBacklog: 5, MaxRetrying: 5}) {
		said = append(said, fmt.Sprint(f.Kind, " ", f.Key, ": ", f.Text))
	}
	is.Equal(len(said), 2)
	is.True(strings.HasPrefix(said[1], "backlog "+q.Waiting()+": 6 tasks are waiting. The limit is 5."))
	is.True(strings.HasPrefix(said[0], "retrying "+q.Schedule()+": 6 tasks are waiting for a retry. The limit is 5."))
	is.Equal(len(v.judge(q, "q", inspect.CheckOptions{MaxBacklog: 6, MaxRetrying: 6})), 0)
	for want, v := range map[string]vitals{
		"1 task failed for good. All failed in the last 10 minutes. List them":           {failed: 1, recent: 1},
		"1 task failed for good. None failed in the last 10 minutes. List them":          {failed: 1},
		"6 tasks failed for good. 3 of them failed in the last 10 minutes. List them":    {failed: 6, recent: 3},
		"9 tasks have failed for good, far more than usual. That was within 10 minutes.": {failed: 99, recent: 9, earlier: 17},
		"9 tasks failed for good. All failed in the last 10 minutes. List them":          {failed: 9, recent: 9, started: 100},
		"99 tasks failed for good. 9 of them failed in the last 10 minutes. List them":   {failed: 99, recent: 9, earlier: 19},
	} {
		f := v.judge(q.Failed(), "q", inspect.CheckOptions{})[0]
		is.True(strings.HasPrefix(f.Text, want))
		is.Equal(f.Key, keyOf(q.Failed(), "ready"))
	}
}

// The age of a run comes from its id.
func TestRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var r runs
	for _, id := range []string{attempt(time.Minute), attempt(time.Hour), "x"} {
		one := run{attempt: id, since: store.StartedAt(id)}
		r.add(now.UnixMilli(), inspect.CheckOptions{}, one)
	}
	is.Equal(r.oldest.attempt, attempt(time.Hour))
	is.Equal(age(now.UnixMilli(), r.newest), time.Minute)
}

// What to do about a Redis that isn't reached depends on what a new connection gives.
func TestNextStep(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379}
	for why, step := range map[error]string{
		syscall.ECONNREFUSED:     "Nothing listens at 10.0.0.1:6379: start Redis.",
		os.ErrDeadlineExceeded:   "10.0.0.1:6379 can't be reached: look at the network and the firewall; Redis may run.",
		syscall.ECONNRESET:       "list queues: dial 10.0.0.1:6379: connection reset by peer.",
		context.DeadlineExceeded: "10.0.0.1:6379 can't be reached: look at the network and the firewall; Redis may run.",
	} {
		f := Judge(&inspect.Sight{Err: fmt.Errorf("list queues: %w", &net.OpError{Op: "dial", Addr: at, Err: why})})[0]
		is.Equal(f.Text, step+" New tasks are refused. Handlers keep running, and no worker is evicted meanwhile.")
	}
	f := Judge(&inspect.Sight{Err: &net.OpError{Op: "read", Addr: at, Err: os.ErrDeadlineExceeded}})[0]
	is.True(strings.Contains(f.Text, "doesn't answer: Redis hangs, or the network drops packets. Look at its process, then at the network."))
}

// A queue that gets no slot has neighbors on its workers, and one of them runs most.
func TestStarved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	sight := func(name string, running int, oldest time.Duration) inspect.QueueSight {
		return inspect.QueueSight{Name: name, QueueStats: inspect.QueueStats{Workers: 1, Waiting: 1, Running: running, Oldest: oldest}}
	}
	all := Judge(&inspect.Sight{At: now, Workers: []inspect.Worker{{Name: "a", Queues: []string{"mails", "images", "bills"}}, {Name: "b", Queues: []string{"other"}}},
		Queues: []inspect.QueueSight{sight("bills", 1, 0), sight("images", 2, 0), sight("mails", 0, time.Hour), sight("other", 9, 0)}})
	is.True(slices.ContainsFunc(all, func(f inspect.Finding) bool {
		return f.Kind == starved && strings.Contains(f.Text, "has waited for 1h0m0s. Of the queues on its workers, images holds most tasks: 2. Raise Capacity")
	}))
}

// The workers with different leases are told apart by when they started.
func TestLeasesDiffer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	worker := func(ago, lease time.Duration) inspect.Worker {
		return inspect.Worker{Name: "vm:7", StartedAt: now.Add(-ago), Lease: lease, Queues: []string{"q"}}
	}
	all := Judge(&inspect.Sight{At: now, Workers: []inspect.Worker{worker(time.Hour, 3*time.Second), worker(20*time.Second, 10*time.Second)},
		Server: inspect.ServerStats{RoundTrip: time.Second}})
	is.Equal(len(all), 2)
	is.True(strings.Contains(all[0].Text, " vm:7, started 60 minutes ago, has 3s; vm:7, started 20 seconds ago, has 10s. While a deploy"))
	is.True(strings.HasPrefix(all[1].Text, "Redis took 1s to answer. Tasks start and end that much later; from 500ms on, tasks of dead workers wait."))
}
