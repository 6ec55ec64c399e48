package spec

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
)

// A Refusal is an error reply. A script that fails halfway panics with one, since nothing is rolled back.
type Refusal string

// A Status is a simple string.
type Status string

// AppendReply appends a reply in the Redis protocol.
func AppendReply(b []byte, reply any) []byte {
	switch r := reply.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int:
		return AppendReply(b, int64(r))
	case int64:
		return append(strconv.AppendInt(append(b, ':'), r, 10), "\r\n"...)
	case Status:
		return append(append(append(b, '+'), r...), "\r\n"...)
	case Refusal:
		return append(append(append(b, '-'), r...), "\r\n"...)
	case string:
		return append(append(head(b, '$', len(r)), r...), "\r\n"...)
	}
	all := reply.([]any)
	b = head(b, '*', len(all))
	for _, v := range all {
		b = AppendReply(b, v)
	}
	return b
}

func head(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), "\r\n"...)
}

// Write sends a reply to a client.
func Write(p *server.Peer, reply any) { p.WriteRaw(string(AppendReply(nil, reply))) }

// ErrShort is returned if a reply or a command is incomplete.
var ErrShort = errors.New("more is to come")

// ReadReply parses the reply at the front of b, and returns the rest.
func ReadReply(b []byte) (reply any, rest []byte, err error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, b, ErrShort
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return Status(text), rest, nil
	case '-':
		return Refusal(text), rest, nil
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
		return nil, b, ErrShort
	case kind == '$':
		return string(rest[:n]), rest[n+2:], nil
	case kind != '*':
		return nil, b, fmt.Errorf("a reply begins with %q", line)
	}
	all := make([]any, n)
	for i := range all {
		if all[i], rest, err = ReadReply(rest); err != nil {
			return nil, b, err
		}
	}
	return all, rest, nil
}

// ReadCommand parses the command at the front of b.
func ReadCommand(b []byte) (args []string, rest []byte, err error) {
	v, rest, err := ReadReply(b)
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

// Reply converts a reply from Redis to a reply of a Store.
func Reply(v any, err error) any {
	if refused, ok := errors.AsType[redis.Error](err); ok {
		return Refusal(refused)
	}
	switch v := v.(type) {
	case redis.Error:
		return Refusal(v)
	case string:
		return Status(v)
	case []byte:
		return string(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = Reply(v[i], nil)
		}
		return all
	}
	return v
}

// Show formats a reply. Of a refusal it has only the first word, since the rest depends on the server. It
// leaves out errors in an array.
func Show(reply any) string {
	switch r := reply.(type) {
	case Refusal:
		word, _, _ := strings.Cut(string(r), " ")
		switch {
		case strings.Contains(string(r), "WRONGTYPE"):
			return "WRONGTYPE"
		case word == "ERR":
			return string(r)
		}
		return word
	case string:
		return strconv.Quote(r)
	case []any:
		all := make([]string, len(r))
		for i, v := range r {
			if _, refused := v.(Refusal); refused {
				v = nil
			}
			all[i] = Show(v)
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(reply)
}
