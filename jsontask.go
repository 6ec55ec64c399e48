package worqr

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// JSON returns a Handler that decodes the payload as json.Unmarshal does. If that fails, or
// more follows the value, the error is Malformed and h isn't called. It panics if h is nil.
func JSON[T any](h func(ctx context.Context, v T, t *Task) error) Handler {
	if h == nil {
		panic("worqr: JSON needs a handler")
	}
	return func(ctx context.Context, t *Task) error {
		var v T
		if err := json.Unmarshal(t.Payload, &v); err != nil {
			return Malformed(wrap("decode the payload", undecodable(err, reflect.TypeFor[T](), len(t.Payload))))
		}
		return h(ctx, v, t)
	}
}

// undecodable says why size bytes did not become a value of the type. Errors of
// encoding/json quote characters, numbers, keys and fields, and those of
// UnmarshalJSON methods may quote anything. So none of their text is used.
func undecodable(err error, into reflect.Type, size int) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON, at byte %d of %d", e.Offset, size)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := fieldOf(into, e.Field)
		if field != "" {
			field = "field " + field + ": "
		}
		found, _, _ := strings.Cut(e.Value, " ") // after a space, a number is quoted
		if !slices.Contains(kinds, found) {
			found = "something else"
		}
		return fmt.Errorf("not a %v: %swant %v, found %s, at byte %d of %d", into, field, e.Type, found, e.Offset, size)
	}
	return fmt.Errorf("not a %v: refused with a %T", into, err)
}

// kinds are those of JSON.
var kinds = []string{"string", "number", "bool", "array", "object", "null"}

// fieldOf is the path to a field, through what is embedded, as far as the type knows
// it. What follows may be of the payload, as the keys of maps are.
func fieldOf(in reflect.Type, path string) string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		seen := map[reflect.Type]bool{} // a type may hold nothing but itself: type tree []tree
		for (in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice || in.Kind() == reflect.Array || in.Kind() == reflect.Map) && !seen[in] {
			seen[in] = true
			in = in.Elem()
		}
		if in.Kind() != reflect.Struct {
			break
		}
		fields := reflect.VisibleFields(in)
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return (f.IsExported() || f.Anonymous) && cmp.Or(tag, f.Name) == name
		})
		if i < 0 {
			break
		}
		known, in = append(known, name), fields[i].Type
	}
	return strings.Join(known, ".")
}

// EnqueueJSON encodes the values as json.Marshal does and enqueues them: all, or none if it
// fails. It fails as Enqueue does, and with ErrInvalid if a value can't be encoded.
func EnqueueJSON[T any](ctx context.Context, q *Queue, vs ...T) error {
	payloads := make([][]byte, len(vs))
	for i, v := range vs {
		p, err := json.Marshal(v)
		if err != nil {
			return q.wrap("enqueue", fmt.Errorf("%w: value %d of %d, a %T, cannot be JSON: %s", ErrInvalid, i+1, len(vs), v, unencodable(err)))
		}
		payloads[i] = p
	}
	return q.Enqueue(ctx, payloads...)
}

// unencodable says why a value could not be encoded, without the text of the
// error, which may quote the value.
func unencodable(err error) string {
	if e, ok := errors.AsType[*json.MarshalerError](err); ok { // first: it may wrap the others
		return fmt.Sprintf("a method of %v fails", e.Type)
	}
	if e, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		return fmt.Sprintf("JSON has no %v", e.Type)
	}
	return fmt.Sprintf("refused with a %T", err)
}
