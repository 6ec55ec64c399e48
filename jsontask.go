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

// JSON returns a Handler that decodes the payload into a T, as json.Unmarshal
// does, and calls h with it. A payload that does not decode, or has anything
// but space after its value, is Broken: it would not decode the next time
// either. Then h is not called. As with json.Unmarshal, null leaves v at its zero
// value, and unknown fields are ignored. Panics if h is nil.
//
// The error tells where the trouble is and of what kind. It holds nothing of
// the payload, and so does not unwrap to the error of encoding/json, which
// quotes it. What h returns is returned as it is.
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

// EnqueueJSON encodes the values, as json.Marshal does, and adds them to the
// back of the queue, in their order: all of them, or none if it fails. Each is
// a task, also one that is a slice. Bytes that are JSON already go to Enqueue: here
// they would become a string in base64. The other methods, such as Put,
// EnqueueUnique, Cancel and Explain, take what json.Marshal makes of a value.
//
// It blocks and fails as Enqueue does. It also fails with ErrInvalid when a
// value cannot be encoded; then nothing was sent. That error tells which value
// and of what type, and holds nothing of it.
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
