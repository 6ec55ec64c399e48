package invoke

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/verdict"
)

var errLate = errors.New("late")

// Whatever a handler does, its error is judged, and the call is done.
func TestErrors(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, c := range map[string]struct {
		handler func() error
		want    error // of a panic: its value
	}{
		"nil":            {func() error { return nil }, nil},
		"an error":       {func() error { return no }, no},
		"a panic":        {func() error { panic(no) }, no},
		"a panic passed": {func() error { panic(&verdict.Panic{Value: no}) }, no},
		"Goexit":         {func() error { runtime.Goexit(); return nil }, verdict.ErrGoexit},
	} {
		for _, exits := range []bool{false, true} { // whether judging ends the goroutine
			judged, done := make(chan error, 1), make(chan error, 1)
			go New(t.Context(), Limits{}, "", nil).Do(c.handler, func(err error) {
				judged <- err
				if exits {
					runtime.Goexit()
				}
			}, func(err error, isLate bool) {
				if isLate {
					t.Errorf("%s: it's late", name)
				}
				done <- err
			})
			if err := <-judged; !errors.Is(err, c.want) || err != <-done {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A handler that hasn't returned within Grace of the end of its context is late, once, whatever ends the context.
func TestLate(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		timeout time.Duration
		ends    time.Duration // when the context ends otherwise
		takes   time.Duration
		late    error
	}{
		"in time":              {time.Minute, time.Hour, time.Second, nil},
		"after the timeout":    {time.Minute, time.Hour, 2 * time.Minute, errLate},
		"within Grace":         {time.Minute, time.Hour, time.Minute + time.Second, nil},
		"the context ended":    {0, time.Second, time.Minute, gone},
		"before its timeout":   {time.Minute, time.Second, time.Hour, gone},
		"it returned at once":  {0, time.Second, time.Second, nil},
		"no timeout, no limit": {0, 2 * time.Hour, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				ctx, cancel := context.WithCancelCause(context.Background())
				var late []error
				var call *Call
				call = New(ctx, Limits{c.timeout, errLate, 10 * time.Second}, "", func(cause error) {
					if call.GiveUp() {
						late = append(late, cause)
					}
				})
				time.AfterFunc(c.ends, func() {
					cancel(gone)
					call.Expire()
				})
				call.Do(func() error {
					time.Sleep(c.takes)
					return nil
				}, func(error) {}, func(_ error, isLate bool) { is.Equal(isLate, c.late != nil) })
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				is.True(!call.GiveUp())
				is.Equal(len(late) == 1, c.late != nil)
				is.True(c.late == nil || late[0] == c.late)
				call.Free()
			})
		})
	}
}

// The stack is that of the handler.
func TestStack(t *testing.T) {
	t.Parallel()
	hangs, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var call *Call
	go func() {
		defer close(over)
		call = New(t.Context(), Limits{}, Label(t.Context(), "q"), nil)
		call.Do(func() error { hangHere(hangs, release); return nil }, func(error) {}, func(error, bool) {})
	}()
	<-hangs
	if stack := call.Stack(); !strings.Contains(stack, "hangHere") {
		t.Error(stack)
	}
	close(release)
	<-over
}

//go:noinline
func hangHere(hangs, release chan struct{}) {
	close(hangs)
	<-release
}
