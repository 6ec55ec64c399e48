package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// A usage error describes incorrect usage of the command. It repeats only the names of flags: other arguments may
// be a payload, or a URL with a password.
type usage string

func (u usage) Error() string { return string(u) }

var valueOf = regexp.MustCompile(`^(--[a-z-]+)(?:=[^:]*)?: `)

var choiceOf = regexp.MustCompile(`^(--[a-z-]+|<[a-z]+>) must be one of ((?:"[a-z]*",?)+) but got `)

// flagName matches the name of a flag, which isn't a secret. It doesn't match a password that a
// shell has put in its place.
var flagName = regexp.MustCompile(`^--[a-z]+(-[a-z]+){0,3}$`)

// misuse describes what is wrong with the arguments, without repeating them as the parser does.
func misuse(err error, args []string) string {
	if u, ok := errors.AsType[usage](err); ok {
		return string(u)
	}
	text := err.Error()
	if strings.HasPrefix(text, "expected ") || strings.HasPrefix(text, "missing ") {
		return text // it only names what is missing
	}
	if flag := valueOf.FindStringSubmatch(text); flag != nil {
		return "the value of " + flag[1] + " is not valid" + hint(text)
	}
	if flag := choiceOf.FindStringSubmatch(text); flag != nil {
		return "the value of " + flag[1] + " is not valid; it must be " + list(quoted.FindAllString(flag[2], -1))
	}
	for i, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if what := arg; strings.HasPrefix(text, "unexpected argument "+what) || strings.HasPrefix(text, "unknown flag "+name) {
			if flagName.MatchString(name) {
				return "unknown flag " + name
			}
			said := fmt.Sprintf("unexpected argument %d (not shown, since it may be secret)", i+1)
			if i == 0 {
				said += ", where a command was expected" + near(err, strings.TrimPrefix(text, "unexpected argument "+arg))
			}
			return said
		}
	}
	return "invalid arguments"
}

// hint describes the format of a value, from the parser's error.
func hint(text string) string {
	for _, h := range []struct{ sign, says string }{
		{`unknown unit "d"`, "days aren't a unit: write 48h"},
		{"duration", "write a duration such as 90s or 5m"},
		{"parsing time", "write a time such as 2026-01-31T09:00:00Z"},
		{notPattern, "it isn't a regular expression (RE2)"},
		{noText, "it's empty"},
		{"bit int", "write a whole number"},
		{"uint", "write a whole number of at least 0"},
	} {
		if strings.Contains(text, h.sign) {
			return "; " + h.says
		}
	}
	return ""
}

var quoted = regexp.MustCompile(`[a-z][a-z-]*`)

// mostNear limits the suggested commands.
const mostNear = 3

// near returns the commands that the parser suggests for a mistyped one. Their names aren't secret.
func near(err error, proposal string) string {
	e, ok := errors.AsType[*kong.ParseError](err)
	if !ok || e.Context == nil {
		return ""
	}
	var names []string
	for _, n := range e.Context.Model.Leaves(true) {
		if strings.Contains(proposal, fmt.Sprintf("%q", n.Name)) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 || len(names) > mostNear {
		return ""
	}
	return "; did you mean " + list(names) + "?"
}

// list joins words as in a sentence.
func list(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// meant returns the command whose help to suggest.
func meant(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil && e.Context.Selected() != nil {
		return "worqr " + e.Context.Selected().Name
	}
	return "worqr"
}
