package simulation

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// A refusal is an error reply.
type refusal string

// A status is a simple string.
type status string

// appendReply appends a reply in the Redis protocol.
func appendReply(b []byte, reply any) []byte {
	switch r := reply.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int:
		return appendReply(b, int64(r))
	case int64:
		return append(strconv.AppendInt(append(b, ':'), r, 10), "\r\n"...)
	case status:
		return append(append(append(b, '+'), r...), "\r\n"...)
	case refusal:
		return append(append(append(b, '-'), r...), "\r\n"...)
	case string:
		return append(append(head(b, '$', len(r)), r...), "\r\n"...)
	}
	all := reply.([]any)
	b = head(b, '*', len(all))
	for _, v := range all {
		b = appendReply(b, v)
	}
	return b
}

func head(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), "\r\n"...)
}

// errShort is returned if a reply or a command is incomplete.
var errShort = errors.New("more is to come")

// readReply parses the reply at the front of b, and returns the rest.
func readReply(b []byte) (reply any, rest []byte, err error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, b, errShort
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return status(text), rest, nil
	case '-':
		return refusal(text), rest, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return nil, b, fmt.Errorf("a reply begins with %q", line)
	}
	switch {
	case kind == ':':
		return n, rest, nil
	case n < 0:
		return nil, rest, nil
	case kind == '$' && int64(len(rest)) < n+2:
		return nil, b, errShort
	case kind == '$':
		return string(rest[:n]), rest[n+2:], nil
	case kind != '*':
		return nil, b, fmt.Errorf("a reply begins with %q", line)
	}
	all := make([]any, n)
	for i := range all {
		if all[i], rest, err = readReply(rest); err != nil {
			return nil, b, err
		}
	}
	return all, rest, nil
}

// readCommand parses the command at the front of b.
func readCommand(b []byte) (args []string, rest []byte, err error) {
	v, rest, err := readReply(b)
	if err != nil {
		return nil, b, err
	}
	all, ok := v.([]any)
	if !ok || len(all) == 0 {
		return nil, b, fmt.Errorf("a command is %T", v)
	}
	args = make([]string, len(all))
	for i, a := range all {
		if args[i], ok = a.(string); !ok {
			return nil, b, fmt.Errorf("an argument of a command is %T", a)
		}
	}
	return args, rest, nil
}
