// Withredis runs a command with a Redis in a container, whose URL it finds in
// WORQR_TEST_REDIS:
//
//	go run ./integration/cmd/withredis go test ./...
//
// It exits with the command's exit code, and removes the container.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/worqr/worqr/integration"
)

// life is how long the container lives if nobody can remove it.
const life = time.Hour

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withredis command [argument...]")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withredis:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(name string, args ...string) (code int, err error) {
	// The terminal sends an interrupt to the command, too. The command ends because of it, and then
	// this program does. SIGTERM must be passed on.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	redis, err := integration.Start(life)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, redis.Remove()) }()

	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "WORQR_TEST_REDIS="+redis.URL)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // it may have ended already
			}
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return max(exit.ExitCode(), 1), nil // -1: ended by a signal
			}
			return 0, err
		}
	}
}
