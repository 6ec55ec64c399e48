package failpoints_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/store"
)

// teach loads every script, so that no call is refused for lack of one.
func teach(c redis.Conn) error {
	for _, v := range store.Verbs() {
		if _, err := c.Do("SCRIPT", "LOAD", v.Source()); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	return nil
}

// A command is a command as it is sent: its name and its arguments.
type command []string

func newCommand(name string, args []any) command {
	c := command{name}
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			c = append(c, string(b))
		} else {
			c = append(c, fmt.Sprint(a))
		}
	}
	return c
}

// args returns the arguments for redigo.
func (c command) args() []any {
	all := make([]any, len(c)-1)
	for i, a := range c[1:] {
		all[i] = []byte(a)
	}
	return all
}

// calls reports whether the command is a call of that name: the name of a script; of step with what
// the round carries, such as step:finish; or of a
// plain command.
func (c command) calls(name string) bool {
	if c[0] != "EVALSHA" {
		return strings.EqualFold(c[0], name)
	}
	call, ok := store.Parse(c)
	if !ok {
		panic("an unknown script was called: " + c[1])
	}
	script, part, _ := strings.Cut(name, ":")
	switch {
	case call.Verb.Name != script:
		return false
	case script == "step" && part != "":
		return carries(store.RoundOf(call), part)
	}
	return true
}

// carries reports whether a round carries something of a kind.
func carries(round store.RoundView, kind string) bool {
	switch kind {
	case "ack":
		return round.Said > 0
	case "start":
		return len(round.Start) > 0
	}
	return slices.ContainsFunc(round.Outcomes, func(o store.Outcome) bool { return string(o.Verb) == kind })
}
