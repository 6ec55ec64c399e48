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

func NewScript(src string) *Script {
	sum := sha1.Sum([]byte(src))
	return &Script{src, hex.EncodeToString(sum[:])}
}

// SHA returns the digest that identifies the script in Redis.
func (s *Script) SHA() string { return s.sha }

// Call returns the call of the script with the given keys and arguments.
func (s *Script) Call(keys []string, args ...any) Call {
	all := s.Begin(len(keys), len(args))
	for _, k := range keys {
		all = append(all, k)
	}
	return s.CallOf(append(all, args...))
}

// Begin returns the first arguments of a call of the script with a number of keys, and reserves room
// for more. Append the keys and arguments, then pass the result to CallOf.
func (s *Script) Begin(keys, room int) []any {
	all := make([]any, 0, 2+keys+room)
	return append(all, s.sha, keys)
}

// CallOf returns the call with the arguments that Begin started.
func (s *Script) CallOf(all []any) Call { return Call{name: evalsha, args: all, script: s} }

// A Call is one command. Byte slices among its arguments must not change until Redis has received
// them, which may be after Do has returned.
type Call struct {
	name   string
	args   []any
	tail   []any // appended to args
	script *Script
	head   *Head // the name and first arguments, if the call may be combined with others; otherwise nil
}

const evalsha = "EVALSHA"

// Command returns the call of a plain command.
func Command(name string, args ...any) Call { return Call{name: name, args: args} }

// With returns the call with additional arguments.
func (c Call) With(tail []any) Call {
	c.tail = tail
	return c
}

// size returns the total size of the arguments that may be long, in bytes.
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

// Copy returns copies of byte slices as arguments, in a single allocation.
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

// A Reply is Redis's answer: a value, an error reply (a redis.Error), or the reason why there is
// none.
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
