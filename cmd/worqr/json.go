package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printJSON prints one value on one line, without what a terminal would act on.
func printJSON(out io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(jsonOf(reflect.ValueOf(v))); err != nil {
		return err
	}
	var line []byte
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		switch {
		case r == ' ' || unicode.IsPrint(r):
			line = utf8.AppendRune(line, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	_, err := out.Write(append(line, '\n'))
	return err
}

// jsonOf returns what stands for v in JSON. A struct, such as one of package inspect, is an object whose names are those
// of its fields in snake case; texts, times and maps that are empty are left out.
func jsonOf(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC()
	case time.Duration:
		return x.Round(time.Microsecond).Seconds()
	case []byte:
		return jsonText(string(x))
	}
	switch v.Kind() {
	case reflect.String:
		return jsonText(v.String())
	case reflect.Pointer, reflect.Interface:
		return jsonOf(v.Elem())
	case reflect.Struct:
		all := map[string]any{}
		addFields(all, v)
		return all
	case reflect.Map:
		all := map[string]any{}
		for name, value := range v.Seq2() {
			all[printable(strings.ReplaceAll(name.String(), `\`, `\\`))] = jsonOf(value) // each name has its own
		}
		return all
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = jsonOf(v.Index(i))
		}
		return all
	}
	return v.Interface()
}

// addFields adds the fields of a struct, and of those that it embeds.
func addFields(all map[string]any, v reflect.Value) {
	for f, value := range v.Fields() {
		switch name := camel.ReplaceAllString(f.Name, "${1}_$2"); {
		case f.Anonymous:
			addFields(all, reflect.Indirect(value))
		case !f.IsExported() || isNothing(value):
		case f.Type == reflect.TypeFor[time.Duration]():
			all[strings.ToLower(name)+"_seconds"] = jsonOf(value)
		default:
			all[strings.ToLower(name)] = jsonOf(value)
		}
	}
}

var camel = regexp.MustCompile(`([a-z])([A-Z])`)

func isNothing(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Map:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil()
	case reflect.Slice:
		return v.IsNil() && v.Type().Elem().Kind() == reflect.Uint8
	}
	at, ok := v.Interface().(time.Time)
	return ok && at.IsZero()
}

// jsonText returns a text from outside, or {"base64": ...} if it isn't UTF-8.
func jsonText(text string) any {
	if utf8.ValidString(text) {
		return text
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(text))}
}
