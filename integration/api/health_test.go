package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// health returns what a check found about the service: severity and kind.
func health(r *inspect.CheckReport) (all []string) {
	for _, f := range r.Findings {
		if service[f.Kind] {
			all = append(all, fmt.Sprintf("%s %s", f.Severity, f.Kind))
		}
	}
	return all
}

// since returns the id of an attempt that w1 began that long ago.
func since(ago time.Duration, n int) string {
	return fmt.Sprintf("w1.1.%d.%d", time.Now().Add(-ago).UnixMilli(), n)
}

// Check reads from Redis how long tasks run, and when the last one started. TestNumbers covers the
// other numbers, and the tests of internal/doctor how Check judges them.
func TestCheckHealth(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	// w1 holds the runs, in the given order.
	runs := func(ages ...time.Duration) (plant [][]any) {
		plant = append(plant, []any{"HSET", ":state:{q}", "token", len(ages)})
		for i, age := range ages {
			id := since(age, i+1)
			plant = append(plant, []any{"LPUSH", ":process:{q}:" + id, canary}, []any{"ZADD", ":working:{q}:w1", i + 1, id})
		}
		return plant
	}
	waiting := []any{"LPUSH", ":queues:{q}", canary, canary, canary}
	for _, c := range []struct {
		name        string
		plant       func() [][]any // run by the test, since what it plants gets older
		limit       inspect.CheckOptions
		finds, says string
	}{
		{name: "nothing", plant: func() [][]any { return nil }},
		{name: "runs of hours", plant: func() [][]any { return runs(2*hour, 3*hour) }, finds: "stuck long-run", says: "2 tasks have run for very long. The limit is 1h0m0s"},
		{name: "all handlers are stuck", plant: func() [][]any { return append(runs(20*time.Minute, 20*time.Minute), waiting) }, finds: "stopped stalled", says: "Nothing has started for 20m"},
		{name: "one of them is idle", plant: func() [][]any {
			return append(runs(20*time.Minute), waiting, []any{"ZADD", ":idle:{q}", 1, "w1"})
		}},
		{name: "failed long ago, and OnFailed has just given up", plant: func() [][]any {
			return [][]any{{"HSET", ":failed:tasks:{q}", "k:x#1", failedRecord("k:x", canary)}, {"ZADD", ":failed:aside:{q}", 1, "k:x#1"}, {"HSET", ":failed:state:{q}", "place", 1}}
		}, finds: "notice failed", says: "1 task failed for good. None failed"},
		{name: "a backlog, ignored", plant: func() [][]any { return [][]any{waiting} }, limit: inspect.CheckOptions{MaxBacklog: 2, Ignore: []inspect.FindingKind{"backlog"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			is := parallel(t)
			prefix, conn := redistest.Prefix(t), redistest.Conn(t)
			plant := c.plant()
			for _, line := range member {
				words := strings.Fields(line)
				command := []any{words[0], strings.TrimPrefix(words[1], "p")}
				for _, word := range words[2:] {
					command = append(command, word)
				}
				plant = append(plant, command)
			}
			for _, command := range plant {
				redistest.Do(t, conn, command[0].(string), append([]any{prefix + command[1].(string)}, command[2:]...)...)
			}
			report := sure(openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond}).Check(t.Context(), &c.limit))(t)
			is.Equal(strings.Join(health(report), ", "), c.finds)
			is.True(strings.Contains(report.String(), c.says))
			is.True(!strings.Contains(report.String(), canary))
			is.Equal(len(ills(report)), 0)
		})
	}
}

// Tasks that fail while Check looks are as new as the others.
func TestCheckFailingMeanwhile(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix, Lease: time.Hour}), "q")
	enqueue(t, q, "a", "b")
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	must(t, tasks[0].Fail(t.Context(), errors.New("no")))
	began := time.Now()
	fails := sync.OnceFunc(func() {
		eventually(t, "a few ms have passed", func() bool { return time.Since(began) > 5*time.Millisecond })
		must(t, tasks[1].Fail(t.Context(), errors.New("no")))
	})
	doctor := openThrough(t, redistest.Doctor(t, redistest.URL(), prefix), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond}, func(c *through) redis.Conn {
		c.OnSend = func(command string, _ []any) {
			if command == "SCAN" {
				fails()
			}
		}
		return c
	})
	report := sure(doctor.Check(t.Context(), nil))(t)
	is.True(strings.Contains(report.String(), "2 tasks failed for good. All failed in the last 10 minutes. "))
}

// A peer reports handlers that ignore their context until they have returned.
func TestCheckStuck(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 2 * time.Second})
	release := make(chan struct{})
	p.Queue("q").Handle(func(context.Context, *worqr.Task) error {
		<-release
		return nil
	}, &worqr.HandleOptions{Concurrency: 2, Timeout: time.Millisecond, Grace: time.Millisecond, MaxRetries: -1})
	run(t, p)
	enqueue(t, p.Queue("q"), "a", "b")
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	stuck := func() (n int) {
		for w := range each(t, doctor.Workers(t.Context())) {
			n += w.StuckHandlers
		}
		return n
	}
	eventually(t, "the peer says so", func() bool { return stuck() == 2 })
	report := sure(doctor.Check(t.Context(), &inspect.CheckOptions{Ignore: []inspect.FindingKind{"failed"}}))(t)
	is.Equal(health(report), []string{"stuck stuck-handler"})
	is.True(strings.Contains(report.String(), "2 handlers haven't returned, though their attempts timed out or were stopped"))
	close(release)
	eventually(t, "they have returned", func() bool { return stuck() == 0 })
}

// Invalid options and unknown kinds are refused.
func TestCheckOptions(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	for about, o := range map[string]inspect.CheckOptions{
		"MaxRunTime": {MaxRunTime: -1}, "MaxWaitTime": {MaxWaitTime: -1}, "in Ignore": {Ignore: []inspect.FindingKind{"perisstence"}},
	} {
		err := failure(p.Check(t.Context(), &o))
		is.True(is_(err, worqr.ErrInvalid))
		is.True(strings.Contains(err.Error(), about))
		is.True(strings.Contains(err.Error(), "MaxRunTime") == (about == "MaxRunTime")) // only what is wrong
	}
}
