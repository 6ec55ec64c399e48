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

// Command returns a Handler that runs a program for each task, in a process
// group of its own, and blocks until it has ended. The name is looked up as
// exec.Command does; no shell takes part. The handler is safe for concurrent
// use.
//
// The program reads the payload from its standard input, and need not read all
// of it. When it succeeds, its standard output becomes t.Result: the first
// 1 MiB of it, the rest is read and dropped. Its environment holds WORQR_QUEUE,
// WORQR_PROCESS (the ID), WORQR_TOKEN, WORQR_KEY, WORQR_RETRIES and WORQR_CRASHES
// from the task; one whose value contains a NUL byte is missing. Of the peer's
// own variables it gets those that say where programs and files are, who runs
// them, and in which language: PATH, HOME, USER, LOGNAME, SHELL, TMPDIR, TZ,
// LANG and LC_*, and what Windows needs in their place. So the peer's secrets,
// such as the password in REDIS_URL, don't reach the program. CommandWith passes
// on more.
//
// Exit status 0 finishes the task. Status 65 (EX_DATAERR) is a Broken error.
// Any other status, and death by a signal, is an error that matches
// *exec.ExitError, and so is a retry; a program that cannot be started is an
// error that matches what exec.Command and Start fail with, such as
// exec.ErrNotFound. The last 2 KiB of standard error are part of the error, and
// are logged with it: a program should not write payloads there.
//
// When ctx ends, the whole group is killed at once with SIGKILL, and the error
// matches context.Cause(ctx), unless the program had succeeded just before. If
// ctx has ended already, nothing is started. When the program ends by itself,
// what it has left in its group is killed too. So nothing of the group outlives
// the attempt, with these exceptions: what starts a session or a group of its
// own (setsid, set -m) escapes; so does what runs as another user. The handler
// does not wait for those that escaped, even if they hold the output open for
// more than a second. It does wait for a program that the kernel cannot kill
// or that runs as another user.
//
// When the peer's process dies, the program is killed on Linux, unless it is
// set-user-ID. Its children are not, unless they die with their parent. On
// other systems nothing is. Outside Unix only the program itself is ever
// killed.
func Command(name string, args ...string) Handler {
	return CommandWith(CommandOptions{}, name, args...)
}

// CommandOptions configure CommandWith. The zero value is valid.
type CommandOptions struct {
	// Env is what the program's environment holds besides: NAME passes the peer's
	// variable on, if it is set when the program starts, and NAME=value sets one.
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
		{"WORQR_PROCESS", t.AttemptID},
		{"WORQR_TOKEN", strconv.FormatInt(t.Token, 10)},
		{"WORQR_KEY", t.Key},
		{"WORQR_RETRIES", strconv.Itoa(t.Retries)},
		{"WORQR_CRASHES", strconv.Itoa(t.Crashes)},
	})
}
