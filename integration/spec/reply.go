package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
)

// A Refusal is an error reply. What refuses halfway panics with one, since nothing is
// rolled back.
type Refusal string

// A Status is a simple string.
type Status string

// Write answers a client.
func Write(p *server.Peer, reply any) {
	switch r := reply.(type) {
	case nil:
		p.WriteNull()
	case Status:
		p.WriteInline(string(r))
	case Refusal:
		p.WriteError(string(r))
	case int:
		p.WriteInt(r)
	case int64:
		p.WriteInt(int(r))
	case string:
		p.WriteBulk(r)
	case []any:
		p.WriteLen(len(r))
		for _, v := range r {
			Write(p, v)
		}
	}
}

// Reply is what Redis has answered, as a Store answers.
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

// Show is a reply as text. What a refusal says besides its word is left to each server, and
// an error within an array is nothing.
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
