package main

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"text/tabwriter"
)

// A form is how a command prints its results.
type form struct {
	JSON bool `help:"Print JSON: one object per line. Bytes that aren't UTF-8 are printed as {\"base64\": ...}, durations in seconds."`
}

// page is how many rows a table collects before it's printed, so that a long list is neither delayed until its
// end nor held in memory.
const page = 200

// printRows prints rows as they come: as a table, or as JSON lines. It returns how many there were. A queue
// that can't be read is a row with its error, and an error at the end.
func printRows[T any](out io.Writer, f form, heads string, rows iter.Seq2[T, error], cells func(T) []string) (n int, err error) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	bad := 0
	head := sync.OnceFunc(func() { fmt.Fprintln(table, strings.ReplaceAll(heads, " ", "\t")) })
	for row, failed := range rows {
		u := asUnread(failed)
		if failed != nil && u == nil {
			err = failed
			break
		}
		var line any = row
		if u != nil {
			bad++
			line = u.row()
		} else {
			n++
		}
		if f.JSON {
			if err := printJSON(out, line); err != nil {
				return n, err
			}
			continue
		}
		head()
		if u != nil {
			fmt.Fprintf(table, "%s  can't be read: %s\n", printable(string(u.queue)), printable(u.err.Error()))
			continue
		}
		fmt.Fprintln(table, strings.Join(cells(row), "\t"))
		if n%page == 0 {
			if err := table.Flush(); err != nil {
				return n, err
			}
		}
	}
	if flushed := table.Flush(); err == nil {
		err = flushed
	}
	if err == nil {
		err = someUnread(bad)
	}
	return n, err
}

// tell prints a value, as JSON or as text.
func (f form) tell(out io.Writer, v any, format string, args ...any) error {
	if f.JSON {
		return printJSON(out, v)
	}
	_, err := fmt.Fprintf(out, format+"\n", args...)
	return err
}

// turned converts the rows of a listing to those to print.
func turned[T, U any](rows iter.Seq2[T, error], turn func(T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for row, err := range rows {
			if err != nil {
				var none U
				if !yield(none, err) {
					return
				}
				continue
			}
			if !yield(turn(row), nil) {
				return
			}
		}
	}
}

func kept[T any](rows iter.Seq2[T, error], keep func(T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for row, err := range rows {
			if (err != nil || keep(row)) && !yield(row, err) {
				return
			}
		}
	}
}

// first ends a listing after n rows; 0 is no limit.
func first[T any](n uint, rows iter.Seq2[T, error]) iter.Seq2[T, error] {
	if n == 0 {
		return rows
	}
	return func(yield func(T, error) bool) {
		left := n
		for row, err := range rows {
			if left--; !yield(row, err) || left == 0 {
				return
			}
		}
	}
}
