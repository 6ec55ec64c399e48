package failpoints_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/calls"
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

// calls reports whether the command is a call of that name: of a script; of finish with an end, such as finish:done;
// of start, if it wants tasks; or of a plain command.
func (c command) calls(name string) bool {
	if c[0] != "EVALSHA" && c[0] != "EVAL" { // the first call on a connection sends the script
		return strings.EqualFold(c[0], name)
	}
	call, ok := calls.Parse(c)
	if !ok {
		panic("an unknown script was called: " + c[1])
	}
	script, end, _ := strings.Cut(name, ":")
	switch {
	case call.Verb != script:
		return false
	case script == "start":
		return call.Int("wanted") > 0
	case script == "finish":
		return slices.ContainsFunc(call.Ends(), func(e calls.End) bool { return string(e.Verb) == end })
	}
	return true
}
