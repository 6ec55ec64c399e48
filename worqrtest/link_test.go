package worqrtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A paused peer that gets many messages doesn't block the others.
func TestPausedSubscriber(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) {
		watcher, other := redis.Peer(nil), redis.Peer(nil)
		seen := make(chan inspect.EventKind, 1000)
		go func() {
			for e, err := range watcher.Events(t.Context()) {
				if err == nil {
					seen <- e.Kind
				}
			}
			close(seen)
		}()
		<-seen // it's subscribed
		watcher.Pause()
		began := time.Now()
		for i := range 20 {
			q := other.Queue("q")
			must(t, q.Pause(t.Context()))
			must(t, q.Put(t.Context(), fmt.Sprint(i), []byte("x"), nil))
			must(t, q.Resume(t.Context()))
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the other peer's calls took %v of virtual time", took)
		}
		watcher.Resume()
	})
}
