package failpoints_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A world is a victim's surroundings: a namespace with one queue, a second peer that serves it, and
// an observer.
type world struct {
	t       *testing.T
	prefix  string
	keys    keys.Queue
	lease   time.Duration
	conn    redis.Conn
	rescuer *worqr.Peer // serves the queue, and takes tasks for the test
	queue   *worqr.Queue
	tasks   []*worqr.Task       // held by the rescuer
	report  *worqr.CancelReport // of its cancel
	other   *worqr.Peer         // a third peer

	mu       sync.Mutex
	finished map[string]int // payload → how often an event reported it
}

func newWorld(t *testing.T, lease time.Duration) *world {
	w := &world{t: t, prefix: redistest.Prefix(t), lease: lease, conn: redistest.Conn(t), finished: map[string]int{}}
	w.keys = keys.NewSpace(w.prefix).Queue("q")
	w.observe()
	w.rescuer = w.peer()
	w.queue = w.rescuer.Queue("q")
	peertest.Must(t, w.rescuer.StartWorker(t.Context()))
	peertest.Must(t, w.queue.StartWork(t.Context()))
	return w
}

// peer returns another peer of the same fleet.
func (w *world) peer() *worqr.Peer {
	p := redistest.Sure(worqr.Open(redistest.URL(), &worqr.Options{Prefix: w.prefix, Lease: w.lease, Logger: slog.New(slog.DiscardHandler)}))(w.t)
	w.t.Cleanup(func() { peertest.Must(w.t, p.Close()) })
	return p
}

// observe counts the tasks that are finished from now on.
func (w *world) observe() {
	c := redis.PubSubConn{Conn: redistest.Conn(w.t)}
	peertest.Must(w.t, c.Subscribe(w.keys.Channel(keys.KindDone)))
	if s, ok := c.Receive().(redis.Subscription); !ok || s.Kind != "subscribe" {
		w.t.Fatal("the observer is not subscribed")
	}
	go func() { // until the connection is closed
		for {
			m, ok := c.Receive().(redis.Message)
			if !ok {
				return
			}
			var done struct{ Task string }
			if json.Unmarshal(m.Data, &done) == nil {
				w.mu.Lock()
				w.finished[done.Task]++
				w.mu.Unlock()
			}
		}
	}()
}

// ends compares the finished tasks, by their events, with the expected ones.
func (w *world) ends(want []string) {
	w.t.Helper()
	count := map[string]int{}
	for _, p := range want {
		count[p]++
	}
	// The last event may be in flight.
	for deadline := time.Now().Add(peertest.Patience); ; {
		w.mu.Lock()
		got := maps.Clone(w.finished)
		w.mu.Unlock()
		total := 0
		for _, n := range got {
			total += n
		}
		if total < len(want) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond) // poll
			continue
		}
		if !maps.Equal(got, count) {
			w.t.Errorf("finished, and how often: %v, want %v", got, count)
		}
		return
	}
}

// put puts a payload under itself as a key.
func (w *world) put(payload string) {
	w.t.Helper()
	redistest.Sure(w.queue.Add(w.t.Context(), worqr.TaskSpec{Key: payload, Payload: []byte(payload)}))(w.t)
}

// hold makes the rescuer take and keep tasks.
func (w *world) hold(n int) {
	w.t.Helper()
	w.tasks = redistest.Sure(w.queue.StartTasks(w.t.Context(), n))(w.t)
	if len(w.tasks) != n {
		w.t.Fatalf("it got %d tasks instead of %d", len(w.tasks), n)
	}
}

// stop makes the rescuer stop them: at once, or when they are canceled.
func (w *world) stop(canceled bool) {
	w.t.Helper()
	for _, task := range w.tasks {
		if canceled {
			peertest.Eventually(w.t, "the task is canceled", func() bool { return errors.Is(context.Cause(task.Context()), worqr.ErrCanceled) })
		}
		peertest.Must(w.t, task.Stop(w.t.Context()))
	}
}

// failFirst makes the rescuer fail the first task.
func (w *world) failFirst() {
	w.t.Helper()
	w.hold(1)
	peertest.Must(w.t, w.tasks[0].Fail(w.t.Context(), errors.New("no")))
	w.tasks = nil
}

// cancel cancels a task.
func (w *world) cancel(payload string) {
	w.t.Helper()
	w.report = redistest.Sure(w.queue.Cancel(w.t.Context(), []byte(payload)))(w.t)
}

// canceled waits until the cancel, which found nothing waiting, is complete.
func (w *world) canceled() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), peertest.Patience)
	defer cancel()
	peertest.Must(w.t, w.report.Wait(ctx))
	if w.report.Removed > 0 {
		w.t.Errorf("the cancel reports %+v", *w.report)
	}
}

// patient makes a third peer take tasks.
func (w *world) patient(n int) {
	w.t.Helper()
	w.other = w.peer()
	q := w.other.Queue("q")
	peertest.Must(w.t, w.other.StartWorker(w.t.Context()))
	peertest.Must(w.t, q.StartWork(w.t.Context()))
	w.tasks = redistest.Sure(q.StartTasks(w.t.Context(), n))(w.t)
}

// parted checks that the third peer no longer owns its tasks if it was evicted. Otherwise the peer
// returns them.
func (w *world) parted(failed bool) {
	w.t.Helper()
	if !failed {
		peertest.Must(w.t, w.other.Queue("q").StopWork(w.t.Context()))
		return
	}
	if err := w.tasks[0].Finish(w.t.Context()); !errors.Is(err, worqr.ErrNotOwner) {
		w.t.Errorf("the end of what others have was answered with %v", err)
	}
}

// now returns the time of Redis, in ms.
func (w *world) now() int64 {
	w.t.Helper()
	now := redistest.Sure(redis.Int64s(w.conn.Do("TIME")))(w.t)
	return now[0]*1000 + now[1]/1000
}

// pass waits for a lease.
func (w *world) pass() {
	w.t.Helper()
	until := w.now() + w.lease.Milliseconds()
	peertest.Eventually(w.t, "a lease has gone by", func() bool { return w.now() > until })
}

// do makes a plain call.
func (w *world) do(name string, args ...any) any {
	w.t.Helper()
	return redistest.Sure(w.conn.Do(name, args...))(w.t)
}

func (w *world) enqueue(payloads ...string) {
	w.t.Helper()
	all := make([][]byte, len(payloads))
	for i, p := range payloads {
		all[i] = []byte(p)
	}
	peertest.Must(w.t, w.queue.Enqueue(w.t.Context(), all...))
}

// deliver sends commands on another connection and ignores the replies. They may be refused.
func (w *world) deliver(commands []command) {
	w.t.Helper()
	for _, c := range commands {
		_, err := w.conn.Do(c[0], c.args()...)
		if _, refused := errors.AsType[redis.Error](err); err != nil && !refused {
			w.t.Fatal(err)
		}
	}
}

// gone waits until a worker is no longer a member, and its tasks are back.
func (w *world) gone(id string) {
	w.t.Helper()
	peertest.Eventually(w.t, "a worker is no longer a member", func() bool {
		return w.do("ZSCORE", w.keys.Workers(), id) == nil && w.do("ZSCORE", w.keys.Leaving(), id) == nil
	})
}

// calm waits until a worker that lost replies has recovered: it holds what it should, or is no
// longer a member if it left.
func (w *world) calm(id string, held int, r role) {
	w.t.Helper()
	if r == goer {
		w.gone(id)
	}
	peertest.Eventually(w.t, "the worker holds what it is to", func() bool {
		return redistest.Sure(redis.Int(w.conn.Do("ZCARD", w.keys.Working(id))))(w.t) == held
	})
}

// drain makes the rescuer run all tasks, in order. It returns their payloads, marked with +1 for a
// retry, and with ! for a worker that died holding it.
func (w *world) drain() (all []string) {
	w.t.Helper()
	for {
		tasks, err := w.queue.StartTasks(w.t.Context(), 1000)
		switch {
		case errors.Is(err, worqr.ErrNoTask):
			return all
		case errors.Is(err, worqr.ErrEvicted): // it was slow, and comes back
			continue
		}
		peertest.Must(w.t, err)
		for _, task := range tasks {
			text := string(task.Payload) + strings.Repeat("!", task.Crashes)
			if task.Retries > 0 {
				text += fmt.Sprintf("+%d", task.Retries)
			}
			all = append(all, text)
			peertest.Must(w.t, task.Finish(w.t.Context()))
		}
	}
}

// drains runs all tasks, and compares them with the expected ones. The order matters among those that are named, and
// among the others: they take turns.
func (w *world) drains(want []string, named ...string) {
	w.t.Helper()
	sort := func(tasks []string) []string {
		return slices.SortedStableFunc(slices.Values(tasks), func(a, b string) int {
			is := func(t string) bool { return slices.Contains(named, strip([]string{t})[0]) }
			return cmp.Compare(map[bool]int{true: 1}[is(a)], map[bool]int{true: 1}[is(b)])
		})
	}
	if got := w.drain(); !slices.Equal(sort(got), sort(want)) {
		w.t.Errorf("what was left to do was %q, want %q", got, want)
	}
}

// failures returns the payloads in the failed queue, newest first.
func (w *world) failures() (all []string) {
	w.t.Helper()
	for f := range redistest.Each(w.t, w.queue.Failed(w.t.Context())) {
		all = append(all, string(f.Payload))
	}
	return all
}

// leave makes all peers leave, and checks what is left.
func (w *world) leave() {
	w.t.Helper()
	if w.other != nil {
		peertest.Must(w.t, w.other.StopWorker(w.t.Context()))
	}
	// A membership without a peer expires, and the live peers end it.
	peertest.Eventually(w.t, "nobody else is a member", func() bool {
		n, err := redis.Int(w.conn.Do("ZCARD", w.keys.Workers()))
		m, e := redis.Int(w.conn.Do("ZCARD", w.keys.Leaving()))
		peertest.Must(w.t, cmp.Or(err, e))
		return n == 1 && m == 0
	})
	peertest.Must(w.t, w.rescuer.StopWorker(w.t.Context()))
	w.lapse()
	w.nothing()
}

// lapse ends the registrations of killed peers that joined no queue, after checking that they would
// expire. Then a sweep removes them from the list.
func (w *world) lapse() {
	w.t.Helper()
	for _, key := range redistest.Keys(w.t, w.conn, w.prefix) {
		if !strings.HasPrefix(key, w.prefix+":worker:") {
			continue
		}
		ttl := redistest.Sure(redis.Int(w.conn.Do("PTTL", key)))(w.t)
		if ttl < 0 || ttl > int(2*w.lease.Milliseconds()) { // a registration expires after two leases
			w.t.Errorf("%s stays: its time is %d ms", key, ttl)
		}
		w.do("DEL", key)
	}
	redistest.Sure(w.rescuer.Sweep(w.t.Context()))(w.t)
}

// nothing reports keys that should be gone.
func (w *world) nothing() {
	w.t.Helper()
	for _, key := range redistest.Keys(w.t, w.conn, w.prefix) {
		ttl := redistest.Sure(redis.Int(w.conn.Do("TTL", key)))(w.t)
		switch {
		case redistest.IsHistory(key), key == w.prefix+":notes", key == w.prefix+":registry", key == w.prefix+":protocol", key == w.keys.State(), key == w.keys.Failed().State():
		case (strings.HasPrefix(key, w.keys.Once("")) || strings.HasPrefix(key, w.keys.Result(""))) && ttl > 0:
		case strings.HasPrefix(key, w.keys.CanceledBy("")) && ttl > 0 && ttl <= 60:
		default:
			w.t.Errorf("left behind: %s (%v)", key, w.do("TYPE", key))
		}
	}
}

// refused checks the results when the victim finished the tasks it held: an evicted victim no
// longer owns any of them.
func (w *world) refused(ends map[string]string, held []string, failed bool) {
	w.t.Helper()
	for payload, result := range ends {
		switch {
		case failed && !strings.HasPrefix(result, "lost"):
			w.t.Errorf("the end of %s, which others own, returned %q", payload, result)
		case !failed && slices.Contains(held, payload) && result != "ok":
			w.t.Errorf("the end of %s returned %q", payload, result)
		case !failed && !slices.Contains(held, payload) && !strings.HasPrefix(result, "lost"):
			w.t.Errorf("the end of %s, which it does not hold, returned %q", payload, result)
		}
	}
	for _, payload := range held {
		if !failed && ends[payload] == "" {
			w.t.Errorf("the victim does not know that it holds %s", payload)
		}
	}
}
