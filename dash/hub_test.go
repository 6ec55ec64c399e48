package dash

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// A visitor with many open pages doesn't keep those of others from being updated.
func TestOthersFirst(t *testing.T) {
	t.Parallel()
	h, all := &hub{rests: map[string]time.Time{}}, map[*watcher]bool{}
	var told []string
	open := func(visitor, page string) {
		all[&watcher{visitor: visitor, page: page, told: make(chan blocks, 1), make: func(context.Context, *snapshot) (blocks, error) {
			told = append(told, page)
			return nil, nil
		}}] = true
	}
	for i := range mostWatchers / 2 {
		open("ann", fmt.Sprint("search ", i))
	}
	open("ben", "overview")
	open("ann", "queue")
	open("cy", "queue")
	h.tell(nil, all)
	if len(told) != mostWatchers/2+2 || told[0] == told[1] || told[0] != "overview" && told[0] != "queue" || told[1] != "overview" && told[1] != "queue" {
		t.Errorf("rendered: %q", told)
	}
}
