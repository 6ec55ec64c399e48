package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A usage error says how the command was used wrongly. It repeats nothing that was
// given: that may be a payload, or a URL with a password.
type usage string

func (u usage) Error() string { return string(u) }

var valueOf = regexp.MustCompile(`^(--[a-z-]+)(?:=[^:]*)?: `)

// misuse says what is wrong with the arguments, without repeating them. What the parser
// says does.
func misuse(err error, args []string) string {
	if u, ok := errors.AsType[usage](err); ok {
		return string(u)
	}
	text := err.Error()
	if strings.HasPrefix(text, "expected ") || strings.HasPrefix(text, "missing ") {
		return text // it names what is missing
	}
	if flag := valueOf.FindStringSubmatch(text); flag != nil {
		said := "the value of " + flag[1] + " is not valid"
		if strings.Contains(text, "duration") {
			said += "; write a duration such as 90s or 5m"
		}
		return said
	}
	for i, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if what := arg; strings.HasPrefix(text, "unexpected argument "+what) || strings.HasPrefix(text, "unknown flag "+name) {
			said := fmt.Sprintf("unexpected argument %d (not shown, since it may be secret)", i+1)
			if i == 0 {
				said += "; the commands are demo, check, explain and version"
			}
			return said
		}
	}
	return "invalid arguments"
}

// printable is a text without what a terminal would act on: others have written parts
// of it.
func printable(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
