package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// A usage error says how the command was used wrongly. It repeats nothing that was
// given but the names of flags: the rest may be a payload, or a URL with a password.
type usage string

func (u usage) Error() string { return string(u) }

var valueOf = regexp.MustCompile(`^(--[a-z-]+)(?:=[^:]*)?: `)

var choiceOf = regexp.MustCompile(`^(--[a-z-]+) must be one of `)

// flagName is what looks like the name of a flag, which is no secret, rather than a password that a
// shell has put where a flag belongs.
var flagName = regexp.MustCompile(`^--[a-z]+(-[a-z]+){0,3}$`)

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
	if flag := choiceOf.FindStringSubmatch(text); flag != nil {
		return "the value of " + flag[1] + " is not valid"
	}
	for i, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if what := arg; strings.HasPrefix(text, "unexpected argument "+what) || strings.HasPrefix(text, "unknown flag "+name) {
			if flagName.MatchString(name) {
				return "unknown flag " + name
			}
			said := fmt.Sprintf("unexpected argument %d (not shown, since it may be secret)", i+1)
			if i == 0 {
				said += ", where a command was expected"
			}
			return said
		}
	}
	return "invalid arguments"
}

// meant is the command whose help says how to use it.
func meant(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil && e.Context.Selected() != nil {
		return "worqr " + e.Context.Selected().Name
	}
	return "worqr"
}
