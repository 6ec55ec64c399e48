package main

import (
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

// isTerminal reports whether f is a terminal.
func isTerminal(f any) bool {
	t, ok := f.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(t.Fd())) && os.Getenv("TERM") != "dumb"
}

// payload returns the argument, or else standard input.
func (con *console) payload(given *string) ([]byte, error) {
	if given != nil {
		return []byte(*given), nil
	}
	if isTerminal(con.in) {
		fmt.Fprintln(con.errs, "worqr: reading the payload from standard input, byte for byte; press Ctrl-D to end it") // only a hint
	}
	payload, err := io.ReadAll(con.in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(payload) == 0: // usually a mistake: a script run by cron, or a program that failed
		return nil, errors.New("no payload: standard input is empty; for an empty payload, pass \"\"")
	}
	return payload, nil
}
