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
		return usage("--yes must repeat the name of the queue or worker")
	}
	return nil
}

// ask asks for the name, unless it was given.
func (c confirmation) ask(con *console, name, what string) error {
	return c.askFor(con, name, asked{"", shellQuoted(name), printable(name), shellQuoted(name)}, what)
}

// An asked says how a name is called: after --yes, in the question, and if the answer is another one.
// Before is what comes before what is to be done.
type asked struct{ before, flag, question, answer string }

// unknown is for a worker that isn't there: it may be a secret that went into the wrong place, so it
// isn't repeated.
var unknown = asked{"no such worker is registered; ", "and the same argument again", "the same argument again", "the argument"}

// askFor is ask with a name that isn't repeated, perhaps.
func (c confirmation) askFor(con *console, name string, called asked, what string) error {
	if c.Yes == name {
		return nil
	}
	if !isTerminal(con.in) {
		con.say("%sthis would %s", called.before, what)
		return fmt.Errorf("nothing was changed: to go on, add --yes %s", called.flag)
	}
	says := called.before + "this will " + printable(what)
	fmt.Fprintf(con.errs, "%s.\nType %s to go on: ", strings.ToUpper(says[:1])+says[1:], called.question) // whoever doesn't see it doesn't answer
	answer, err := bufio.NewReader(con.in).ReadString('\n')
	if strings.TrimSpace(answer) == name {
		return nil
	}
	if err != nil {
		fmt.Fprintln(con.errs)
	}
	return fmt.Errorf("nothing was changed: the answer wasn't %s", called.answer)
}
