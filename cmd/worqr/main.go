// Command worqr demonstrates the work queue worqr and finds out what's wrong with a
// fleet. The demo needs nothing but Go. In a clone of the repository:
//
//	go run ./cmd/worqr demo
//
// The other commands examine the Redis of REDIS_URL, while the fleet works:
//
//	worqr check            # what is wrong, or may go wrong; --repair --lease 3s repairs it
//	worqr explain emails   # where the task on standard input is, and why it doesn't run
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr"
)

type cli struct {
	Demo    demoCommand    `cmd:"" help:"Watch three peers at work: one is killed, tasks fail, one is canceled, and nothing is lost."`
	Check   checkCommand   `cmd:"" help:"Check a fleet's keys in Redis for damage, stuck tasks and risky settings. It's safe while the fleet is running."`
	Explain explainCommand `cmd:"" help:"Show where a task is and why it isn't running."`
	Peer    peerCommand    `cmd:"" hidden:"" help:"Be one of the demo's peers."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

type versionCommand struct{}

// Run prints the version of the library; the command is released with it.
func (versionCommand) Run(out io.Writer) error {
	_, err := fmt.Fprintln(out, "worqr", worqr.Version)
	return err
}

// errTold ends a command whose output has told what is wrong.
var errTold = errors.New("something is wrong")

// What the command exits with.
const (
	exitWell   = 0
	exitUnwell = 1 // as the output tells
	exitFailed = 2 // it was used wrongly, or could not do its work
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is all of main, so that tests and their binary can be the command too.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	parser := kong.Must(&cli{},
		kong.Name("worqr"),
		kong.Description("A peer-to-peer work queue on Redis."),
		kong.Writers(out, errs))
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(errs, "worqr: %s; see worqr --help\n", misuse(err, args))
		return exitFailed
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C does not wait

	command.BindTo(ctx, (*context.Context)(nil))
	command.BindTo(in, (*io.Reader)(nil))
	command.BindTo(out, (*io.Writer)(nil))
	switch err := command.Run(); {
	case err == nil:
		return exitWell
	case errors.Is(err, errTold):
		return exitUnwell
	default:
		fmt.Fprintln(errs, "worqr:", printable(strings.TrimPrefix(err.Error(), "worqr: ")))
		return exitFailed
	}
}
