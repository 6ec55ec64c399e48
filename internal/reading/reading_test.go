package reading

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
)

// Calls that hang are canceled one by one, and meanwhile the others are made, even if more hang than may run at
// the same time.
func TestEach(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	begun := time.Now()
	var left atomic.Int64
	left.Store(10)
	well := make(chan struct{}) // closed when all readable ones have been read
	all, errs, answered := Each(t.Context(), 20, Limits{AtOnce: 2, Each: time.Hour}, func(ctx context.Context, i int) (int, error) {
		if i < 10 {
			select {
			case <-well:
				return i, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		if left.Add(-1) == 0 {
			close(well)
		}
		return i, nil
	})
	for i := range 20 {
		is.Equal(all[i], i)
		is.NoErr(errs[i])
	}
	is.True(answered.After(begun))

	_, errs, answered = Each(t.Context(), 3, Limits{AtOnce: 1, Each: time.Millisecond}, func(ctx context.Context, i int) (int, error) {
		<-ctx.Done()
		is.NoErr(Cause(ctx, nil))
		return 0, ctx.Err()
	})
	is.Equal(errs, []error{ErrSlow, ErrSlow, ErrSlow})
	is.True(answered.IsZero())
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	_, errs, _ = Each(ctx, 3, Limits{AtOnce: 1, Each: time.Hour}, func(ctx context.Context, i int) (int, error) {
		stop(why)
		return 0, nil
	})
	is.Equal(errs, []error{nil, why, why})
	is.Equal(Cause(ctx, why), why)
}
