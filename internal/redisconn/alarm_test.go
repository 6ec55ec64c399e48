package redisconn_test

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// While Redis is silent, each caller waits for the timeout, however long others have waited when
// it comes. That holds again after the line was idle.
func TestAlarm(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout = 500 * time.Millisecond
	over := make(chan struct{})
	l := redisconn.NewLine(redisconn.FromPool(deafPool{over}), timeout)
	t.Cleanup(func() { close(over); l.Close() })
	for range 2 {
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 90 * time.Millisecond)
				began := time.Now()
				_, err := l.One(t.Context(), redisconn.Command("PING"))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout {
					t.Errorf("caller %d: %v after %v", i, err, took)
				}
			})
		}
		callers.Wait()
		redistest.Eventually(t, "the timer stops", func() bool { return !l.Alarmed() })
	}
	is.Equal(l.Waiting(), 0)
}
