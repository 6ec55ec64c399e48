package redisconn

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A Script is a Lua script with its digest.
type Script struct{ src, sha string }

// NewScript returns the script with the given source.
func NewScript(src string) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{src, hex.EncodeToString(sum[:])}
}

// SHA is the digest of the script, by which Redis knows it.
func (s *Script) SHA() string { return s.sha }

// Call returns the call of the script with the given keys and arguments.
func (s *Script) Call(keys []string, args ...any) Call {
	all := s.Begin(len(keys), len(args))
	for _, k := range keys {
		all = append(all, k)
	}
	return s.CallOf(append(all, args...))
}

// Begin returns how a call of the script begins that has so many keys, with room for as
// many arguments besides. The keys and arguments are to be appended; CallOf makes the call.
func (s *Script) Begin(keys, room int) []any {
	all := make([]any, 0, 2+keys+room)
	return append(all, s.sha, keys)
}

// CallOf returns the call that Begin has begun.
func (s *Script) CallOf(all []any) Call { return Call{name: evalsha, args: all, script: s} }

// A Call is one command. Byte slices among its arguments must not change
// until Redis has received them, which may be after Do has returned.
type Call struct {
	name   string
	args   []any
	tail   []any // follow args
	script *Script
	head   *Head // name and args, if the call may travel with others; else nil
}

const evalsha = "EVALSHA"

// Command returns the call of a plain command.
func Command(name string, args ...any) Call { return Call{name: name, args: args} }

// With returns the call with further arguments.
func (c Call) With(tail []any) Call {
	c.tail = tail
	return c
}

// size is that of what may be long, in bytes.
func (c *Call) size() (n int) {
	for _, args := range [...][]any{c.args, c.tail} {
		for _, a := range args {
			if b, ok := a.([]byte); ok {
				n += len(b)
			}
		}
	}
	return n
}

// Copy returns copies of byte slices as arguments, all in one piece.
func Copy(args [][]byte) []any {
	size := 0
	for _, a := range args {
		size += len(a)
	}
	all, copies := make([]byte, 0, size), make([]any, len(args))
	for i, a := range args {
		all = append(all, a...)
		copies[i] = all[len(all)-len(a) : len(all) : len(all)]
	}
	return copies
}

// A Reply is what Redis answered: a value, an error reply (a redis.Error), or
// why there is no answer.
type Reply struct {
	Value any
	Err   error
}

func isNoScript(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}
