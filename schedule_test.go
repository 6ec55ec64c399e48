package worqr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
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
		keys, err := q.Add(ctx, worqr.TaskSpec{Payload: []byte("past"), At: past})
		if err != nil {
			t.Fatalf("%v is in the past: %v", past, err)
		}
		task, err := q.StartTask(ctx)
		if err != nil {
			t.Fatalf("%v is in the past: %v", past, err)
		}
		is.Equal(task.Key, keys[0])
		is.NoErr(task.Finish(ctx))
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	key := add(t, q, worqr.TaskSpec{Payload: []byte("far"), At: last})
	s := scheduled(t, q)
	is.True(s[0].DueAt.Equal(last))
	is.Equal(s[0].Key, key)
	noTask(t, q)
	last = last.Add(time.Second - 1) // the last nanosecond may be rounded
	sure(q.Add(ctx, worqr.TaskSpec{Key: "last", Payload: []byte("far"), At: last}))(t)
	is.Equal(len(scheduled(t, q)), 2)
	noTask(t, q)
	for _, bad := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0), time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(math.MaxInt64, 0), // Before thinks that this is before everything else
	} {
		_, err := q.Add(ctx, worqr.TaskSpec{Payload: []byte("x"), At: bad})
		is.True(is_(err, worqr.ErrInvalid))
		is.True(strings.Contains(err.Error(), `add on "q"`))
		is.True(is_(failure(q.Add(ctx, worqr.TaskSpec{Key: "x", Payload: []byte("x"), At: bad})), worqr.ErrInvalid))
	}
	// In the caller's time zone, or any other.
	at := time.Date(2100, 1, 1, 12, 0, 0, 123_000_000, time.FixedZone("far east", 14*3600))
	add(t, q, worqr.TaskSpec{Key: "zone", Payload: []byte("x"), At: at})
	is.True(scheduled(t, q)[0].DueAt.Equal(at))
	for _, when := range []worqr.Reschedule{-1, worqr.RescheduleIfEarlier + 1, 100} {
		is.True(is_(failure(q.Add(ctx, worqr.TaskSpec{Key: "x", Reschedule: when})), worqr.ErrInvalid))
	}
	is.Equal(len(scheduled(t, q)), 3)
}

func TestKeys(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	long := strings.Repeat("k", worqr.MaxKeySize+1)
	is.True(is_(failure(q.Add(ctx, worqr.TaskSpec{Key: long, Payload: []byte("x")})), worqr.ErrTooLarge))
	for _, bad := range []string{"", long} {
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
		add(t, q, worqr.TaskSpec{Key: key, Payload: fmt.Append(nil, i), At: time.UnixMilli(int64(i + 1))})
	}
	s := named(t, q)
	is.Equal(len(s), len(keys))
	for i, key := range keys {
		is.Equal(s[i].Key, key)
	}
	tasks := sure(q.StartTasks(ctx, len(keys)+1))(t)
	is.Equal(len(tasks), len(keys))
	for i, key := range keys {
		is.Equal(tasks[i].Key, key)
		is.Equal(string(tasks[i].Payload), fmt.Sprint(i))
		add(t, q, worqr.TaskSpec{Key: key, Payload: []byte("blocked")})
		is.True(sure(q.RemoveKey(ctx, key))(t))
		switch i % 3 {
		case 0:
			is.NoErr(tasks[i].Retry(ctx, time.Hour))
			is.Equal(sure(q.CancelKey(ctx, key))(t).Removed, 1)
		case 1:
			is.NoErr(tasks[i].Fail(ctx, errors.New("no")))
			is.Equal(failed(t, q)[0].Key, key)
			is.Equal(sure(q.RequeueFailed(ctx, failed(t, q)[0].ID))(t), 1)
			task := take(t, q)
			is.Equal(task.Key, key)
			is.NoErr(task.Finish(ctx))
		default:
			report := sure(q.CancelKey(ctx, key))(t)
			<-tasks[i].Context().Done()
			is.Equal(context.Cause(tasks[i].Context()), worqr.ErrCanceled)
			is.NoErr(tasks[i].Stop(ctx))
			wait(t, report)
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
		task worqr.TaskSpec
		want error
	}{
		"header without a name": {worqr.TaskSpec{Headers: map[string]string{"": "v"}}, worqr.ErrInvalid},
		"many headers":          {worqr.TaskSpec{Headers: many}, worqr.ErrTooLarge},
		"long header":           {worqr.TaskSpec{Headers: map[string]string{"h": strings.Repeat("v", worqr.MaxHeaderBytes)}}, worqr.ErrTooLarge},
		"Expires in year 10000": {worqr.TaskSpec{Expires: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, worqr.ErrInvalid},
		"Timeout":               {worqr.TaskSpec{Timeout: -1}, worqr.ErrInvalid},
		"long Timeout":          {worqr.TaskSpec{Timeout: 1 << 62}, worqr.ErrInvalid},
		"MaxRetries":            {worqr.TaskSpec{MaxRetries: 1 << 30}, worqr.ErrInvalid},
		"OnceFor alone":         {worqr.TaskSpec{OnceFor: time.Hour}, worqr.ErrInvalid},
		"OnceFor before now":    {worqr.TaskSpec{Once: "o", OnceFor: -1}, worqr.ErrInvalid},
		"OnceFor too long":      {worqr.TaskSpec{Once: "o", OnceFor: worqr.MaxOnceFor + 1}, worqr.ErrInvalid},
		"long Once":             {worqr.TaskSpec{Once: strings.Repeat("o", worqr.MaxKeySize+1)}, worqr.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			ctx, payload := t.Context(), []byte(canary)
			c.task.Payload = payload
			keyed, at := c.task, c.task
			keyed.Key, at.At = "key", time.Now()
			errs := []error{failure(q.Add(ctx, c.task)), failure(q.Add(ctx, keyed)), failure(q.Add(ctx, at)), c.task.Validate(0), failure(q.Add(ctx, worqr.TaskSpec{}, c.task))}
			for _, err := range errs {
				is.True(is_(err, c.want) && !strings.Contains(err.Error(), canary))
			}
		})
	}
	for _, bad := range []worqr.TaskSpec{ // what can't be combined
		{Unique: true, Key: "k"}, {Unique: true, KeepResult: time.Hour}, {Unique: true, KeepCounts: true},
		{KeepPayload: true}, {KeepCounts: true}, {Reschedule: worqr.RescheduleNever}, {Key: "k", Reschedule: -1},
	} {
		is.True(is_(failure(q.Add(t.Context(), bad)), worqr.ErrInvalid))
		is.True(is_(bad.Validate(0), worqr.ErrInvalid))
	}
	for _, twice := range []worqr.TaskSpec{{Key: "k"}, {Unique: true}, {Once: "o"}} {
		is.NoErr(twice.Validate(0))
		err := failure(q.Add(t.Context(), worqr.TaskSpec{}, twice, twice))
		is.True(is_(err, worqr.ErrInvalid) && strings.Contains(err.Error(), "task 3 of 3: ") && strings.Contains(err.Error(), "task 2 of the call"))
	}
	large := worqr.TaskSpec{Payload: make([]byte, worqr.DefaultMaxPayload+1)}
	is.True(is_(large.Validate(0), worqr.ErrTooLarge))
	is.NoErr(large.Validate(worqr.MaxPayloadSize))
	crowd := make([]worqr.TaskSpec, worqr.MaxTasks+1)
	is.True(is_(failure(q.Add(t.Context(), crowd...)), worqr.ErrTooLarge))
	crowd[0].Timeout = -1 // no task is looked at, since there may be millions
	is.True(is_(failure(q.Add(t.Context(), crowd...)), worqr.ErrTooLarge))
	none, err := q.Add(t.Context())
	is.True(none == nil && err == nil)
	stats, err := q.Stats(t.Context())
	is.NoErr(err)
	is.Equal(stats.Waiting+stats.Scheduled, 0)
}

// Any two fields of a task can be combined, except those that docs/scheduling.md names.
func TestFieldsCombine(t *testing.T) {
	is := parallel(t)
	later := time.Now().Add(time.Hour)
	fields := map[string]func(*worqr.TaskSpec){
		"Key": func(s *worqr.TaskSpec) { s.Key = "k" }, "At": func(s *worqr.TaskSpec) { s.At = later },
		"Unique": func(s *worqr.TaskSpec) { s.Unique = true }, "Headers": func(s *worqr.TaskSpec) { s.Headers = map[string]string{"a": "b"} },
		"Expires": func(s *worqr.TaskSpec) { s.Expires = later }, "Timeout": func(s *worqr.TaskSpec) { s.Timeout = time.Hour },
		"MaxRetries": func(s *worqr.TaskSpec) { s.MaxRetries = -1 }, "Once": func(s *worqr.TaskSpec) { s.Once = "o" },
		"OnceFor": func(s *worqr.TaskSpec) { s.OnceFor = time.Hour }, "KeepResult": func(s *worqr.TaskSpec) { s.KeepResult = time.Hour },
		"KeepPayload": func(s *worqr.TaskSpec) { s.KeepPayload = true }, "KeepCounts": func(s *worqr.TaskSpec) { s.KeepCounts = true },
		"Reschedule": func(s *worqr.TaskSpec) { s.Reschedule = worqr.RescheduleIfLater },
		"Payload":    func(s *worqr.TaskSpec) { s.Payload = []byte("p") },
	}
	is.Equal(len(fields), reflect.TypeFor[worqr.TaskSpec]().NumField())
	for a, setA := range fields {
		for b, setB := range fields {
			var s worqr.TaskSpec
			setA(&s)
			setB(&s)
			keeps := s.KeepPayload || s.KeepCounts || s.Reschedule != worqr.RescheduleAlways
			bad := s.Unique && (s.Key != "" || s.KeepResult != 0) || keeps && s.Key == "" || s.OnceFor != 0 && s.Once == ""
			if err := s.Validate(0); is_(err, worqr.ErrInvalid) != bad || !bad && err != nil {
				t.Errorf("%s with %s: %v", a, b, err)
			}
		}
	}
}

// The last moment of the year 9999, with which programs mean never, isn't rounded up to the next
// year: JSON has no such times.
func TestNever(t *testing.T) {
	is := parallel(t)
	ctx, never := t.Context(), time.Date(10_000, 1, 1, 0, 0, 0, -1, time.UTC)
	q := open(t, worqr.Options{}).Queue("q")
	_, err := q.Add(ctx, worqr.TaskSpec{At: never, Expires: never})
	is.NoErr(err)
	for task := range each(t, q.Named(ctx)) {
		task.DueAt, task.Expires = task.DueAt.UTC(), task.Expires.UTC()
		_, err := json.Marshal(task)
		is.NoErr(err)
	}
}

// Errors name long limits in days, not in hours.
func TestLimitsInDays(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	for _, bad := range []worqr.TaskSpec{{KeepResult: worqr.MaxKeepResult + 1}, {Once: "o", OnceFor: worqr.MaxOnceFor + 1}} {
		_, err := q.Add(t.Context(), bad)
		is.True(err != nil && strings.HasSuffix(err.Error(), " and 30 days"))
	}
	_, err := worqr.Open("redis://localhost:6379", &worqr.Options{Lease: 366 * 24 * time.Hour})
	is.True(err != nil && strings.Contains(err.Error(), "365 days"))
}

// Forget shortens nonces of both kinds, on several pages, and lengthens none.
func TestForget(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	q, ctx := open(t, worqr.Options{Prefix: prefix}).Queue("q"), t.Context()
	once := func(nonce string) bool { return sure(q.EnqueueOnce(ctx, nonce, []byte("x")))(t) }
	nonces := numbers("n", 150)
	for _, nonce := range nonces {
		is.True(once(nonce))
	}
	added := worqr.TaskSpec{Once: "added", OnceFor: time.Hour}
	key := sure(q.Add(ctx, added))(t)
	nonces = append(nonces, "added")
	is.True(once("kept"))
	left := func() (most int64) {
		for _, key := range redistest.Keys(t, conn, prefix) {
			if strings.Contains(key, ":once:") && !strings.HasSuffix(key, "kept") {
				most = max(most, redistest.Do(t, conn, "PTTL", key).(int64))
			}
		}
		return most
	}
	is.True(left() > 50*60_000)
	is.NoErr(q.Forget(ctx, time.Minute, append(nonces, "unknown")...))
	is.True(left() <= 60_000)
	is.NoErr(q.Forget(ctx, time.Hour, nonces...)) // they end before
	is.True(left() <= 60_000)
	is.Equal(sure(q.Add(ctx, added))(t), key)
	is.NoErr(q.Forget(ctx, 0, nonces...))
	is.True(once(nonces[149]) && sure(q.Add(ctx, added))(t)[0] != key[0] && !once("kept"))
	is.NoErr(q.Forget(ctx, 0))

	for _, err := range []error{q.Forget(ctx, -1, "n"), q.Forget(ctx, worqr.MaxOnceFor+1, "n"), q.Forget(ctx, 0, ""),
		q.Forget(ctx, 0, "n", strings.Repeat("n", worqr.MaxKeySize+1))} {
		is.True(is_(err, worqr.ErrInvalid))
	}
}

// CheckName agrees with the methods of a queue.
func TestCheckName(t *testing.T) {
	is := parallel(t)
	is.NoErr(worqr.CheckName("emails"))
	for _, bad := range []string{"", "a b", "{a}", strings.Repeat("q", 256)} {
		is.True(is_(worqr.CheckName(bad), worqr.ErrBadName))
	}
}
