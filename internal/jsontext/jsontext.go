// Package jsontext explains why JSON can't be decoded, without quoting any of it.
package jsontext

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Undecodable returns why size bytes couldn't be decoded. Errors of encoding/json quote characters, numbers,
// keys and fields, and those of UnmarshalJSON methods may quote anything. So it uses none of their text.
func Undecodable(err error, into reflect.Type, size int) error {
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
	return fmt.Errorf("not a %v: UnmarshalJSON failed with a %T", into, err)
}

// kinds are the kinds of JSON values.
var kinds = []string{"string", "number", "bool", "array", "object", "null"}

// fieldOf returns the path to a field, through embedded structs, as far as it consists of names in
// the type. The rest may come from the payload, as map keys do.
func fieldOf(in reflect.Type, path string) string {
	var known []string
	for name := range strings.SplitSeq(path, ".") {
		seen := map[reflect.Type]bool{} // a type may contain only itself: type tree []tree
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
