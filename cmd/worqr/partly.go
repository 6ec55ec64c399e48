package main

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/worqr/worqr"
)

// A partly error ends a command that has done a part of its work.
type partly struct {
	done string // in words, such as "3 tasks enqueued"
	err  error
}

func (p *partly) Error() string { return p.done + " before it failed: " + p.err.Error() }

func (p *partly) Unwrap() error { return p.err }

// cutOff returns the error of a command that err has ended after n tasks or other things. With --json, it prints
// the row with what is done, why that isn't all, and whether the last call may have taken effect as well.
func (f form) cutOff(out io.Writer, err error, n int, done string, row map[string]any) error {
	unsure := errors.Is(err, worqr.ErrUnknownOutcome)
	if f.JSON {
		all := map[string]any{"error": cause(err), "uncertain": unsure}
		maps.Copy(all, row)
		if failed := printJSON(out, all); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if n == 0 && !unsure && !errors.Is(err, context.Canceled) {
		return err
	}
	return &partly{done, err}
}

// cause returns the text of an error for JSON.
func cause(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return inOneLine(err)
}

// interrupted describes what a command had done when it was interrupted, as far as it knows.
func interrupted(err error) string {
	text := "interrupted"
	if p, ok := errors.AsType[*partly](err); ok {
		text += ": " + p.done
	}
	if errors.Is(err, worqr.ErrUnknownOutcome) {
		text += "; Redis hadn't answered the last call, which may have taken effect"
	}
	return text
}
