package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// The end of an exclusive handler's context is logged once for each handler: not again when an
// answer as old as the lease arrives, nor in the next stall.
func TestLeaseExpiredIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		var said atomic.Int64
		q := lonely(t)
		q.engine.Log.Before = func(string, []any) { said.Add(1) }
		q.engine.Lease = LeaseOf(time.Second)
		o := plain
		o.Exclusive = true
		q.Serve(func(context.Context, *Attempt) ([]byte, error) { return nil, nil }, o)
		r := q.newSession(Membership{Worker: "w"})
		defer r.fence.Stop()
		begin := time.Now()
		locked := func(f func()) {
			r.mu.Lock()
			defer r.mu.Unlock()
			f()
		}
		says := func(lines int64) {
			t.Helper()
			synctest.Wait()
			is.Equal(said.Load(), lines)
		}
		hold := func(id string) *Attempt {
			task := newAttempt(r, id, store.Start{Payload: []byte(id)})
			locked(func() { r.held[id] = task })
			return task
		}
		first := hold("first")
		time.Sleep(950 * time.Millisecond)
		says(1)
		is.True(errors.Is(context.Cause(first.Context()), ErrLeaseExpired))
		locked(func() { r.renewLocked(time.Now(), begin.Add(20*time.Millisecond)) }) // sent before the stall, answered after it
		says(1)
		locked(func() { r.renewLocked(time.Now(), time.Now()) })
		time.Sleep(time.Second)
		says(1) // the held tasks have ended already
		locked(func() { r.renewLocked(time.Now(), time.Now()) })
		second := hold("second")
		time.Sleep(800 * time.Millisecond)
		locked(func() { r.renewLocked(time.Now(), time.Now()) })
		time.Sleep(800 * time.Millisecond)
		says(1)
		is.NoErr(second.Context().Err())
		time.Sleep(200 * time.Millisecond)
		says(2)
		is.True(errors.Is(context.Cause(second.Context()), ErrLeaseExpired))
	})
}
