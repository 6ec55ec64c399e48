// Package store reads and changes the tasks in Redis, as docs/protocol.md describes. It holds
// the Lua scripts, one file for each verb, and the Go functions that call them.
//
// A script makes its checks before it changes tasks, since Redis doesn't roll back. It takes the
// time from Redis. It refuses with an error reply whose first word is the reason. Fragments that
// several verbs share are in lib_*.lua. A script names them in its header, or where it needs them if it often
// doesn't: Redis builds the functions of a script in each call. source puts them there.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"regexp"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The refusals of scripts.
var (
	ErrNoMember  = errors.New("the worker isn't a member of the queue")
	ErrDuplicate = errors.New("an equal unique task is waiting or running")
	ErrTooLarge  = errors.New("the call is too large")
	ErrLost      = errors.New("the cancel is gone from Redis")
)

// refusals maps the first word of a refusal to its error.
var refusals = map[string]error{
	"EVICTED": ErrNoMember, "DUPLICATE": ErrDuplicate, "TOOLARGE": ErrTooLarge, "LOST": ErrLost,
}

// Refusal converts the error reply of a script that refused to the error of that refusal.
func Refusal(err error) error {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	word, _, _ := strings.Cut(string(e), " ")
	return cmp.Or(refusals[word], err)
}

// A Runner makes calls, and returns one reply for each.
type Runner interface {
	Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply
	One(ctx context.Context, c redisconn.Call) (any, error)
}

// A Verb is one script. Its header says what it does, how it is called, and what it returns.
type Verb struct {
	Name string // of its file, without .lua

	script *redisconn.Script
	apart  *redisconn.Script // in a cluster
}

var table []*Verb

// Verbs returns all verbs. Don't modify them.
func Verbs() []*Verb { return table }

// verb adds a script to the table.
func verb(name string) *Verb {
	v := &Verb{Name: name}
	v.script = redisconn.NewScript(v.Source)
	v.apart = redisconn.NewScript(func() string { return apart(v.Source()) })
	table = append(table, v)
	return v
}

// Source returns the script for a single server.
func (v *Verb) Source() string { return source(v.Name) }

// Digests returns the SHA-1 of the script, by which Redis names it in its slow log: on a single server, and in a cluster.
func (v *Verb) Digests() (alone, apart string) { return v.script.Digest(), v.apart.Digest() }

// text returns the script of the verb: the variant for a cluster if the queue is in one.
func (v *Verb) text(q keys.Queue) *redisconn.Script {
	if q.Scattered() {
		return v.apart
	}
	return v.script
}

// A Shared has the keys and arguments that lib_keys.lua names: all scripts on a queue have them,
// except enqueue and those of the fleet. Who makes many calls on a queue keeps it.
type Shared struct {
	q   keys.Queue
	all [4]any // two keys and two arguments
}

// SharedOf returns the shared keys and arguments of a queue.
func SharedOf(q keys.Queue) *Shared {
	prefix, tail := q.Ends()
	return &Shared{q, [4]any{q.State(), keys.None(q), prefix, tail}}
}

// Queue returns the names of the queue's keys.
func (s *Shared) Queue() keys.Queue { return s.q }

// line begins the arguments of a call, with room for more. The call is made of the result with callOf.
func (v *Verb) line(s *Shared, room int, args ...any) []any {
	all := v.text(s.q).Begin(2, 2+len(args)+room)
	return append(append(all, s.all[:]...), args...)
}

func (v *Verb) callOf(s *Shared, line []any) redisconn.Call { return v.text(s.q).CallOf(line) }

// call returns the call of a verb that uses lib_keys.
func (v *Verb) call(s *Shared, args ...any) redisconn.Call {
	return v.callOf(s, v.line(s, 0, args...))
}

// ask calls a verb that uses lib_keys, and decodes its reply.
func (v *Verb) ask(ctx context.Context, r Runner, q keys.Queue, args ...any) *decoder {
	return read(r.One(ctx, v.call(SharedOf(q), args...)))
}

//go:embed *.lua
var files embed.FS

var uses = regexp.MustCompile(`(?m)^-- Uses (lib_\w+(?:, lib_\w+)*)\.$`)

// source returns the script of a verb, with the fragments in the place of the lines that name them.
func source(verb string) string {
	var all strings.Builder
	written := map[string]bool{}
	var write func(name string)
	write = func(name string) {
		if written[name] {
			return
		}
		written[name] = true
		body, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // the file is embedded
		}
		for at := uses.FindSubmatchIndex(body); at != nil; at = uses.FindSubmatchIndex(body) {
			all.Write(body[:at[0]])
			for fragment := range strings.SplitSeq(string(body[at[2]:at[3]]), ", ") {
				write(fragment)
			}
			body = body[at[1]:]
		}
		all.Write(body)
	}
	write(verb)
	return all.String()
}

// apart returns the variant of a script for a cluster, where messages don't go to all nodes. On a
// single server, both variants behave alike.
func apart(text string) string {
	changed := strings.ReplaceAll(text, "redis.pcall('PUBLISH', ", "publish(")
	if changed == text {
		return text
	}
	return source("lib_tell") + changed
}

func listed(texts []string) []any {
	all := make([]any, len(texts))
	for i, t := range texts {
		all[i] = t
	}
	return all
}

// flag returns a bool as the scripts have it.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
