package dash

import (
	"testing"

	"github.com/matryer/is"
)

// A visitor with many open pages leaves streams to others.
func TestWatchersShare(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &hub{looping: true}
	ended := map[string]int{}
	watch := func(visitor string) bool {
		return h.watch(&watcher{visitor: visitor, end: func() { ended[visitor]++ }})
	}
	for range mostWatchers {
		is.True(watch("ann"))
	}
	is.True(!watch("ann"))
	is.True(watch("cy"))
	for range mostWatchers/2 - 1 {
		is.True(watch("ben"))
	}
	is.True(!watch("ben"))
	is.True(!watch("ann"))
	is.Equal(ended, map[string]int{"ann": mostWatchers / 2})
	is.Equal(len(h.watchers), mostWatchers)
}
