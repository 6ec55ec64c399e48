// Package words formats names, numbers and times for people.
package words

import (
	"fmt"
	"strconv"
	"strings"
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
		n := most
		for n > most-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		return s[:n] + "…"
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

// Moment formats a time to the second.
func Moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Stopped ends a text with a full stop, unless it has one: some errors of Redis do.
func Stopped(text string) string { return strings.TrimSuffix(text, ".") + "." }

// Size formats a number of bytes.
func Size(n int64) string {
	for i, name := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); n >= one {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(one), name)
		}
	}
	return Counted(int(n), "byte")
}

// Roughly formats a duration for people: "40 seconds", "5 minutes", "3 hours", "2 days".
func Roughly(d time.Duration) string {
	d = max(d, time.Second)
	switch {
	case d < 90*time.Second:
		return Counted(int(d.Round(time.Second)/time.Second), "second")
	case d < 90*time.Minute:
		return Counted(int(d.Round(time.Minute)/time.Minute), "minute")
	case d < 48*time.Hour:
		return Counted(int(d.Round(time.Hour)/time.Hour), "hour")
	}
	return Counted(int(d/(24*time.Hour)), "day")
}
