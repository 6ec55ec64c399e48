package worqr

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"

	"github.com/worqr/worqr/internal/program"
)

const exitBroken = 65 // EX_DATAERR of sysexits.h

// Command returns a Handler that runs a program for each task, without a shell. The program
// reads the payload from standard input; its standard output, up to 1 MiB, becomes t.Result.
// Status 0 finishes the task, 65 is Malformed, any other is an error that matches
// *exec.ExitError. When ctx ends, its whole process group is killed.
//
// The environment has PATH, HOME and the like, and WORQR_QUEUE, WORQR_ATTEMPT, WORQR_TOKEN,
// WORQR_KEY, WORQR_RETRIES and WORQR_CRASHES. It has none of the peer's other variables,
// which may hold secrets. docs/options.md has the details.
func Command(name string, args ...string) Handler {
	return CommandWith(CommandOptions{}, name, args...)
}

// CommandOptions configure CommandWith.
type CommandOptions struct {
	// Env adds to the program's environment: NAME passes on the peer's variable, if it's set
	// when the program starts; NAME=value sets one.
	Env []string
}

// CommandWith is Command with options.
func CommandWith(o CommandOptions, name string, args ...string) Handler {
	args, more := slices.Clone(args), slices.Clone(o.Env)
	return func(ctx context.Context, t *Task) error {
		output, err := program.Run(ctx, program.Program{Name: name, Args: args, Input: t.Payload, Env: environment(t, more)})
		if err == nil {
			t.Result = output
			return nil
		}
		exit, exited := errors.AsType[*exec.ExitError](err)
		err = wrap(fmt.Sprintf("run %q", name), err)
		if exited && exit.ExitCode() == exitBroken {
			return Malformed(err)
		}
		return err
	}
}

// environment is that of a program which handles the task. Whatever it is given besides,
// nothing in it is of another task.
func environment(t *Task, more []string) []string {
	return program.Environment(more, [][2]string{
		{"WORQR_QUEUE", t.Queue},
		{"WORQR_ATTEMPT", t.AttemptID},
		{"WORQR_TOKEN", strconv.FormatInt(t.Token, 10)},
		{"WORQR_KEY", t.Key},
		{"WORQR_RETRIES", strconv.Itoa(t.Retries)},
		{"WORQR_CRASHES", strconv.Itoa(t.Crashes)},
	})
}
