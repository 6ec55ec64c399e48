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

// say tells the person, and not the program behind a pipe, what happens.
func (con *console) say(format string, args ...any) {
	fmt.Fprintln(con.errs, "worqr:", printable(strings.TrimPrefix(fmt.Sprintf(format, args...), "worqr: "))) // if that fails, there is nobody to tell
}

// isTerminal reports whether something is a terminal.
func isTerminal(f any) bool {
	t, ok := f.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(t.Fd())) && os.Getenv("TERM") != "dumb"
}

// payload is what was given, or else the input.
func (con *console) payload(given *string) ([]byte, error) {
	if given != nil {
		return []byte(*given), nil
	}
	if isTerminal(con.in) {
		fmt.Fprintln(con.errs, "worqr: reading the payload from standard input, byte for byte; press Ctrl-D to end it") // who does not see it types anyway
	}
	payload, err := io.ReadAll(con.in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload: %w", err)
	case len(payload) == 0: // by mistake, more often than not: in a script, of cron, by a program that has failed
		return nil, errors.New("no payload: standard input is empty; for an empty payload, pass \"\"")
	}
	return payload, nil
}
