package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr"
)

// asGiven reads text byte for byte: payloads and keys may be any bytes. The parser's own mapper converts them to
// JSON, which loses bytes that aren't UTF-8.
var asGiven = kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := given(ctx)
	target.SetString(text)
	return err
})

// given returns the next argument, byte for byte.
func given(ctx *kong.DecodeContext) (string, error) {
	token, err := ctx.Scan.PopValue("string")
	text, ok := token.Value.(string)
	if err == nil && !ok {
		err = fmt.Errorf("expected text, not %T", token.Value)
	}
	return text, err
}

// A prefixName is a prefix from the command line.
type prefixName string

// Validate is called by kong. Its error doesn't repeat the value, which may be something else by mistake, such
// as a URL.
func (p prefixName) Validate() error {
	peer, err := worqr.Open("redis://localhost", &worqr.Options{Prefix: string(p)}) // does no I/O
	if err == nil {
		err = peer.Close()
	}
	if p == "" || err != nil {
		return usage("the value of --prefix is not valid: a prefix has 1 to 255 bytes, no braces, spaces or control bytes, doesn't end in :failed, and doesn't contain :worker")
	}
	return nil
}

// A period is a positive duration from the command line; 0 if none was given.
type period time.Duration

// bound returns a context that ends after the period, if one was given.
func (p period) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if p == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(p))
}

func (p *period) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("not a positive duration")
	}
	*p = period(d)
	return err
}

// A someText is text from the command line that isn't empty; "" if none was given.
type someText string

func (s *someText) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err == nil && text == "" {
		err = errors.New(noText)
	}
	*s = someText(text)
	return err
}

// noText is the error for an empty text.
const noText = "the text is empty"

// A queueName is the name of a queue from the command line.
type queueName string

// queueNames are names from the command line.
type queueNames = []queueName

// Decode is called by kong. Its error doesn't repeat the value.
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
	case worqr.CheckName(text) != nil:
		return usage("not a valid queue name: use 1 to 255 bytes of UTF-8 without braces, spaces or control bytes")
	}
	return nil
}

// headers are those from the command line, byte for byte.
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

// A pattern is a regular expression from the command line.
type pattern struct{ *regexp.Regexp }

// notPattern is the error for any other text.
const notPattern = "not a regular expression"

func (p *pattern) Decode(ctx *kong.DecodeContext) error {
	text, err := given(ctx)
	if err != nil {
		return err
	}
	if p.Regexp, err = regexp.Compile(text); err != nil {
		return errors.New(notPattern) // the parser's error has the value
	}
	return nil
}
