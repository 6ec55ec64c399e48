package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable replaces control characters, since parts of the text come from outside.
func printable[T ~string](text T) string {
	var b strings.Builder
	for i, r := range string(text) {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(string(text[i:]), string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// brief is printable with at most most characters.
func brief[T ~string](text T, most int) string {
	shown := []rune(printable(text[:min(len(text), 4*most)])) // it may be megabytes
	if len(shown) > most || len(text) > 4*most {
		return string(shown[:min(len(shown), most-1)]) + "…"
	}
	return string(shown)
}

// headerText returns the headers of a task on one line.
func headerText(headers map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		all = append(all, brief(name, 20)+"="+brief(headers[name], 30))
	}
	return strings.Join(all, " ")
}

// age formats a duration for people.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + age(-max(d, -math.MaxInt64))
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 48*time.Hour:
		text := d.Round(time.Second).String()
		if short, ok := strings.CutSuffix(text, "m0s"); ok {
			text = short + "m"
		}
		if short, ok := strings.CutSuffix(text, "h0m"); ok {
			text = short + "h"
		}
		return text
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// sinceMoment returns how long ago t was; "-" if that isn't known.
func sinceMoment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(max(0, time.Since(t)))
}

// nextMoment returns when something will happen, or how late it is.
func nextMoment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	left := time.Until(t)
	late := -left.Truncate(time.Second)
	switch {
	case left > 0:
		return "in " + age(left)
	case late < time.Second:
		return "now"
	case late < time.Minute:
		return late.String() + " late"
	}
	return age(late) + " late"
}

// A blob is bytes from outside. In JSON it's a string, or {"base64": ...} if it isn't UTF-8.
type blob string

func (b blob) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return plainJSON(string(b))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(b))})
}

// A headerRow has headers from outside. Those whose names aren't UTF-8 can't be fields in JSON.
type headerRow struct {
	Headers map[string]blob `json:"headers,omitempty"`
	Others  []otherHeader   `json:"headers_not_utf8,omitempty"`
	all     map[string]string
}

type otherHeader struct {
	Name  blob `json:"name"`
	Value blob `json:"value"`
}

func headerRowOf(headers map[string]string) headerRow {
	row := headerRow{Headers: map[string]blob{}, all: headers}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if utf8.ValidString(name) {
			row.Headers[name] = blob(headers[name])
		} else {
			row.Others = append(row.Others, otherHeader{blob(name), blob(headers[name])})
		}
	}
	return row
}

// seconds is a duration in JSON.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Round(time.Microsecond).Seconds())
}

// jsonLine returns v on one line. It also escapes what a terminal would act on.
func jsonLine(v any) ([]byte, error) {
	text, err := plainJSON(v)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, len(text))
	for _, r := range string(text) {
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
	return append(line, '\n'), nil
}

// plainJSON returns JSON in which <, > and & aren't escaped.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
