// Package store reads and changes the tasks in Redis. It holds the Lua scripts, one file for each
// verb, and the Go functions that call them. Outside of tests, no other package runs Lua.
//
// Every script makes its checks before its first write, since Redis doesn't roll back. It takes the
// time from Redis. It refuses with an error reply whose first word is the reason. Fragments that
// several verbs share are in lib_*.lua. A script names them in its header, and source puts them in
// front of it.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The refusals of scripts.
var (
	ErrEvicted   = errors.New("the worker isn't a member of the queue")
	ErrStale     = errors.New("a later round has been answered")
	ErrDuplicate = errors.New("an equal unique task is waiting or running")
)

// refusals maps the first word of a refusal to its error.
var refusals = map[string]error{
	"EVICTED": ErrEvicted, "STALE": ErrStale, "DUPLICATE": ErrDuplicate,
}

// A Runner makes calls, and returns one reply for each. *redisconn.Line is one. In a cluster, the
// calls of one Do run in no particular order: see inOrder.
type Runner interface {
	Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply
	One(ctx context.Context, c redisconn.Call) (any, error)
}

// inOrder makes calls step by step, for callers that rely on one reply being later than another. One
// server runs all in their order, in one exchange. In a cluster, a call may be redirected to another
// node while later ones are answered, so each step waits for the previous one.
func inOrder(ctx context.Context, r Runner, scattered bool, steps ...[]redisconn.Call) (replies []redisconn.Reply) {
	all := slices.Concat(steps...)
	if !scattered {
		return r.Do(ctx, all...)
	}
	for _, calls := range steps {
		if len(calls) == 0 {
			continue
		}
		replies = append(replies, r.Do(ctx, calls...)...)
		for _, reply := range replies[len(replies)-len(calls):] {
			if reply.Err != nil && !IsRefusal(reply.Err) { // the other calls would fail, too
				return append(replies, slices.Repeat([]redisconn.Reply{{Err: reply.Err}}, len(all)-len(replies))...)
			}
		}
	}
	return replies
}

// doEach makes one call for each element.
func doEach[T any](ctx context.Context, r Runner, all []T, call func(T) redisconn.Call) []redisconn.Reply {
	calls := make([]redisconn.Call, len(all))
	for i, one := range all {
		calls[i] = call(one)
	}
	return r.Do(ctx, calls...)
}

// readAs converts a reply with as. It sets err to the error, unless err is already set.
func readAs[T any](reply redisconn.Reply, as func(any, error) (T, error), err *error) T {
	v, failed := as(reply.Value, reply.Err)
	*err = cmp.Or(*err, failed)
	return v
}

// failure returns the first error among replies.
func failure(replies []redisconn.Reply) error {
	for _, reply := range replies {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

//go:embed *.lua
var files embed.FS

var uses = regexp.MustCompile(`(?m)^-- Uses (lib_\w+(?:, lib_\w+)*)\.$`)

// source returns the script of a verb, its fragments first.
func source(verb string) string {
	body, err := files.ReadFile(verb + ".lua")
	if err != nil {
		panic(err) // the file is embedded
	}
	var all strings.Builder
	if m := uses.FindSubmatch(body); m != nil {
		for lib := range strings.SplitSeq(string(m[1]), ", ") {
			part, err := files.ReadFile(lib + ".lua")
			if err != nil {
				panic(err)
			}
			all.Write(part)
		}
	}
	all.Write(body)
	return all.String()
}

// apart returns the variant of a script for a cluster, where messages don't go to all nodes. On a
// single server, both variants behave alike.
func apart(source string) string {
	changed := tells.Replace(source)
	if changed == source {
		return source
	}
	part, err := files.ReadFile("lib_tell.lua")
	if err != nil {
		panic(err)
	}
	return string(part) + changed
}

var tells = strings.NewReplacer("redis.pcall('PUBLISH', ", "publish(", "redis.pcall('PUBSUB', 'NUMSUB', ", "listeners(")

// ask makes one call of a verb and decodes its reply.
func (v *Verb) ask(ctx context.Context, r Runner, q keys.Queue, given ...any) *answer {
	a := v.read(r.One(ctx, v.call(q, given...)))
	return &a
}

// Refusal converts the error reply of a script that refused to the error of that refusal.
func Refusal(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	word, _, _ := strings.Cut(string(e), " ")
	return cmp.Or(refusals[word], err)
}

// A decoder decodes an array inside an answer, one element after the other. At the first unexpected
// element it sets err; from then on it yields zeros.
type decoder struct {
	rest []any
	err  error
}

func (d *decoder) next() any {
	if d.err == nil && len(d.rest) == 0 {
		d.err = errTooShort
	}
	if d.err != nil {
		return nil
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

// as returns a value of a reply, with or without a name, as a T. If the type is wrong, it sets err,
// unless err is already set.
func as[T any](v any, err *error, name, want string) T {
	t, ok := v.(T)
	if !ok && *err == nil {
		if name != "" {
			name += ": "
		}
		*err = fmt.Errorf("%sthe reply has %T instead of %s", name, v, want)
	}
	return t
}

func (d *decoder) int() int64 { return as[int64](d.next(), &d.err, "", "a number") }

func (d *decoder) bytes() []byte { return as[[]byte](d.next(), &d.err, "", "a string") }

// number decodes a number that is stored as text.
func (d *decoder) number() int64 { return numberIn(d.string()) }

// numberIn parses a number. It returns 0 for other text, and the nearest int64 if it's out of range.
func numberIn(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// countIn is numberIn for what can't be negative.
func countIn(text string) int { return int(min(max(numberIn(text), 0), math.MaxInt32)) }

func (d *decoder) string() string { return string(d.bytes()) }

// list decodes a nested array.
func (d *decoder) list() *decoder {
	rest := as[[]any](d.next(), &d.err, "", "an array")
	return &decoder{rest: rest, err: d.err}
}

// each calls f until the array is used up.
func (d *decoder) each(f func()) {
	for d.err == nil && len(d.rest) > 0 {
		f()
	}
}

// join makes the error of a nested array the decoder's own.
func (d *decoder) join(nested *decoder) {
	if d.err == nil {
		d.err = nested.err
	}
}

// Now returns the time of a server, in ms.
func Now(ctx context.Context, r Runner) (int64, error) {
	return timeOf(ctx, r, redisconn.Command("TIME"))
}

// NowAt returns the time of the queue's Redis.
func NowAt(ctx context.Context, r Runner, q keys.Queue) (int64, error) {
	return timeOf(ctx, r, timeCall(q))
}

func timeCall(q keys.Queue) redisconn.Call { return redisconn.Command("TIME").At(q.Waiting()) }

func timeOf(ctx context.Context, r Runner, call redisconn.Call) (int64, error) {
	v, err := r.One(ctx, call)
	return timeIn(redisconn.Reply{Value: v, Err: err})
}

// timeIn returns the time in the reply to TIME, in ms.
func timeIn(reply redisconn.Reply) (int64, error) {
	v, err := redis.Int64s(reply.Value, reply.Err)
	if err != nil || len(v) != 2 {
		return 0, err
	}
	return v[0]*1000 + v[1]/1000, nil
}
