package topology

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// Concurrent callers share an inquiry, and no sentinel is asked while no caller waits.
func TestTogether(t *testing.T) {
	is := redistest.Parallel(t)
	mute := redistest.Listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	server := redisconn.Server{Network: "tcp"}
	s := newSentinels("main", []string{mute.Addr()}, server, server, new(atomic.Pointer[func()]))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil { // it is asked for half a second
				if _, err := s.ask(ctx); err == nil {
					t.Error("a sentinel has answered")
				}
			}
		})
	}
	waiting := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asking == nil {
			return 0
		}
		return s.asking.waiting
	}
	redistest.Eventually(t, "they ask together", func() bool { return waiting() == 8 })
	cancel()
	all.Wait()
	is.Equal(waiting(), 0)
}
