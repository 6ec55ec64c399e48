package peertest

import (
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// giveUp fails a test that has waited too long, and logs all stacks.
func giveUp(t testing.TB, format string, args ...any) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
	t.Fatalf(format, args...)
}

func Sorted(s []string) []string {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return s
}

// NothingLeftBut is NothingLeft, but ignores the records of cancels and the given keys.
func NothingLeftBut(t testing.TB, prefix, queue string, but ...string) {
	t.Helper()
	NothingLeftAt(t, redistest.Conn(t), prefix, queue, but...)
}

// NothingLeftAt is NothingLeftBut on another Redis.
func NothingLeftAt(t testing.TB, c redis.Conn, prefix, queue string, but ...string) {
	t.Helper()
	for _, k := range redistest.Keys(t, c, prefix) {
		if ttl, err := redis.Int(c.Do("TTL", k)); err == nil && ttl >= 0 && ttl <= 60 || redistest.IsHistory(k) {
			continue // record of a cancel
		}
		k = strings.TrimPrefix(k, prefix)
		if k != ":notes" && k != ":registry" && k != ":protocol" && k != ":state:{"+queue+"}" && k != ":failed:state:{"+queue+"}" && !slices.Contains(but, k) {
			t.Errorf("left behind: %s", k)
		}
	}
}

// Length returns the number of elements.
func Length[T any](all iter.Seq2[T, error]) (n int, err error) {
	for _, err := range all {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func ReceiveClosed(t testing.TB, c chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Patience):
		giveUp(t, "it does not end")
	}
}

func NoTask(t testing.TB, q *worqr.Queue) {
	t.Helper()
	if task, err := q.StartTask(t.Context()); !Is(err, worqr.ErrNoTask) {
		t.Fatalf("StartTask: %v, %v; want no task", task, err)
	}
}

// Named lists the waiting tasks that aren't on the list.
func Named(t testing.TB, q *worqr.Queue) []inspect.NamedTask {
	t.Helper()
	return slices.Collect(redistest.Each(t, q.Named(t.Context())))
}

// Scheduled lists the tasks that wait for their time.
func Scheduled(t testing.TB, q *worqr.Queue) []inspect.NamedTask {
	t.Helper()
	return slices.Collect(redistest.Each(t, q.Named(t.Context(), inspect.NamedScheduled)))
}

func Failed(t testing.TB, q *worqr.Queue) []inspect.FailedTask {
	t.Helper()
	return slices.Collect(redistest.Each(t, q.Failed(t.Context())))
}

func FailedPayloads(t testing.TB, q *worqr.Queue) (all []string) {
	t.Helper()
	for _, f := range Failed(t, q) {
		all = append(all, string(f.Payload))
	}
	return all
}

// Stats returns the counts of a queue, except for its tokens, which depend on earlier calls.
func Stats(t testing.TB, q *worqr.Queue) inspect.QueueStats {
	t.Helper()
	s, err := q.Stats(t.Context())
	Must(t, err)
	s.Tokens = 0
	return s
}

// Near reports whether got and want, which are hours from now, differ by no more than a test may
// take.
func Near(got, want time.Time) bool { return got.Sub(want).Abs() < 20*time.Minute }

func Info(t testing.TB, conn redis.Conn, section string) string {
	t.Helper()
	text, err := redis.String(conn.Do("INFO", section))
	Must(t, err)
	return text
}

// Receive takes n values from a channel.
func Receive[T any](t testing.TB, from <-chan T, n int) []T {
	t.Helper()
	var got []T
	deadline := time.After(Patience)
	for len(got) < n {
		select {
		case v := <-from:
			got = append(got, v)
		case <-deadline:
			giveUp(t, "%d of %d came: %v", len(got), n, got)
		}
	}
	return got
}

// Listen returns the events of some queues, or of all of them, from the first EventSync on.
func Listen(t testing.TB, p *worqr.Peer, queues ...string) <-chan inspect.Event {
	t.Helper()
	events := make(chan inspect.Event, 10000)
	go func() {
		for e, err := range p.Events(t.Context(), queues...) {
			if err == nil {
				events <- e
			}
		}
	}()
	if first := Receive(t, events, 1)[0]; first.Kind != inspect.EventSync {
		t.Fatalf("the first event is %v", first)
	}
	return events
}

// Until reads events up to the next one of a kind.
func Until(t testing.TB, events <-chan inspect.Event, kind inspect.EventKind) inspect.Event {
	t.Helper()
	for {
		if e := Receive(t, events, 1)[0]; e.Kind == kind {
			return e
		}
	}
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); {
		if time.Now().After(deadline) {
			giveUp(t, "timed out waiting until %s", what)
		}
		time.Sleep(5 * time.Millisecond) // poll
	}
}

// AllDone waits until no task of the queue waits or runs. It takes two looks without a start between them, since a task
// may move while one looks.
func AllDone(t testing.TB, q *worqr.Queue) {
	t.Helper()
	before := int64(-1)
	Eventually(t, "all is done", func() bool {
		s, last := redistest.Sure(q.Stats(t.Context()))(t), before
		if before = s.Tokens; s.Waiting+s.Scheduled+s.Running > 0 {
			before = -1
		}
		return before >= 0 && before == last
	})
}

// Waiting lists the tasks on the list, front first.
func Waiting(t testing.TB, q *worqr.Queue) []string {
	t.Helper()
	var all []string
	for payload := range redistest.Each(t, q.Tasks(t.Context())) {
		all = append(all, string(payload))
	}
	return all
}

func Payloads(tasks []*worqr.Task) []string {
	var all []string
	for _, t := range tasks {
		all = append(all, string(t.Payload))
	}
	return all
}

// Left lists the keys of the namespace.
func Left(t testing.TB, prefix string) []string {
	return redistest.Keys(t, redistest.Conn(t), prefix)
}

// NothingLeft checks that an idle, empty, unserved queue leaves nothing but its name and its
// state.
func NothingLeft(t testing.TB, prefix, queue string) {
	t.Helper()
	for _, k := range Left(t, prefix) {
		if !redistest.IsHistory(k) && !slices.Contains([]string{prefix + ":notes", prefix + ":registry", prefix + ":protocol", prefix + ":state:{" + queue + "}", prefix + ":failed:state:{" + queue + "}"}, k) {
			t.Errorf("left behind: %s", k)
		}
	}
}
