package engine

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"
)

// The sum includes every counter.
func TestCountsSum(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := lonely(t)
	other := w.engine.Queue("other", "other", Options{})
	for i, n := range []int64{1, 10} {
		v := reflect.ValueOf([]*Counts{w.counts, other.counts}[i]).Elem()
		for f := range v.NumField() {
			v.Field(f).Addr().Interface().(*atomic.Int64).Add(n)
		}
	}
	sum := reflect.ValueOf(w.engine.Counts()).Elem()
	for f := range sum.NumField() {
		is.Equal(sum.Field(f).Addr().Interface().(*atomic.Int64).Load(), int64(11))
	}
	is.Equal(w.engine.CountsOf("other").Failed.Load(), int64(10))
	is.Equal(w.engine.CountsOf("unknown").Failed.Load(), int64(0))
	is.Equal(w.engine.Queue("other", "other (failed)", Options{}).counts, other.counts)
}
