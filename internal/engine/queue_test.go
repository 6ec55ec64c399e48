package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

// The last outcome wakes all that wait for it: Run and Unhandle may wait for the same queue.
func TestStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		q := lonely(t)
		q.ending = 2
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 3)
		for range cap(done) {
			go func() {
				q.Stored(ctx)
				done <- ctx.Err()
			}()
		}
		for range 2 {
			synctest.Wait()
			is.Equal(len(done), 0)
			q.mu.Lock()
			q.storedLocked()
			q.mu.Unlock()
		}
		for range cap(done) {
			is.NoErr(<-done)
		}
	})
}
