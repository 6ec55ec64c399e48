package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// Tasks that end at the same time are split into rounds by the time that Redis needs: by their
// number, their bytes, and what each end costs it.
func TestEndsOfRounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		ends           int
		of             store.Outcome
		heard, watched bool
		rounds         int
	}{
		{name: "one that is larger than any budget", ends: 1, of: store.Outcome{Verb: store.Retry, Size: 64 << 20}, rounds: 1},
		{name: "large ones are retried", ends: 20, of: store.Outcome{Verb: store.Retry, Size: 1 << 20}, rounds: 20},
		{name: "large ones fail", ends: 20, of: store.Outcome{Verb: store.Fail, Size: 1 << 20}, rounds: 20},
		{name: "large ones go back", ends: 20, of: store.Outcome{Verb: store.Stop, Size: 1 << 20}, rounds: 20},
		{name: "large ones finish", ends: 20, of: store.Outcome{Verb: store.Finish, Size: 1 << 20}, rounds: 1},
		{name: "they have results", ends: 20, of: store.Outcome{Verb: store.Finish, Result: make([]byte, 1<<20)}, rounds: 20},
		{name: "small ones finish", ends: 900, of: store.Outcome{Verb: store.Finish, Size: 10}, rounds: 1},
		{name: "more than one round has", ends: 2*maxOutcomes + 1, of: store.Outcome{Verb: store.Finish}, rounds: 3},
		{name: "small ones fail", ends: 1000, of: store.Outcome{Verb: store.Fail, Size: 10}, rounds: 19},
		{name: "with observers", ends: 100, of: store.Outcome{Verb: store.Finish, Size: 16 << 10}, heard: true, rounds: 25},
		{name: "without observers", ends: 100, of: store.Outcome{Verb: store.Finish, Size: 16 << 10}, rounds: 1},
		{name: "there are locks", ends: 100, of: store.Outcome{Verb: store.Finish, Size: 16 << 10}, watched: true, rounds: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			q := lonely(t)
			r := q.newSession(Membership{Worker: "w", Round: 1})
			q.mu.Lock()
			defer q.mu.Unlock()
			r.heard, r.watched = c.heard, c.watched
			for i := range c.ends {
				o := c.of
				o.Process, o.Token, o.Plain = fmt.Sprint(i), int64(i+1), true
				r.outbox = append(r.outbox, &ending{Outcome: o, ours: true})
			}
			rounds, tokens := 0, []int64{}
			for len(r.outbox) > 0 {
				e := r.composeLocked(time.Now())
				is.True(len(e.Outcomes) > 0)
				rounds++
				for _, o := range e.Outcomes {
					tokens = append(tokens, o.Token)
				}
			}
			is.Equal(rounds, c.rounds)
			if c.of.Verb == store.Stop { // newest first, so that the oldest ends up in front
				slices.Reverse(tokens)
			}
			is.Equal(len(tokens), c.ends)
			is.True(slices.IsSorted(tokens))
		})
	}
}

// A round prefetches tasks only while there's room for their payloads, and tells Redis how many
// bytes.
func TestRoomAhead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ held, room int }{{0, mostBytes}, {1 << 20, mostBytes - 1<<20}, {mostBytes - 1, 1}, {mostBytes, 0}, {mostBytes + 1<<20, 0}} {
		t.Run(fmt.Sprint(c.held), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			q := lonely(t)
			o := plain
			o.Prefetch = 300
			q.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, o)
			r := q.newSession(Membership{Worker: "w", Round: 1})
			q.mu.Lock()
			defer q.mu.Unlock()
			q.bytes, r.look, r.ask = c.held, true, 100
			e := r.composeLocked(time.Now())
			is.Equal(len(e.slots), o.Concurrency)
			if c.room == 0 {
				is.Equal(e.Ahead, 0)
				return
			}
			is.True(e.Ahead > 0)
			is.Equal(e.Room, c.room)
		})
	}
}
