package logs

import (
	"log/slog"
	"unicode/utf8"
)

// maxLabel is how many bytes of a key or a header are logged.
const maxLabel = 100

// Labels says which keys and headers of tasks are logged.
type Labels struct {
	Keys    bool
	Headers []string // names
}

// Add appends attributes that describe a task: the key, if it has one and keys are logged; the header "type", which Mux
// uses; and a group "headers" with the chosen ones.
func (l *Labels) Add(attrs []any, key string, headers map[string]string) []any {
	if key != "" && l.Keys {
		attrs = append(attrs, "key", label(key))
	}
	if kind := headers["type"]; kind != "" {
		attrs = append(attrs, "type", label(kind))
	}
	var chosen []any
	for _, name := range l.Headers {
		if value, ok := headers[name]; ok {
			chosen = append(chosen, name, label(value))
		}
	}
	if len(chosen) > 0 {
		attrs = append(attrs, slog.Group("headers", chosen...))
	}
	return attrs
}

// label returns a text from outside, shortened, and with escapes.
func label(text string) string {
	if len(text) <= maxLabel {
		return Printable(text)
	}
	end := maxLabel
	for end > maxLabel-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return Printable(text[:end]) + "…"
}
