package worqr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxOutput = 1 << 20 // bytes of a program's output that are kept, from its beginning
	maxErrors = 2 << 10 // bytes of a program's error output that are kept, from its end

	exitBroken = 65 // EX_DATAERR of sysexits.h

	// linger is how long output is read on after a program has ended, if
	// somebody holds it open; lingerEnded is the same once the context has
	// ended.
	linger      = time.Second
	lingerEnded = 100 * time.Millisecond
)

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

// CommandOptions are what CommandWith can be told.
type CommandOptions struct {
	// Env is what the program's environment holds besides: NAME passes the peer's
	// variable on, if it is set when the program starts, and NAME=value sets one.
	Env []string
}

// CommandWith is Command with options.
func CommandWith(o CommandOptions, name string, args ...string) Handler {
	args, more := slices.Clone(args), slices.Clone(o.Env)
	return func(ctx context.Context, t *Task) error {
		if ctx.Err() != nil {
			return wrap(fmt.Sprintf("run %q", name), context.Cause(ctx))
		}
		var output head
		var errs tail
		cmd := exec.Command(name, args...)
		cmd.Env = environment(t, more)
		cmd.Stdin = bytes.NewReader(t.Payload)
		cmd.Stdout = &output
		cmd.Stderr = &errs
		err := execute(ctx, cmd)
		if err == nil {
			t.Result = output.kept
			return nil
		}
		ended := ctx.Err() != nil
		exit, exited := errors.AsType[*exec.ExitError](err)
		broken := exited && exit.ExitCode() == exitBroken && !ended
		if ended {
			err = context.Cause(ctx)
		}
		if said := errs.String(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		err = wrap(fmt.Sprintf("run %q", name), err)
		if broken {
			return Broken(err)
		}
		return err
	}
}

// execute runs the command until it or ctx ends. Of its group nothing is left.
func execute(ctx context.Context, cmd *exec.Cmd) error {
	// Linux kills the program when the thread that has forked it dies, though
	// the process lives on (golang.org/issue/27505). A thread dies when a
	// goroutine that is locked to it ends. While this one is, no other can be.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	g := &group{leader: cmd.Process}
	defer context.AfterFunc(ctx, g.kill)()
	if awaitExit(cmd.Process) {
		g.end() // before Wait gives the id away
	}
	cmd.WaitDelay = linger
	if ctx.Err() != nil {
		cmd.WaitDelay = lingerEnded
	}
	err := cmd.Wait()
	g.end()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it succeeded; one that escaped holds its output
	}
	return err
}

// A group is a process group, named by the id of its leader. The id is
// reserved until the leader has been waited for; signals sent later might hit
// strangers.
type group struct {
	leader *os.Process

	mu   sync.Mutex // protects the field below
	over bool       // send no signal any more
}

// kill kills all of the group.
func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		killGroup(g.leader)
	}
}

// end kills what is left of the group, once, and has kill do nothing.
func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		killGroup(g.leader)
	}
	g.over = true
}

// passed are the variables that every program gets, by name. Windows does without
// some of them, and cannot do without others.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE",
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
}

// passes reports whether a variable is passed on to every program.
func passes(name string) bool {
	if runtime.GOOS == "windows" {
		name = strings.ToUpper(name) // names have no case there
	}
	return slices.Contains(passed, name) || strings.HasPrefix(name, "LC_")
}

// environment is what a program may know of the peer's, what it is to have besides,
// and what there is to know of the task.
func environment(t *Task, more []string) []string {
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); passes(name) {
			env = append(env, e)
		}
	}
	for _, e := range more {
		if strings.Contains(e, "=") {
			env = append(env, e) // of two, the last holds
		} else if value, ok := os.LookupEnv(e); ok {
			env = append(env, e+"="+value)
		}
	}
	for _, v := range []struct{ name, value string }{
		{"WORQR_QUEUE", t.Queue},
		{"WORQR_PROCESS", t.ID},
		{"WORQR_TOKEN", strconv.FormatInt(t.Token, 10)},
		{"WORQR_KEY", t.Key},
		{"WORQR_RETRIES", strconv.Itoa(t.Retries)},
		{"WORQR_CRASHES", strconv.Itoa(t.Crashes)},
	} {
		// Whatever a peer was told to pass on, this is not of another task.
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, v.name+"=") })
		if !strings.Contains(v.value, "\x00") {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// A head keeps the beginning of what is written to it.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxOutput-len(h.kept))]...)
	return len(p), nil
}

// A tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxErrors):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxErrors):]
	return len(p), nil
}

// String is what can be shown: cut anywhere, the end may begin within a
// character.
func (t *tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "\uFFFD"))
}
