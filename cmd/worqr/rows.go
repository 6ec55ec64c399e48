package main

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
)

// form is how a command prints what it found.
type form struct {
	JSON bool `help:"Print JSON: one object a line. Bytes that aren't UTF-8 come as {\"base64\": ...}, durations in seconds."`
}

// page is how many rows a table holds until it's printed, so that a long list neither waits for its
// end nor is held in memory.
const page = 200

// printRows prints rows as they come: as a table, or as JSON lines. It returns how many there were.
func printRows[T any](out io.Writer, f form, heads string, rows iter.Seq2[T, error], cells func(T) []string) (n int, err error) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for row, failed := range rows {
		if failed != nil {
			err = failed
			break
		}
		n++
		if f.JSON {
			if err := printJSON(out, row); err != nil {
				return n, err
			}
			continue
		}
		if n == 1 {
			fmt.Fprintln(table, strings.ReplaceAll(heads, " ", "\t"))
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
	return n, err
}

// printJSON prints one value on one line.
func printJSON(out io.Writer, v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return err
	}
	_, err = out.Write(line)
	return err
}

// tell prints a value in one of two ways.
func (f form) tell(out io.Writer, v any, format string, args ...any) error {
	if f.JSON {
		return printJSON(out, v)
	}
	_, err := fmt.Fprintf(out, format+"\n", args...)
	return err
}

// turned turns the rows of a listing into those to print.
func turned[T, U any](rows iter.Seq2[T, error], turn func(T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for row, err := range rows {
			if err != nil {
				var none U
				yield(none, err)
				return
			}
			if !yield(turn(row), nil) {
				return
			}
		}
	}
}

// kept leaves out rows.
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
func first[T any](n int, rows iter.Seq2[T, error]) iter.Seq2[T, error] {
	if n <= 0 {
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

// ofEach lists the tasks of several queues, one queue after the other.
func ofEach[T any](all queueNames, list func(queueName) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, q := range all {
			for row, err := range list(q) {
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// number is a count with its noun.
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}

// grouped is a number with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
