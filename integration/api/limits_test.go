package api

import (
	"cmp"
	"context"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A huge Concurrency doesn't make the peer request or allocate that much at once.
func TestHugeOptions(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	done := make(chan string, 10)
	q.Handle(tell(done),
		&worqr.HandleOptions{Concurrency: math.MaxInt})
	run(t, p)
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Concurrency: math.MaxInt})) // more than fits in memory
	enqueue(t, q, "a")
	receive(t, done, 1)
	is.True(is_(q.SetOptions(&worqr.HandleOptions{Weight: math.MaxInt}), worqr.ErrInvalid))
}

// A task that nobody received, and that couldn't be returned, is returned as soon as that's
// possible.
func TestRefusedGiveBack(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 600 * time.Millisecond})
	q := working(t, p, "q")
	_, err := q.StartTask(t.Context()) // opens the connection
	is.True(is_(err, worqr.ErrNoTask))
	enqueue(t, q, "a")
	c, other := redistest.Dial(t, server.URL()), redistest.Dial(t, server.URL())
	redistest.Do(t, c, "CLIENT", "PAUSE", 300, "WRITE")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = q.StartTask(ctx)
	is.True(err != nil)
	redistest.Do(t, other, "SET", "p:queues:{q}", "of another type") // runs after the start, when the pause ends
	redistest.Do(t, c, "DEL", "p:queues:{q}")
	eventually(t, "the task is back", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Waiting+s.Scheduled == 1
	})
}

// Whatever exceeds a limit is refused before anything is sent. The error has the size and the
// limit, and shows nothing of the value.
func TestTooLarge(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, MaxPayload: 10})
	q, ctx := p.Queue("q"), t.Context()
	canary := strings.Repeat("canary", 2)
	long := strings.Repeat("canary", 200)
	once := func(nonce, payload string) error { return failure(q.EnqueueOnce(ctx, nonce, []byte(payload))) }
	at := func(payload string) error {
		return failure(q.Add(ctx, worqr.TaskSpec{Payload: []byte(payload), At: time.Now()}))
	}
	remove := func(key string) error { return failure(q.RemoveKey(ctx, key)) }
	cancelKey := func(key string) error { return failure(q.CancelKey(ctx, key)) }
	requeue := func(ids ...string) error { return failure(q.RequeueFailed(ctx, ids...)) }
	for what, c := range map[string]struct {
		err                 error
		kind                error // ErrInvalid if nil
		size, allowed, verb string
	}{
		"payload":            {err: q.Enqueue(ctx, []byte("a"), []byte(canary)), size: "payload 2 of 2: ", allowed: "the limit is 10", verb: `enqueue on "q"`},
		"payload, once":      {err: once("nonce", canary), size: "the payload has 12 bytes", allowed: "the limit is 10", verb: `enqueue once on "q"`},
		"payload, unique":    {err: failure(q.Add(ctx, worqr.TaskSpec{Payload: []byte(canary), Unique: true})), size: "the payload has 12 bytes", allowed: "the limit is 10", verb: `add on "q"`},
		"payload, at a time": {err: at(canary), size: "the payload has 12 bytes", allowed: "the limit is 10", verb: `add on "q"`},
		"payload, put":       {err: failure(q.Add(ctx, worqr.TaskSpec{Key: "key", Payload: []byte(canary)})), size: "the payload has 12 bytes", allowed: "the limit is 10", verb: `add on "q"`},
		"batch":              {err: q.Enqueue(ctx, make([][]byte, worqr.MaxBatchSize+1)...), size: "5001 payloads", allowed: "the limit is 5000", verb: `enqueue on "q"`},
		"ids":                {err: requeue(make([]string, 100_001)...), size: "100001 ids", allowed: "the limit is 100000", verb: `requeue failed tasks on "q"`},
		"nonce":              {err: once(long, "a"), size: "1200 bytes", allowed: "the limit is 1024", verb: `enqueue once on "q"`},
		"key":                {err: failure(q.Add(ctx, worqr.TaskSpec{Key: long, Payload: []byte("a")})), size: "1200 bytes", allowed: "the limit is 1024", verb: `add on "q"`},
		"key to remove":      {err: remove(long), size: "1200 bytes", allowed: "the limit is 1024", verb: `remove on "q"`},
		"key to cancel":      {err: cancelKey(long), size: "1200 bytes", allowed: "the limit is 1024", verb: `cancel on "q"`},
		"name":               {err: p.Queue(strings.Repeat("n", 256)).Enqueue(ctx, []byte("a")), kind: worqr.ErrBadName, size: "256 bytes", allowed: "the limit is 255", verb: "enqueue on"},
		"prefix":             {err: worqr.New(&redis.Pool{}, &worqr.Options{Prefix: strings.Repeat("n", 256)}).StartWorker(ctx), kind: worqr.ErrBadName, size: "256 bytes", allowed: "the limit is 255", verb: "start worker"},
	} {
		if !is_(c.err, worqr.ErrTooLarge) || !is_(c.err, cmp.Or(c.kind, worqr.ErrInvalid)) {
			t.Errorf("%s: %v", what, c.err)
			continue
		}
		for _, part := range []string{c.verb, c.size, c.allowed} {
			if !strings.Contains(c.err.Error(), part) {
				t.Errorf("%s: %q is not in: %v", what, part, c.err)
			}
		}
		if strings.Contains(c.err.Error(), "canary") {
			t.Errorf("%s: the error shows it: %v", what, c.err)
		}
	}
	is.Equal(len(waiting(t, q)), 0)

	// The limits themselves are allowed.
	is.NoErr(q.Enqueue(ctx, []byte(canary[:10])))
	is.NoErr(once(long[:1024], "a"))
	sure(q.Add(ctx, worqr.TaskSpec{Key: long[:1024], Payload: []byte("a")}))(t)
	// The limit doesn't apply to what other peers enqueue: it's run and canceled.
	enqueue(t, open(t, worqr.Options{Prefix: prefix}).Queue("q"), canary)
	is.Equal(cancel(t, q, canary).Removed, 1)

	for _, most := range []int{-1, worqr.MaxPayloadSize + 1} {
		_, err := worqr.Open(redistest.URL(), &worqr.Options{MaxPayload: most})
		is.True(is_(err, worqr.ErrInvalid))
	}
	_, err := worqr.Open(redistest.URL(), &worqr.Options{MaxResult: 1<<20 + 1})
	is.True(is_(err, worqr.ErrInvalid))
}

// A payload of one byte more than the limit is refused, be it the default or the largest.
func TestLargestPayload(t *testing.T) {
	is := parallel(t)
	huge := make([]byte, worqr.MaxPayloadSize+1)
	q := open(t, worqr.Options{}).Queue("q")
	err := q.Enqueue(t.Context(), []byte("a"), huge[:worqr.DefaultMaxPayload+1])
	is.True(is_(err, worqr.ErrTooLarge))
	tells(t, err, "has 1048577 bytes; the limit is 1048576")
	q = open(t, worqr.Options{MaxPayload: worqr.MaxPayloadSize}).Queue("q")
	is.True(is_(q.Enqueue(t.Context(), []byte("a"), huge), worqr.ErrTooLarge))
	_, err = q.Cancel(t.Context(), huge)
	is.True(is_(err, worqr.ErrTooLarge))
	is.Equal(waiting(t, q), nil)
}

// Tasks dropped from a full failed queue are counted, traced and logged, each in exactly one line,
// by the time the peer has stopped. Redis drops only a few in one call.
func TestFailedDropped(t *testing.T) {
	is := parallel(t)
	said, r := &journal{}, &record{}
	p, q := openQueue(t, worqr.Options{Logger: said.Logger(), Trace: r.trace()})
	q.Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) }, &worqr.HandleOptions{KeepFailed: 5})
	enqueue(t, q, numbers("t", 30)...)
	stop := run(t, p)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == 30 })
	enqueue(t, q, numbers("u", 30)...) // within the minute after which the next line is logged
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == 60 })
	eventually(t, "the oldest were dropped", func() bool { return p.Stats().Dropped == 55 })
	is.Equal(stats(t, q).Failed, 5)
	stop()
	traced := 0
	for _, c := range r.of("dropped") {
		is.Equal(c.queue.Queue, "q")
		traced += c.queue.Tasks
	}
	is.Equal(traced, 55)
	var first, rest int // the rest is counted at the end, or after a minute
	for text, n := range map[string]*int{"the failed queue is full": &first, "more failed tasks were dropped": &rest} {
		lines := said.Lines(text)
		is.Equal(len(lines), 1)
		number := regexp.MustCompile(`(?:dropped|count)=(\d+)`).FindStringSubmatch(lines[0])
		*n = sure(strconv.Atoi(number[1]))(t)
	}
	is.Equal(first+rest, 55)
}
