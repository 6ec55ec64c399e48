package redisconn

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// A Script is a Lua script.
type Script struct{ source, digest func() string }

// NewScript returns a script. source is called when the script is first used, and whenever Redis
// doesn't know it: a program that has a hundred scripts builds those that it uses, and keeps none.
func NewScript(source func() string) *Script {
	return &Script{source, sync.OnceValue(func() string { return fmt.Sprintf("%x", sha1.Sum([]byte(source()))) })}
}

// Digest returns the digest that identifies a script in Redis.
func (s *Script) Digest() string { return s.digest() }

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
	return append(all, s.digest(), keys)
}

// CallOf returns the call with the arguments that Begin started.
func (s *Script) CallOf(all []any) Call { return Call{name: evalsha, args: all, script: s} }

// A Call is one command. Byte slices among its arguments must not change until Redis has received
// them, which may be after Do has returned, if its context can end.
type Call struct {
	name   string
	args   []any
	tail   []any // appended to args
	script *Script
	head   *Head  // the name and first arguments, if the call may be combined with others; otherwise nil
	at     string // a key that determines the node, if the call has none
}

const evalsha = "EVALSHA"

// Command returns the call of a plain command.
func Command(name string, args ...any) Call { return Call{name: name, args: args} }

// With returns the call with additional arguments.
func (c Call) With(tail []any) Call {
	c.tail = tail
	return c
}

// words returns the command. whole makes it contain the script's source instead of the digest.
func (c *Call) words(whole bool) (name string, args []any) {
	switch {
	case whole:
		args = slices.Concat(c.args, c.tail)
		args[0] = c.script.source()
		return "EVAL", args
	case len(c.tail) > 0:
		return c.name, slices.Concat(c.args, c.tail)
	}
	return c.name, c.args
}

// told returns the arguments that may be secret: all but the script.
func (c *Call) told() []any {
	_, args := c.words(false)
	if c.script != nil {
		args = args[1:]
	}
	return args
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

// Payloads returns byte slices as arguments of a call with ctx. They may change once the call has
// returned: if ctx can end, Payloads copies them, in a single allocation, since the connection may
// read them for longer.
func Payloads(ctx context.Context, all [][]byte) []any {
	args := make([]any, len(all))
	if ctx.Done() == nil {
		for i, b := range all {
			args[i] = b
		}
		return args
	}
	size := 0
	for _, b := range all {
		size += len(b)
	}
	copied := make([]byte, 0, size)
	for i, b := range all {
		copied = append(copied, b...)
		args[i] = copied[len(copied)-len(b) : len(copied) : len(copied)]
	}
	return args
}

// A Reply is Redis's answer: a value, an error reply (a redis.Error), or the reason why there is
// none.
type Reply struct {
	Value any
	Err   error
}

// Repeatable reports whether a server hasn't carried out a call, and will carry it out if it's repeated once the reason
// has passed by itself.
func Repeatable(err error) bool {
	_, redirected := Redirected(err)
	return redirected || Postponed(err) != "" || Unloaded(err) || errors.Is(err, errStale) || replied(err, "OOM", "MISCONF", "BUSY")
}

// Unloaded reports whether Redis doesn't know the script of a call, after the server's scripts were flushed: the call
// has to be repeated. Only Send's calls fail with that.
func Unloaded(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}
