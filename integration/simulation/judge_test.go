package simulation

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// If two equal tasks end in one round, each is counted by its own outcome.
func TestTwinsAreCounted(t *testing.T) {
	const payload = "twin"
	for _, c := range []struct {
		name               string
		cancel             bool
		first, second      store.Ending
		finished, canceled int
	}{
		{"both finish", false, store.Finish, store.Finish, 2, 0},
		{"one finishes before the other goes back", false, store.Finish, store.Stop, 1, 0},
		{"one finishes after the other has gone back", false, store.Stop, store.Finish, 1, 0},
		{"one fails, one finishes", false, store.Fail, store.Finish, 1, 0},
		{"one was canceled, one finishes", true, store.Drop, store.Finish, 1, 1},
		{"one finishes, one would go back and was canceled", true, store.Finish, store.Stop, 1, 1},
		{"both were canceled", true, store.Stop, store.Drop, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(New(1))
				defer w.end()
				w.judge.w = nil // no process has started what ends here
				p := newProcess(w, "p1")
				line := redisconn.NewLine(redisconn.FromPool(&redis.Pool{DialContext: p.dial}), time.Minute)
				defer line.Close()
				ctx := context.Background()
				q := keys.NewSpace("").Queue("q1")
				number := int64(0)
				round := func(outcomes []*store.Outcome, start ...string) []store.Start {
					number++
					r := &store.Round{Worker: "w1", Number: number, Lease: time.Hour, Outcomes: outcomes, Start: start}
					a, err := store.ReadStep(line.Do(ctx, store.NewStepper(q).Call(r))[0], r)
					if err != nil {
						t.Fatal(err)
					}
					if slices.Contains(a.Settled, store.Gone) || len(a.Started) != len(start) {
						t.Fatalf("round %d: %+v", number, a)
					}
					return a.Started
				}
				must := func(_ any, err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				must(nil, line.Do(ctx, store.JoinCall(q, "w1", time.Hour, time.Now().Add(time.Hour).UnixMilli(), 0))[0].Err)

				// One fails, another takes its place, and the first comes back.
				must(store.EnqueueUnique(ctx, line, q, []byte(payload)))
				started := round(nil, "a")
				round([]*store.Outcome{{Process: "a", Token: started[0].Token, Verb: store.Fail, Kind: store.Failed}})
				must(store.EnqueueUnique(ctx, line, q, []byte(payload)))
				must(store.Requeue(ctx, line, q, []string{"k:a"}))
				started = round(nil, "b", "c")
				if c.cancel {
					must(store.Cancel(ctx, line, q, []byte(payload)))
				}
				outcomes := make([]*store.Outcome, 2)
				for i, verb := range []store.Ending{c.first, c.second} {
					outcomes[i] = &store.Outcome{Process: "bc"[i : i+1], Token: started[i].Token, Verb: verb, Kind: store.Failed}
				}
				round(outcomes)

				j := w.judge
				if got, want := fmt.Sprint(j.Finished, j.Canceled, j.wrong), fmt.Sprint(c.finished, c.canceled, []string(nil)); got != want {
					t.Errorf("finished, canceled and wrong: %s, want %s", got, want)
				}
			})
		})
	}
}
