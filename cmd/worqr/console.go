package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// A console is where a command reads and writes.
type console struct {
	in        io.Reader
	out, errs io.Writer
}

// say prints a message for the user to stderr, so that a pipe doesn't get it.
func (con *console) say(format string, args ...any) {
	fmt.Fprintln(con.errs, "worqr:", printable(strings.TrimPrefix(fmt.Sprintf(format, args...), "worqr: "))) // nowhere to report errors
}

func isTerminal(f any) bool {
	t, ok := f.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(t.Fd())) && os.Getenv("TERM") != "dumb"
}

// interruptible returns what read returns, unless ctx ends first: standard input may block forever.
func interruptible[T any](ctx context.Context, read func() (T, error)) (value T, err error) {
	over, got := make(chan struct{}), struct {
		value T
		err   error
	}{}
	go func() {
		defer close(over)
		got.value, got.err = read()
	}()
	select {
	case <-over:
		return got.value, got.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// payload returns the argument, or else standard input.
func (con *console) payload(ctx context.Context, given *string) ([]byte, error) {
	if given != nil {
		return []byte(*given), nil
	}
	if isTerminal(con.in) {
		fmt.Fprintln(con.errs, "worqr: reading the payload from standard input, byte for byte; press Ctrl-D to end it") // only a hint
	}
	payload, err := interruptible(ctx, func() ([]byte, error) { return io.ReadAll(con.in) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(payload) == 0: // usually a mistake: a script run by cron, or a program that failed
		return nil, errors.New("no payload: standard input is empty; for an empty payload, pass \"\"")
	}
	return payload, nil
}
