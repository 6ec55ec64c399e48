package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr/internal/keys"
)

// asGiven reads a text byte for byte: payloads and keys may be any bytes. The parser's own mapper
// makes JSON of them, in which bytes that aren't UTF-8 are lost.
var asGiven = kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := given(ctx)
	target.SetString(text)
	return err
})

// given is the next value of the arguments, byte for byte.
func given(ctx *kong.DecodeContext) (string, error) {
	token, err := ctx.Scan.PopValue("string")
	text, ok := token.Value.(string)
	if err == nil && !ok {
		err = fmt.Errorf("expected a text, not %T", token.Value)
	}
	return text, err
}

// A prefixName is a prefix that was given.
type prefixName string

// Validate is called by kong. It doesn't repeat what was given: in its place may stand something
// else, such as a URL.
func (p prefixName) Validate() error {
	if p == "" || keys.CheckPrefix(string(p)) != nil {
		return usage("the value of --prefix is not valid: a prefix has 1 to 255 bytes, no braces, spaces or control bytes, doesn't end in :failed, and doesn't contain :worker")
	}
	return nil
}

// A leaseTime is a lease that was given; 0 if none was.
type leaseTime time.Duration

// Decode is called by kong. A lease of 0 isn't that of the fleet, which 0 stands for in the library.
func (l *leaseTime) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return usage("the value of --lease is not valid; write a duration such as 3s")
	}
	*l = leaseTime(d)
	return nil
}

// A queueName is the name of a queue that was given.
type queueName string

// queueNames are names that were given.
type queueNames = []queueName

// Decode is called by kong. It doesn't repeat what was given.
func (q *queueName) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err != nil {
		return err
	}
	switch *q = queueName(text); {
	case *q == "":
		return usage("expected \"<queue>\", the name of a queue")
	case strings.Contains(text, "://"):
		return usage("expected the name of a queue, not a URL; set REDIS_URL or --redis")
	case keys.CheckName(text) != nil:
		return usage("not a valid queue name: use 1 to 255 bytes of UTF-8 without braces, spaces or control bytes")
	}
	return nil
}

// headers are those that were given, byte for byte.
type headers map[string]string

// Decode is called by kong, for each flag.
func (h *headers) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err != nil {
		return err
	}
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return usage("the value of --header is not valid; write NAME=VALUE")
	}
	if *h == nil {
		*h = headers{}
	}
	(*h)[name] = value
	return nil
}

// A pattern is a regular expression that was given.
type pattern struct{ *regexp.Regexp }

// notPattern is what is said of another text.
const notPattern = "not a regular expression"

// Decode is called by kong.
func (p *pattern) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err != nil {
		return err
	}
	if p.Regexp, err = regexp.Compile(text); err != nil {
		return errors.New(notPattern) // the parser's error says what was given
	}
	return nil
}
