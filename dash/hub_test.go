package dash

import (
	"testing"

	"github.com/matryer/is"
)

// Pages beyond a limit have no stream.
func TestMostWatchers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &hub{looping: true}
	for range mostWatchers {
		is.True(h.watch(&watcher{}))
	}
	last := &watcher{}
	is.True(!h.watch(last))
	for w := range h.watchers {
		h.leave(w)
		break
	}
	is.True(h.watch(last))
}
