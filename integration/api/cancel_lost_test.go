package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A cancel whose keys Redis has lost ends with ErrUnknownOutcome, instead of waiting for what
// nobody says any more.
func TestCancelOfWhatRedisLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(c redis.Conn, prefix, process string) error{
		"all": func(c redis.Conn, prefix, _ string) error {
			keys, err := redis.Strings(c.Do("KEYS", prefix+":*"))
			if err != nil {
				return err
			}
			_, err = c.Do("DEL", redis.Args{}.AddFlat(keys)...)
			return err
		},
		"the process list": func(c redis.Conn, prefix, process string) error {
			_, err := c.Do("DEL", prefix+":process:{q}:"+process)
			return err
		},
		"the record, in a time before the cancel": func(c redis.Conn, prefix, _ string) error {
			_, err := c.Do("HSET", prefix+":cancel:{q}:"+sha("x"), "token", 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix := redistest.Prefix(t)
			c := redistest.Conn(t)
			q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
			enqueue(t, q, "x")
			task := take(t, q)
			report := cancel(t, open(t, worqr.Options{Prefix: prefix}).Queue("q"), "x")
			<-task.Context().Done()
			eventually(t, "the worker says that it runs", func() bool {
				n, err := redis.Int(c.Do("ZCARD", prefix+":stopping:{q}"))
				return err == nil && n == 1
			})
			is.NoErr(lose(c, prefix, task.AttemptID))
			is.True(is_(waitAll(t, report), worqr.ErrUnknownOutcome))
		})
	}
}

// Nor does it wait for a worker that can't say anything: one that is no member, or is
// never told, since the log has lost the cancel.
func TestCancelThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]string{
		"no member":      "ZREM %:workers:{q} w1",
		"not in the log": "ZREM %:canceled:{q} " + sha("x"),
		"an old log":     "ZADD %:canceled:{q} 1 " + sha("x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix := redistest.Prefix(t)
			c := redistest.Conn(t)
			do := func(command string) {
				t.Helper()
				words := strings.Fields(strings.ReplaceAll(command, "%", prefix))
				_, err := c.Do(words[0], redis.Args{}.AddFlat(words[1:])...)
				is.NoErr(err)
			}
			do("SET %:token:{q} 5")
			do("ZADD %:workers:{q} " + far + " w1")
			do("ZADD %:holders:{q} 5 w1")
			report := cancel(t, open(t, worqr.Options{Prefix: prefix}).Queue("q"), "x")
			ctx, end := context.WithTimeout(t.Context(), 1500*time.Millisecond) // more than one examination
			defer end()
			is.True(is_(report.Wait(ctx), context.DeadlineExceeded)) // w1 may still say something
			do(then)
			is.True(is_(waitAll(t, report), worqr.ErrUnknownOutcome))
		})
	}
}

// A cancel whose record alone is lost waits for what runs all the same, and has no
// figures.
func TestCancelWithoutRecord(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	c := redistest.Conn(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
	enqueue(t, q, "x")
	task := take(t, q)
	report := cancel(t, q, "x")
	<-task.Context().Done()
	_, err := c.Do("DEL", prefix+":cancel:{q}:"+sha("x"))
	is.NoErr(err)
	ctx, end := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer end()
	is.True(is_(report.Wait(ctx), context.DeadlineExceeded))
	is.NoErr(task.Stop(t.Context()))
	is.NoErr(waitAll(t, report))
	is.Equal(report.Stopped+report.Finished, 0)
}

// waitAll is Wait, with patience.
func waitAll(t testing.TB, report *worqr.CancelReport) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return report.Wait(ctx)
}
