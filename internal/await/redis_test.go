package await

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// On Redis, callers that wait for many tasks get the ends of those, also if the next ones under the same
// names have started and ended at once.
func TestEndsInRedis(t *testing.T) {
	is := is.New(t)
	const tasks = 250 // more than a page
	lines := store.NewLines(store.Single(redistest.Sure(store.Open(redistest.URL(), store.Access{}))(t).Dial()), logs.New(slog.New(slog.DiscardHandler)), 10*time.Second, 10*time.Second)
	t.Cleanup(lines.Close)
	q := keys.NewSpace(redistest.Prefix(t)).Queue("q")
	shared, conn := store.SharedOf(q), redistest.Conn(t)
	h := New(Config{Listen: lines.AwaitEnd, Timeout: 10 * time.Second, Ask: func(ctx context.Context, q store.Keys, names []string) ([]store.Fate, error) {
		return store.Ends(ctx, lines.Calls, q, names)
	}})
	name := func(i int) string { return fmt.Sprint("k:", i) }
	add := func() {
		record := (&store.Record{Keep: time.Minute}).Append(nil)
		for i := range tasks {
			redistest.Do(t, conn, "HSET", q.Tasks(), name(i), record)
			redistest.Do(t, conn, "ZADD", q.Ready(), i, name(i))
		}
	}
	joined, err := store.ReadJoin(lines.Calls.Do(t.Context(), store.JoinCall(shared, "w", 0, 0, 0))[0])
	is.NoErr(err)
	is.Equal(joined, store.IsMember)
	round := int64(0)
	work := func(result string) {
		t.Helper()
		round++
		r := store.Round{Start: &store.Start{Worker: "w", Round: round, Wanted: tasks}}
		answer := r.Read(q, lines.Calls.Do(t.Context(), r.Calls(shared)...)).Answer
		is.Equal(len(answer.Tasks), tasks)
		for len(answer.Tasks) > 0 {
			r := store.Round{Finish: &store.Finish{Worker: "w"}}
			n := min(len(answer.Tasks), 100)
			for _, a := range answer.Tasks[:n] {
				r.Finish.Ends = append(r.Finish.Ends, &store.End{
					Attempt: a.ID, Token: a.Token, Name: a.Name, Verb: store.Done, Delay: a.Record.Keep, Result: []byte(result),
				})
			}
			is.NoErr(r.Read(q, lines.Calls.Do(t.Context(), r.Calls(shared)...)).FinishErr)
			answer.Tasks = answer.Tasks[n:]
		}
	}
	wait := func() func() map[string]int {
		said := make(chan string, tasks)
		for i := range tasks {
			go func() {
				e, err := h.Wait(t.Context(), q, name(i))
				if err != nil || e == nil {
					said <- fmt.Sprint(err)
					return
				}
				said <- e.End + " " + string(e.Value)
			}()
		}
		return func() map[string]int {
			all := map[string]int{}
			for range tasks {
				all[<-said]++
			}
			return all
		}
	}
	add()
	first := wait()
	redistest.Eventually(t, "all wait", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		q := h.queues[q]
		for i := range tasks {
			if q == nil || q.watches[name(i)] == nil || !q.watches[name(i)].heard {
				return false
			}
		}
		return true
	})
	work("one")
	is.Equal(first(), map[string]int{"finished one": tasks})
	is.Equal(wait()(), map[string]int{"finished one": tasks}) // nothing waits or runs
	add()
	second := wait()
	redistest.Eventually(t, "all have seen what waits", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		q := h.queues[q]
		for i := range tasks {
			if q == nil || q.watches[name(i)] == nil || !q.watches[name(i)].read {
				return false
			}
		}
		return true
	})
	work("two")
	is.Equal(second(), map[string]int{"finished two": tasks})
}
