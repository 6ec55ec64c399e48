package store

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// A decoder decodes a reply that is an array, one element after the other. At the first unexpected
// element it sets err; from then on it yields zeros.
type decoder struct {
	rest []any
	err  error
}

var errTooShort = errors.New("the reply is too short")

// read decodes the reply of a script. If the script refused, that is the error of the decoder. A
// reply that is a single value is an array of one.
func read(reply any, err error) *decoder {
	if err != nil {
		return &decoder{err: Refusal(err)}
	}
	if several, ok := reply.([]any); ok {
		return &decoder{rest: several}
	}
	return &decoder{rest: []any{reply}}
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

// as returns a value of a reply as a T. If the type is wrong, it sets err, unless err is already set.
func as[T any](v any, err *error, want string) T {
	t, ok := v.(T)
	if !ok && *err == nil {
		*err = fmt.Errorf("the reply has %T instead of %s", v, want)
	}
	return t
}

// fail sets err, unless it's already set.
func (d *decoder) fail(err error) { d.err = cmp.Or(d.err, err) }

func (d *decoder) int() int64 { return as[int64](d.next(), &d.err, "a number") }

func (d *decoder) bytes() []byte { return as[[]byte](d.next(), &d.err, "a string") }

func (d *decoder) string() string { return string(d.bytes()) }

// list decodes a nested array.
func (d *decoder) list() *decoder {
	rest := as[[]any](d.next(), &d.err, "an array")
	return &decoder{rest: rest, err: d.err}
}

// each calls f until the array is used up.
func (d *decoder) each(f func()) {
	for d.err == nil && len(d.rest) > 0 {
		f()
	}
}

// strings decodes a nested array of strings.
func (d *decoder) strings() (all []string) {
	in := d.list()
	in.each(func() { all = append(all, in.string()) })
	d.join(in)
	return all
}

// join makes the error of a nested array the decoder's own.
func (d *decoder) join(nested *decoder) { d.fail(nested.err) }

// numberIn parses a number. It returns 0 for other text, and the nearest int64 if it's out of range.
func numberIn(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// countIn is numberIn for what can't be negative.
func countIn(text string) int { return int(min(max(numberIn(text), 0), math.MaxInt32)) }
