package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// recurs asserts a schedule under a name, with the times in minutes from now, and returns them.
func recurs(t *testing.T, r Runner, q keys.Queue, name string, record Record, minutes ...int) (times []int64) {
	t.Helper()
	is := is.New(t)
	now, err := NowAt(t.Context(), r, q)
	is.NoErr(err)
	for _, m := range minutes {
		times = append(times, now+int64(m)*60_000)
	}
	print := fmt.Sprint(now, ":", "aa")
	told, _, _, err := Recur(t.Context(), r, q, 10_000, 0, []Schedule{{Name: name, Prints: []string{print}}})
	is.NoErr(err)
	is.Equal(told[0].Word, ScheduleWanted)
	is.Equal(len(told[0].After), 1)
	told, _, _, err = Recur(t.Context(), r, q, 10_000, 0, []Schedule{
		{Name: name, Since: told[0].Since, Prints: []string{print}, Times: times, Record: record.Append(nil)},
	})
	is.NoErr(err)
	is.Equal(told[0].Word, ScheduleHeld)
	return times
}

func newLine(t *testing.T) *redisconn.Line {
	line := redisconn.NewLine(redistest.Sure(Open(redistest.URL(), Access{}))(t).Dial(), 10*time.Second)
	t.Cleanup(line.Close)
	return line
}

// A listing has what occurs next, what runs, and how the last occurrence ended.
func TestRecurring(t *testing.T) {
	is := redistest.Parallel(t)
	line, q := newLine(t), keys.NewSpace(redistest.Prefix(t)).Queue("q")
	one := Record{Payload: []byte("a"), Metadata: Metadata{MaxRetries: 3, Expression: "@hourly"}, Keep: time.Minute, Expires: 5000}
	times := recurs(t, line, q, "k:x", one, 10, 20, 30)
	under := func() *inspect.RecurringTask {
		t.Helper()
		all := []inspect.RecurringTask{}
		for r, err := range Recurring(t.Context(), line, q) {
			is.NoErr(err)
			all = append(all, r)
		}
		is.Equal(len(all), 1)
		now, err := NowAt(t.Context(), line, q)
		is.NoErr(err)
		only, err := RecurringUnder(t.Context(), line, q, "k:x", now)
		is.NoErr(err)
		is.Equal(*only, all[0])
		return only
	}
	r := under()
	is.Equal(*r, inspect.RecurringTask{Key: "x", Expression: "@hourly", Next: Moment(times[0]), Times: []time.Time{Moment(times[0]), Moment(times[1]), Moment(times[2])}, Asserted: true})

	remove := func() {
		t.Helper()
		_, err := line.One(t.Context(), remove.call(SharedOf(q), "k:x", EndRemoved))
		is.NoErr(err)
	}
	remove()
	r = under()
	is.Equal([]any{r.Next, r.Current, r.Last().Outcome, r.Last().DueAt}, []any{Moment(times[1]), time.Time{}, "canceled", Moment(times[0])})
	is.True(!r.Last().At.IsZero() && time.Since(r.Last().At) < time.Minute)

	conn, tasks := redistest.Conn(t), q
	redistest.Do(t, conn, "HSET", tasks.Recurrence(), "passed:k:x", times[1]) // it has started
	r = under()
	is.Equal([]time.Time{r.Current, r.Next}, []time.Time{Moment(times[1]), Moment(times[2])})
	redistest.Do(t, conn, "DEL", tasks.Tasks())
	redistest.Do(t, conn, "HSET", tasks.Recurrence(), "passed:k:x", times[2])
	r = under()
	is.Equal([]time.Time{r.Current, r.Next}, []time.Time{{}, {}})

	record, found, err := Occurrence(t.Context(), line, q, "k:x")
	is.NoErr(err)
	is.True(found)
	one.Expires = 0
	is.Equal(record, one)
	_, found, err = Occurrence(t.Context(), line, q, "k:y")
	is.NoErr(err)
	is.True(!found)
	none, err := RecurringUnder(t.Context(), line, q, "k:y", 0)
	is.NoErr(err)
	is.True(none == nil)
}

// What other programs have written is no task, or an error.
func TestDamagedRecurring(t *testing.T) {
	is := redistest.Parallel(t)
	line, q := newLine(t), keys.NewSpace(redistest.Prefix(t)).Queue("q")
	conn := redistest.Conn(t)
	redistest.Do(t, conn, "ZADD", q.Recurring(), "inf", "k:x")
	redistest.Do(t, conn, "HSET", q.Recurrence(), "k:x", "foreign", "passed:k:x", "foreign", "last:k:x", "\x1b:x:y")
	for r, err := range Recurring(t.Context(), line, q) {
		is.NoErr(err)
		is.Equal(r, inspect.RecurringTask{Key: "x", Asserted: true})
	}
	_, found, err := Occurrence(t.Context(), line, q, "k:x")
	is.NoErr(err)
	is.True(!found)
	redistest.Do(t, conn, "DEL", q.Recurrence())
	redistest.Do(t, conn, "SET", q.Recurrence(), "foreign")
	for _, err := range Recurring(t.Context(), line, q) {
		is.True(IsWrongType(err))
	}
}

// Schedules that no peer asserts end, however many there are; the others stay.
func TestEndRecurring(t *testing.T) {
	is := redistest.Parallel(t)
	line, q := newLine(t), keys.NewSpace(redistest.Prefix(t)).Queue("q")
	recurs(t, line, q, "k:x", Record{}, 10)
	conn := redistest.Conn(t)
	for i := range 120 {
		redistest.Do(t, conn, "ZADD", q.Recurring(), 1, fmt.Sprint("k:", i))
	}
	is.NoErr(EndRecurring(t.Context(), line, q))
	is.Equal(redistest.Do(t, conn, "ZCARD", q.Recurring()), int64(1))
}
