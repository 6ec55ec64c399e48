package worqr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestTimes(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	for _, past := range []time.Time{
		time.Now().Add(-time.Hour), time.Unix(0, 0), time.Unix(0, 1), time.Unix(-1, 0), time.Unix(-1, 999_999_999),
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{},
		time.Unix(-10_000_000_000_000_000, 0), time.Unix(math.MinInt64, 0), // for these, UnixMilli overflows
	} {
		key, err := q.EnqueueAt(ctx, past, []byte("past"))
		if err != nil {
			t.Fatalf("%v is in the past: %v", past, err)
		}
		task, err := q.StartTask(ctx)
		if err != nil {
			t.Fatalf("%v is in the past: %v", past, err)
		}
		is.Equal(task.Key, key)
		is.NoErr(task.Finish(ctx))
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	key, err := q.EnqueueAt(ctx, last, []byte("far"))
	is.NoErr(err)
	s := scheduled(t, q)
	is.True(s[0].DueAt.Equal(last))
	is.Equal(s[0].Key, key)
	noTask(t, q)
	last = last.Add(time.Second - 1) // the last nanosecond may be rounded
	is.NoErr(q.Put(ctx, "last", []byte("far"), &worqr.PutOptions{At: last}))
	is.Equal(len(scheduled(t, q)), 2)
	noTask(t, q)
	for _, bad := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0), time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(math.MaxInt64, 0), // Before thinks that this is before everything else
	} {
		_, err = q.EnqueueAt(ctx, bad, []byte("x"))
		is.True(is_(err, worqr.ErrInvalid))
		is.True(strings.Contains(err.Error(), `enqueue at a time on "q"`))
		is.True(is_(q.Put(ctx, "x", []byte("x"), &worqr.PutOptions{At: bad}), worqr.ErrInvalid))
	}
	// In the caller's time zone, or any other.
	at := time.Date(2100, 1, 1, 12, 0, 0, 123_000_000, time.FixedZone("far east", 14*3600))
	put(t, q, "zone", "x", &worqr.PutOptions{At: at})
	is.True(scheduled(t, q)[0].DueAt.Equal(at))
	for _, when := range []worqr.Reschedule{-1, worqr.RescheduleIfEarlier + 1, 100} {
		is.True(is_(q.Put(ctx, "x", nil, &worqr.PutOptions{Reschedule: when}), worqr.ErrInvalid))
	}
	is.Equal(len(scheduled(t, q)), 3)
}

func TestKeys(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	for _, bad := range []string{"", strings.Repeat("k", worqr.MaxKeySize+1)} {
		is.True(is_(q.Put(ctx, bad, []byte("x"), nil), worqr.ErrInvalid))
		is.True(is_(failure(q.RemoveKey(ctx, bad)), worqr.ErrInvalid))
		is.True(is_(failure(q.CancelKey(ctx, bad)), worqr.ErrInvalid))
	}
	keys := []string{
		"k", " ", "\x00", "a\x00b", "a\nb\r\n", "\xff\xfe\xc0", "{}", "{q}", "}x{", "a:b:c", ":", "k:k", "r:k", "*", "%s%d", "ключ",
		"w:x", "offset", "0", "-1", "1e5", `"`, `\`, "00000000-0000-7000-8000-000000000000",
		strings.Repeat("k", worqr.MaxKeySize), strings.Repeat("\x00", worqr.MaxKeySize),
	}
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	keys = append(keys, string(all))
	for i, key := range keys {
		put(t, q, key, fmt.Sprint(i), &worqr.PutOptions{At: time.UnixMilli(int64(i + 1))})
	}
	s := scheduled(t, q)
	is.Equal(len(s), len(keys))
	for i, key := range keys {
		is.Equal(s[i].Key, key)
	}
	tasks := sure(q.StartTasks(ctx, len(keys)+1))(t)
	is.Equal(len(tasks), len(keys))
	for i, key := range keys {
		is.Equal(tasks[i].Key, key)
		is.Equal(string(tasks[i].Payload), fmt.Sprint(i))
		put(t, q, key, "blocked", nil)
		is.True(sure(q.RemoveKey(ctx, key))(t))
		switch i % 3 {
		case 0:
			is.NoErr(tasks[i].Retry(ctx, time.Hour))
			is.Equal(sure(q.CancelKey(ctx, key))(t).Removed, 1)
		case 1:
			is.NoErr(tasks[i].Fail(ctx, errors.New("no")))
			is.Equal(failed(t, q)[0].Key, key)
			is.Equal(sure(q.RequeueFailed(ctx, tasks[i].AttemptID))(t), 1)
			task := take(t, q)
			is.Equal(task.Key, key)
			is.NoErr(task.Finish(ctx))
		default:
			report := sure(q.CancelKey(ctx, key))(t)
			<-tasks[i].Context().Done()
			is.Equal(context.Cause(tasks[i].Context()), worqr.ErrCanceled)
			is.NoErr(tasks[i].Stop(ctx))
			wait(t, report)
			is.Equal(report.Stopped, 1)
		}
	}
	is.NoErr(p.StopWorker(ctx))
	nothingLeftBut(t, prefix, "q")
}

func TestBadProperties(t *testing.T) {
	is := parallel(t)
	_, q := openQueue(t, worqr.Options{})
	many := map[string]string{}
	for len(many) <= worqr.MaxHeaders {
		many[strings.Repeat("h", len(many)+1)] = ""
	}
	for name, c := range map[string]struct {
		props worqr.Properties
		want  error
	}{
		"header without a name": {worqr.Properties{Headers: map[string]string{"": "v"}}, worqr.ErrInvalid},
		"many headers":          {worqr.Properties{Headers: many}, worqr.ErrTooLarge},
		"long header":           {worqr.Properties{Headers: map[string]string{"h": strings.Repeat("v", worqr.MaxHeaderBytes)}}, worqr.ErrTooLarge},
		"Expires in year 10000": {worqr.Properties{Expires: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, worqr.ErrInvalid},
		"Timeout":               {worqr.Properties{Timeout: -1}, worqr.ErrInvalid},
		"long Timeout":          {worqr.Properties{Timeout: 1 << 62}, worqr.ErrInvalid},
		"MaxRetries":            {worqr.Properties{MaxRetries: 1 << 30}, worqr.ErrInvalid},
		"OnceFor alone":         {worqr.Properties{OnceFor: time.Hour}, worqr.ErrInvalid},
		"OnceFor before now":    {worqr.Properties{Once: "o", OnceFor: -1}, worqr.ErrInvalid},
		"OnceFor too long":      {worqr.Properties{Once: "o", OnceFor: worqr.MaxOnceFor + 1}, worqr.ErrInvalid},
		"long Once":             {worqr.Properties{Once: strings.Repeat("o", worqr.MaxKeySize+1)}, worqr.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			ctx, payload := t.Context(), []byte(canary)
			errs := []error{
				peertest.Failure(q.Add(ctx, payload, &c.props)), peertest.Failure(q.AddAt(ctx, time.Now(), payload, &c.props)),
				q.Put(ctx, "key", payload, &worqr.PutOptions{Properties: c.props}),
			}
			if c.props.Once == "" {
				errs = append(errs, peertest.Failure(q.AddMany(ctx, []worqr.TaskSpec{{}, {Payload: payload, Properties: c.props}})))
			}
			for _, err := range errs {
				is.True(is_(err, c.want) && !strings.Contains(err.Error(), canary))
			}
		})
	}
	_, err := q.AddMany(t.Context(), []worqr.TaskSpec{{Properties: worqr.Properties{Once: "o"}}})
	is.True(is_(err, worqr.ErrInvalid))
	_, err = q.AddMany(t.Context(), nil)
	is.True(is_(err, worqr.ErrInvalid)) // as for Enqueue without payloads
	stats, err := q.Stats(t.Context())
	is.NoErr(err)
	is.Equal(stats.Waiting+stats.Scheduled, 0)
}

// The last moment of the year 9999, with which programs mean never, isn't rounded up to the next
// year: JSON has no such times.
func TestNever(t *testing.T) {
	is := parallel(t)
	ctx, never := t.Context(), time.Date(10_000, 1, 1, 0, 0, 0, -1, time.UTC)
	q := open(t, worqr.Options{}).Queue("q")
	_, err := q.AddAt(ctx, never, nil, &worqr.Properties{Expires: never})
	is.NoErr(err)
	for task := range each(t, q.Scheduled(ctx)) {
		task.DueAt, task.Expires = task.DueAt.UTC(), task.Expires.UTC()
		_, err := json.Marshal(task)
		is.NoErr(err)
	}
}

// Errors name long limits in days, not in hours.
func TestLimitsInDays(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	for _, props := range []worqr.Properties{{KeepResult: worqr.MaxKeepResult + 1}, {Once: "o", OnceFor: worqr.MaxOnceFor + 1}} {
		_, err := q.Add(t.Context(), nil, &props)
		is.True(err != nil && strings.HasSuffix(err.Error(), " and 30 days"))
	}
	_, err := worqr.Open("redis://localhost:6379", &worqr.Options{Lease: 366 * 24 * time.Hour})
	is.True(err != nil && strings.Contains(err.Error(), "365 days"))
}
