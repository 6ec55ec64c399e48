package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// health is what a check has found of the service: severity and kind.
func health(r *worqr.CheckReport) (all []string) {
	for _, f := range r.Findings {
		if service[f.Kind] {
			all = append(all, fmt.Sprintf("%s %s", f.Severity, f.Kind))
		}
	}
	return all
}

// since is the id of a process that began so long ago.
func since(ago time.Duration) string {
	id := uuid.Must(uuid.NewV7())
	ms := time.Now().Add(-ago).UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id.String()
}

// Each thing that ails a service is found: a notice by the defaults, a danger where a
// limit is set, and nothing where the limit is higher or the kind is ignored.
func TestCheckHealth(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	ms := func(ago time.Duration) int64 { return time.Now().Add(-ago).UnixMilli() }
	// Runs are held by w1, the first given first.
	runs := func(token int, ages ...time.Duration) (plant [][]any) {
		plant = append(plant, []any{"SET", ":token:{q}", token}, []any{"ZADD", ":holders:{q}", 0, "w1"})
		for i, age := range ages {
			id := since(age)
			plant = append(plant, []any{"LPUSH", ":process:{q}:" + id, canary}, []any{"ZADD", ":working:{q}:w1", i + 1, id})
		}
		return plant
	}
	waiting := func(n int) []any {
		c := []any{"LPUSH", ":queues:{q}"}
		for range n {
			c = append(c, canary)
		}
		return c
	}
	scheduled := func(lane string, n, retries int, due int64) (plant [][]any) {
		for i := range n {
			k := fmt.Sprint("k:", canary, i)
			plant = append(plant, []any{"HSET", lane + ":keyed:{q}:" + k, "payload", canary, "due", due, "retries", retries, "crashes", 0},
				[]any{"ZADD", lane + ":schedule:{q}", due, k}, []any{"ZADD", lane + ":contents:{q}", 0, sha(canary) + ":" + k})
		}
		return plant
	}
	for _, c := range []struct {
		name    string
		plant   [][]any
		kind    worqr.FindingKind // "": nothing
		says    string
		limit   worqr.CheckOptions // that is exceeded
		allowed worqr.CheckOptions // that is not
	}{
		{name: "nothing"},
		{name: "a run of a while", plant: runs(1, 50*time.Minute)},
		{name: "runs of hours", plant: runs(2, 2*hour, 3*hour), kind: "long-run", says: "2 tasks have run for longer than 1h0m0s",
			limit: worqr.CheckOptions{MaxRunTime: hour}, allowed: worqr.CheckOptions{MaxRunTime: 4 * hour}},
		{name: "a run of minutes, with a limit", plant: runs(1, 5*time.Minute), kind: "long-run", says: "1 task has run for longer than 1m0s",
			limit: worqr.CheckOptions{MaxRunTime: time.Minute}, allowed: worqr.CheckOptions{MaxRunTime: 6 * time.Minute}},
		{name: "a run of minutes among short ones", plant: runs(500, 5*time.Minute, time.Second), kind: "long-run", says: "499 have started since"},
		{name: "runs of seconds among shorter ones", plant: runs(500, 20*time.Second, time.Second)},
		{name: "runs of minutes like the others", plant: runs(200, 5*time.Minute, 4*time.Minute, 3*time.Minute)},
		{name: "all handlers are stuck", plant: append(runs(4, 20*time.Minute, 20*time.Minute, 20*time.Minute, 20*time.Minute), waiting(3)), kind: "stalled",
			says: "3 tasks are waiting, and none has started for 20m", limit: worqr.CheckOptions{MaxWaitTime: time.Minute}, allowed: worqr.CheckOptions{MaxWaitTime: hour}},
		{name: "one of them is idle", plant: append(runs(1, 20*time.Minute), waiting(3), []any{"ZADD", ":idle:{q}", 1, "w1"})},
		{name: "due long ago", plant: scheduled("", 1, 0, ms(20*time.Minute)), kind: "overdue", says: "A task was due 20m",
			limit: worqr.CheckOptions{MaxWaitTime: time.Minute}, allowed: worqr.CheckOptions{MaxWaitTime: hour}},
		{name: "due later", plant: scheduled("", 20, 0, ms(-hour))},
		{name: "a backlog", plant: [][]any{waiting(30)}, kind: "backlog", says: "30 tasks are waiting; the limit is 29",
			limit: worqr.CheckOptions{MaxBacklog: 29}, allowed: worqr.CheckOptions{MaxBacklog: 30}},
		{name: "one task too many", plant: [][]any{waiting(1)}, kind: "backlog", says: "1 task is waiting; the limit is 0",
			limit: worqr.CheckOptions{MaxBacklog: -1}, allowed: worqr.CheckOptions{MaxBacklog: 1}},
		{name: "retries", plant: scheduled("", 30, 1, ms(-hour)), kind: "retrying", says: "30 tasks are waiting to be retried; the limit is 10",
			limit: worqr.CheckOptions{MaxRetrying: 10}, allowed: worqr.CheckOptions{MaxRetrying: 30}},
		{name: "a few retries", plant: scheduled("", 10, 1, ms(-hour))},
		{name: "failed lately", plant: scheduled(":failed", 30, 1, ms(time.Minute)), kind: "failed", says: "30 tasks have failed for good, 30 of them in the last hour",
			limit: worqr.CheckOptions{MaxFailed: 29}, allowed: worqr.CheckOptions{MaxFailed: 30}},
		{name: "failed long ago", plant: scheduled(":failed", 1, 1, ms(3*hour)), kind: "failed", says: "1 task has failed for good, none of them in the last hour",
			limit: worqr.CheckOptions{MaxFailed: -1}, allowed: worqr.CheckOptions{MaxFailed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) { // in turn: what is planted ages
			is := is.New(t)
			prefix := redistest.Prefix(t)
			doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
			conn := redistest.Conn(t)
			for _, line := range member {
				words := strings.Fields(line)
				c.plant = append(c.plant, []any{words[0], strings.TrimPrefix(words[1], "p")})
				for _, w := range words[2:] {
					c.plant[len(c.plant)-1] = append(c.plant[len(c.plant)-1], w)
				}
			}
			for _, command := range c.plant {
				command = append([]any{}, command...)
				command[1] = prefix + command[1].(string)
				_, err := conn.Do(command[0].(string), command[1:]...)
				is.NoErr(err)
			}
			look := func(o *worqr.CheckOptions, want ...string) {
				t.Helper()
				report, err := doctor.Check(t.Context(), o)
				is.NoErr(err)
				if got := health(report); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("with %+v: %v, want %v:\n%s", o, got, want, report)
				}
				if len(want) > 0 && !strings.Contains(report.String(), c.says) {
					t.Errorf("it does not say %q:\n%s", c.says, report)
				}
				is.True(!strings.Contains(report.String(), canary))
				if ill := ills(report); len(ill) > 0 {
					t.Errorf("besides: %v", ill)
				}
			}
			notice, danger := "notice "+string(c.kind), "warning "+string(c.kind)
			switch {
			case c.kind == "":
				look(nil)
				return
			case c.limit.MaxBacklog == 0 && c.limit.MaxRunTime != time.Minute:
				look(nil, notice)
				look(&worqr.CheckOptions{Ignore: []worqr.FindingKind{"wrong-type", c.kind}})
			}
			if c.limit.MaxRunTime+c.limit.MaxWaitTime > 0 || c.limit.MaxBacklog != 0 || c.limit.MaxRetrying != 0 || c.limit.MaxFailed != 0 {
				look(&c.limit, danger)
				look(&c.allowed)
			}
		})
	}
}

// A fleet whose tasks have failed and are retried is not well without a word.
func TestCheckFailing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, numbers("", 60)...)
	held, err := q.StartTasks(t.Context(), 60)
	is.NoErr(err)
	for i, task := range held {
		if i%2 == 0 {
			must(t, task.Retry(t.Context(), time.Hour))
		} else {
			must(t, task.Fail(t.Context(), errors.New("no")))
		}
	}
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	report, err := doctor.Check(t.Context(), nil)
	is.NoErr(err)
	is.True(report.OK())
	is.Equal(health(report), []string{"notice retrying", "notice failed"})
	is.Equal(report.Queues, 1) // its failed queue is not another one
	is.True(strings.Contains(report.String(), " of 1 queue:"))
}

// Handlers that ignore their context are told of by their peer, and not any more when
// they have returned.
func TestCheckStuck(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	release := make(chan struct{})
	p.Queue("q").Handle(func(context.Context, *worqr.Task) error {
		<-release
		return nil
	}, &worqr.HandleOptions{Concurrency: 2, Timeout: time.Millisecond, Grace: time.Millisecond, MaxRetries: -1})
	run(t, p)
	enqueue(t, p.Queue("q"), "a", "b")
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	stuck := func() (n int) {
		for w, err := range doctor.Workers(t.Context()) {
			is.NoErr(err)
			n += w.StuckHandlers
		}
		return n
	}
	eventually(t, "the peer says so", func() bool { return stuck() == 2 })
	report, err := doctor.Check(t.Context(), &worqr.CheckOptions{Ignore: []worqr.FindingKind{"failed"}})
	is.NoErr(err)
	is.Equal(health(report), []string{"warning stuck-handler"})
	is.True(strings.Contains(report.String(), "has 2 handlers that didn't return"))
	close(release)
	eventually(t, "they have returned", func() bool { return stuck() == 0 })
}

// Options that make no sense are refused, and kinds that there are none of.
func TestCheckOptions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	for _, o := range []worqr.CheckOptions{{MaxRunTime: -1}, {MaxWaitTime: -1}, {Ignore: []worqr.FindingKind{"perisstence"}}} {
		_, err := p.Check(t.Context(), &o)
		is.True(is_(err, worqr.ErrInvalid))
	}
}
