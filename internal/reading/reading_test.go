package reading

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
)

// Calls that hang are canceled one by one, and meanwhile the others are made, even if more hang than may run at
// the same time.
func TestEach(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var mu sync.Mutex
	var read, gaveUp []int
	well := make(chan struct{}) // closed when all readable ones have been read
	Each(t.Context(), 20, Limits{AtOnce: 2, Each: time.Hour}, func(ctx context.Context, i int) {
		if i < 10 {
			select {
			case <-well:
			case <-ctx.Done():
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if read = append(read, i); len(read) == 10 {
			close(well)
		}
	}, nil)
	slices.Sort(read)
	is.Equal(read, []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19})

	Each(t.Context(), 3, Limits{AtOnce: 1, Each: time.Millisecond}, func(ctx context.Context, i int) {
		<-ctx.Done()
		is.Equal(Cause(ctx, ctx.Err()), ErrSlow)
		is.NoErr(Cause(ctx, nil))
	}, nil)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	Each(ctx, 3, Limits{AtOnce: 1, Each: time.Hour}, func(ctx context.Context, i int) { stop(why) }, func(i int, cause error) {
		gaveUp = append(gaveUp, i)
		is.Equal(cause, why)
	})
	is.Equal(gaveUp, []int{1, 2})
	is.Equal(Cause(ctx, why), why)
}
