// Command worqr shows what the work queue worqr does. With nothing but Go:
//
//	go run github.com/worqr/worqr/cmd/worqr@latest demo
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
	Demo    demoCommand    `cmd:"" help:"Watch three peers at work. One is killed, tasks fail, one is canceled, nothing is lost."`
	Peer    peerCommand    `cmd:"" hidden:"" help:"Be one of the demo's peers."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

type versionCommand struct{}

// Run prints the version of the library; the command is released with it.
func (versionCommand) Run(out io.Writer) error {
	_, err := fmt.Fprintln(out, "worqr", worqr.Version)
	return err
}

func main() { os.Exit(run(os.Args[1:])) }

// run is all of main, so that the test binary can be the command too.
func run(args []string) int {
	parser := kong.Must(&cli{},
		kong.Name("worqr"),
		kong.Description("A peer-to-peer work queue on Redis."))
	command, err := parser.Parse(args)
	parser.FatalIfErrorf(err)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C does not wait

	command.BindTo(ctx, (*context.Context)(nil))
	command.BindTo(os.Stdout, (*io.Writer)(nil))
	err = command.Run()
	if err == nil {
		return 0
	}
	if !errors.Is(err, errLost) { // of which the summary has told
		fmt.Fprintln(os.Stderr, "worqr:", strings.TrimPrefix(err.Error(), "worqr: "))
	}
	return 1
}
