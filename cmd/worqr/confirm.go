package main

import (
	"bufio"
	"fmt"
	"strings"
)

// A confirmation is needed by what can't be undone.
type confirmation struct {
	Yes string `placeholder:"NAME" help:"Don't ask. Repeat the name, so that a script can't act on the wrong one."`
}

// given fails early if the name in --yes is another one.
func (c confirmation) given(name string) error {
	if c.Yes != "" && c.Yes != name {
		return usage("--yes doesn't repeat the name that the command acts on")
	}
	return nil
}

// ask asks for the name, unless it was given.
func (c confirmation) ask(con *console, name, what string) error {
	return c.askFor(con, name, asked{shellQuoted(name), printable(name), shellQuoted(name)}, what)
}

// An asked says how a name is called: after --yes, in the question, and if the answer is another one.
type asked struct{ flag, question, answer string }

// unknown is for a name that nothing has: it may be a secret that went into the wrong place, so it
// isn't repeated.
var unknown = asked{"and the same argument again", "the same argument again", "the argument"}

// askFor is ask with a name that isn't repeated, perhaps.
func (c confirmation) askFor(con *console, name string, called asked, what string) error {
	if c.Yes == name {
		return nil
	}
	if !isTerminal(con.in) {
		con.say("this would %s", what)
		return fmt.Errorf("nothing was changed: to go on, add --yes %s", called.flag)
	}
	fmt.Fprintf(con.errs, "This will %s.\nType %s to go on: ", printable(what), called.question) // whoever doesn't see it doesn't answer
	answer, err := bufio.NewReader(con.in).ReadString('\n')
	if strings.TrimSpace(answer) == name {
		return nil
	}
	if err != nil {
		fmt.Fprintln(con.errs)
	}
	return fmt.Errorf("nothing was changed: the answer wasn't %s", called.answer)
}
