package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
)

// A handler that ignores its context is left behind, and its task goes back. That is
// logged with its stack before Run returns, and counted until it returns.
func TestStuckHandler(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"": 0, "with a timeout": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			d := &diary{}
			p := open(t, worqr.Options{Drain: -1, Logger: d.logger()})
			q := p.Queue("q")
			started, release := make(chan string, 1), make(chan struct{})
			q.Handle(func(context.Context, *worqr.Task) error {
				started <- ""
				<-release
				return nil
			}, &worqr.HandleOptions{Grace: 50 * time.Millisecond, Timeout: timeout})
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- p.Run(ctx) }()
			enqueue(t, q, "a")
			receive(t, started, 1)
			cancel()
			err := receive(t, ran, 1)[0]
			is.True(err != nil && strings.Contains(err.Error(), "a handler didn't return after its context ended"))
			is.Equal(p.Stats().StuckHandlers, int64(1))
			is.Equal(p.Stats().RunningHandlers, int64(0))
			is.Equal(waiting(t, q), []string{"a"})
			for _, want := range []string{"didn't return after their context ended", "queue=q", "process=", "handlers=1", "TestStuckHandler"} {
				is.True(strings.Contains(d.String(), want))
			}
			close(release)
			eventually(t, "it has returned", func() bool { return p.Stats().StuckHandlers == 0 })
			is.Equal(p.Stats().Finished, int64(0))
		})
	}
}
