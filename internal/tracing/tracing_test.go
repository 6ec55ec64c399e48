package tracing

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/worqrtrace"
)

// While a function blocks, the pending calls are limited in number and in bytes.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		headers int
		calls   int
		kept    int
	}{
		"many":  {0, maxTraced + 100, maxTraced},
		"large": {8 << 10, 10_000, maxTracedBytes / (8<<10 + 101)},
	} {
		is, began, block, missed := is.New(t), make(chan bool, 1), make(chan bool), make(chan int, 1)
		kept := 0
		r := New(&worqrtrace.Trace{
			Joined: func(worqrtrace.Queue) { began <- true; <-block },
			Ended:  func(worqrtrace.Task) { kept++ },
			Missed: func(calls int) { missed <- calls },
		}, logs.New(slog.New(slog.DiscardHandler)))
		Say(r, r.Joined, worqrtrace.Queue{})
		<-began
		task := worqrtrace.Task{Headers: map[string]string{"h": strings.Repeat("x", test.headers)}}
		for range test.calls {
			Say(r, r.Ended, task)
		}
		close(block)
		left := <-missed
		t.Log(name, left)
		is.Equal(left, test.calls-test.kept)
		is.Equal(kept, test.kept)
	}
}
