// Command worqr operates worqr queues from a shell: it shows the state of a fleet, finds problems, and fixes
// them. It uses the Redis at REDIS_URL, while the fleet runs. See "worqr --help" and docs/cli.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

type versionCommand struct{ form }

// Run prints the version of the library; the command is released with it.
func (c versionCommand) Run(out io.Writer) error {
	return c.tell(out, map[string]string{"version": worqr.Version, "go": runtime.Version()}, "worqr v%s", worqr.Version)
}

// errTold ends a command whose output has described the problem.
var errTold = errors.New("something is wrong")

// toldIf returns errTold if something is wrong, unless printing that has failed.
func toldIf(wrong bool, err error) error {
	if err == nil && wrong {
		return errTold
	}
	return err
}

// A nothing error reports that there is nothing to act on, and how to find what exists.
type nothing string

func (n nothing) Error() string { return string(n) }

// advice returns what to do about an error that doesn't have advice itself.
func advice(err error) string {
	if errors.Is(err, worqr.ErrLogin) {
		return "\nRedis refuses the login: check the user and the password of REDIS_URL or --redis"
	}
	if away := worqr.Judge(inspect.Sight{Err: err})[0]; away.Detail != "" {
		return "\n" + away.Detail
	}
	return grant(err)
}

// grant returns advice to grant the rule of a worker, if Redis denies a permission and the error
// doesn't name a rule yet: a check needs another one.
func grant(err error) string {
	if errors.Is(err, worqr.ErrDenied) && !strings.Contains(err.Error(), "docs/security.md") {
		return "; grant it the rule \"Worker\" in docs/security.md"
	}
	return ""
}

// inOneLine returns the text of an error. Joined errors are on one line, and what several of them
// say is there once.
func inOneLine(err error) string {
	var all []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.ContainsFunc(all, func(before string) bool { return strings.HasSuffix(before, line) }) {
			all = append(all, line)
		}
	}
	for i := range all[:len(all)-1] {
		all[i] = strings.TrimSuffix(all[i], ".")
	}
	return strings.Join(all, "; ")
}

// The exit statuses.
const (
	exitWell   = 0
	exitUnwell = 1 // see the output
	exitFailed = 2 // it was used incorrectly, or failed
)

// graceOfSignals is how long a second signal is ignored: supervisors such as timeout send one to the program and one to
// its process group.
const graceOfSignals = time.Second

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is all of main, so that tests and their binary can be the command too.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(graceOfSignals, stop) }) // then a second Ctrl-C ends it immediately
	return runUntil(ctx, args, in, out, errs)
}

// runUntil is run, interrupted by the end of ctx instead of a signal.
func runUntil(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	command, err := newParser(kong.Writers(out, errs)).Parse(args)
	if err != nil {
		said, see := misuse(err, args), "; see"
		if strings.HasSuffix(said, "?") {
			see = " See"
		}
		fmt.Fprintf(errs, "worqr: %s%s %s --help\n", said, see, meant(err))
		return exitFailed
	}

	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(&console{in, out, errs})
	command.BindTo(out, (*io.Writer)(nil))
	err = perform(command)
	_, none := errors.AsType[nothing](err)
	switch {
	case err == nil:
		return exitWell
	case errors.Is(err, errTold):
		return exitUnwell
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(errs, "worqr: "+printable(interrupted(err)))
		return exitFailed
	}
	fmt.Fprintln(errs, "worqr:", printable(strings.TrimPrefix(inOneLine(err), "worqr: "))+advice(err))
	if none {
		return exitUnwell
	}
	return exitFailed
}
