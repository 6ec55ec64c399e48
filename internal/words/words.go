// Package words formats names, numbers and times for people.
package words

import (
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// Shown returns text from outside, shortened, and quoted if a terminal would act on it.
func Shown(s string) string {
	s = Clip(s)
	for _, r := range s {
		if r == '"' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// Clip shortens a name from outside.
func Clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// Grouped formats a number with thousands separators.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Counted formats a number of things, with thousands separators.
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Grouped(n) + " " + thing + "s"
}

// Tasks formats a number of tasks, with their verb.
func Tasks(n int, one, more string) string {
	if n == 1 {
		more = one
	}
	return Counted(n, "task") + " " + more
}

// Clock formats a time.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }
