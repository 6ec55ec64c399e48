package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// A confirmation is required for actions that can't be undone.
type confirmation struct {
	Yes string `placeholder:"NAME" help:"Don't ask. Repeat the name, so that a script can't act on the wrong one."`
}

// given fails early if --yes has another name.
func (c confirmation) given(name string) error {
	if c.Yes != "" && c.Yes != name {
		return usage("--yes must repeat the name of the queue or worker")
	}
	return nil
}

// ask asks for the name, unless --yes has it.
func (c confirmation) ask(ctx context.Context, con *console, name, what string) error {
	return c.askFor(ctx, con, name, asked{"", "--yes=" + shellQuoted(name), printable(name), shellQuoted(name)}, what)
}

// An asked has the words for a name: the flag, in the question, and in the error after a wrong answer.
// Before precedes the description of the action.
type asked struct{ before, flag, question, answer string }

// unknown is for a worker that isn't registered: the argument may be a secret by mistake, so it isn't repeated.
var unknown = asked{"no such worker is registered; ", "--yes and the same argument again", "the same argument again", "the argument"}

// askFor is ask with other words, which may leave out the name.
func (c confirmation) askFor(ctx context.Context, con *console, name string, called asked, what string) error {
	if c.Yes == name {
		return nil
	}
	if !isTerminal(con.in) {
		con.say("%sthis would %s", called.before, what)
		return fmt.Errorf("nothing was changed: to continue, add %s", called.flag)
	}
	says := called.before + "this will " + printable(what)
	fmt.Fprintf(con.errs, "%s.\nType %s to continue: ", strings.ToUpper(says[:1])+says[1:], called.question) // otherwise no one answers
	answer, err := interruptible(ctx, func() (string, error) { return bufio.NewReader(con.in).ReadString('\n') })
	if strings.TrimSpace(answer) == name {
		return nil
	}
	if err != nil {
		fmt.Fprintln(con.errs)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("nothing was changed: the answer wasn't %s", called.answer)
}
