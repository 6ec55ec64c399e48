package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/matryer/is"
)

// Ctrl-C ends a command that reads a payload from standard input, even if nothing arrives there.
func TestReadingIsInterrupted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	in, end := io.Pipe()
	t.Cleanup(func() { _ = end.Close() })
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	_, err := (&console{in, io.Discard, io.Discard}).payload(ctx, nil)
	is.True(errors.Is(err, context.Canceled))
}
