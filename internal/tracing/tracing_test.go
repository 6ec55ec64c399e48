package tracing

import (
	"log/slog"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/worqrtrace"
)

// While a function blocks, nobody else does: a limited number of calls wait, and the others are counted and logged.
func TestBounds(t *testing.T) {
	t.Parallel()
	is, began, block, missed := is.New(t), make(chan bool, 1), make(chan bool), make(chan int, 1)
	kept, said, log := 0, make(chan string, 1), logs.New(slog.New(slog.DiscardHandler))
	log.Before = func(msg string, _ []any) { said <- msg }
	c := New(&worqrtrace.Trace{
		Joined: func(worqrtrace.Queue) { began <- true; <-block },
		Ended:  func(worqrtrace.Task) { kept++ },
		Missed: func(calls int) { missed <- calls },
	}, log)
	c.Joined(worqrtrace.Queue{})
	<-began
	for range logs.MaxCalls + 100 {
		c.Ended(worqrtrace.Task{})
		c.Left(worqrtrace.Queue{}) // which nobody wants
	}
	close(block)
	is.Equal(<-missed, 100)
	is.Equal(<-said, "worqr: Trace functions are too slow; calls were dropped")
	is.Equal(kept, logs.MaxCalls)
}
