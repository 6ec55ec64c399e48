package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
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
		return whole(d)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// whole formats a duration in whole seconds, without units of 0.
func whole(d time.Duration) string {
	text := d.Round(time.Second).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
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
