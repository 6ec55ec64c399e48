// Package store is the door to Redis. It holds the Lua scripts that move tasks, one file
// for each verb and one Go function for each file. Nobody else runs Lua.
//
// Every script makes its checks before its first write, since Redis does not
// roll back; takes time from Redis; and refuses with an error reply whose first
// word says why. Fragments that several verbs share are in lib_*.lua: a script
// that names them in its header runs after them.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
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

// refusals are the errors by their words.
var refusals = map[string]error{
	"EVICTED": ErrEvicted, "STALE": ErrStale, "DUPLICATE": ErrDuplicate, "BATCH": ErrBatch, "UNMOVED": ErrUnmoved,
}

// A Runner makes calls, one reply for each. *redisconn.Line is one.
type Runner interface {
	Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply
	One(ctx context.Context, c redisconn.Call) (any, error)
}

//go:embed *.lua
var files embed.FS

var uses = regexp.MustCompile(`(?m)^-- Uses (lib_\w+(?:, lib_\w+)*)\.$`)

// load returns the script of a verb, its fragments first.
func load(verb string) *redisconn.Script { return redisconn.NewScript(source(verb)) }

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
	return marks.ReplaceAllString(all.String(), "")
}

// marks name guards of the protocol, and excuse changes that no test notices: they are for
// integration/mutation.
var marks = regexp.MustCompile(`(?m) --!.*$`)

// ask makes one call of a verb and takes its reply apart.
func (v *Verb) ask(ctx context.Context, r Runner, q keys.Queue, given ...any) *answer {
	a := v.read(r.One(ctx, v.call(q, given...)))
	return &a
}

// Refusal makes the error reply of a script that refused its own error.
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

// A decoder takes apart an array inside of an answer, one element after the other. The
// first thing that is not as expected is its error; from there on it yields zeros.
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

func (d *decoder) fail(v any, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("the reply has %T instead of %s", v, want)
	}
}

func (d *decoder) int() int64 {
	v := d.next()
	n, ok := v.(int64)
	if !ok {
		d.fail(v, "a number")
	}
	return n
}

func (d *decoder) bytes() []byte {
	v := d.next()
	b, ok := v.([]byte)
	if !ok {
		d.fail(v, "a string")
	}
	return b
}

// number decodes a number that is stored as text; what people have written there
// is 0.
func (d *decoder) number() int64 {
	n, _ := strconv.ParseInt(d.string(), 10, 64)
	return n
}

func (d *decoder) string() string { return string(d.bytes()) }

// list decodes a nested array.
func (d *decoder) list() *decoder {
	v := d.next()
	rest, ok := v.([]any)
	if !ok {
		d.fail(v, "an array")
	}
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

// Now is the time of Redis, in ms.
func Now(ctx context.Context, r Runner) (int64, error) {
	v, err := redis.Int64s(r.One(ctx, redisconn.Command("TIME")))
	if err != nil || len(v) != 2 {
		return 0, err
	}
	return v[0]*1000 + v[1]/1000, nil
}
