//go:build unix

package api

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
)

// shell runs the script as a Command, with args as $1 and so on.
func shell(ctx context.Context, t *worqr.Task, script string, args ...string) error {
	return worqr.Command("sh", append([]string{"-c", script, "sh"}, args...)...)(ctx, t)
}

func TestCommandEnvironment(t *testing.T) { // not parallel: it changes the process's environment
	is := is.New(t)
	t.Setenv("WORQR_KEY", "of another task")
	t.Setenv("WORQR_TEST_OWN", "the peer's")
	t.Setenv("REDIS_URL", "redis://:secret@host")
	t.Setenv("LC_ALL", "C")
	const script = `printf '%s|' "$WORQR_QUEUE" "$WORQR_ATTEMPT" "$WORQR_TOKEN" "${WORQR_KEY-none}" "$WORQR_RETRIES" "$WORQR_CRASHES" "${WORQR_TEST_OWN-none}" "${REDIS_URL-none}" "$LC_ALL" "${PATH:+path}"`
	task := &worqr.Task{Queue: "q", AttemptID: "id", Token: 1 << 60, Key: "a key = \"'ü\n", Retries: 2, Crashes: 3}
	is.NoErr(shell(t.Context(), task, script))
	is.Equal(string(task.Result), "q|id|1152921504606846976|a key = \"'ü\n|2|3|none|none|C|path|")
	task.Key = ""
	is.NoErr(shell(t.Context(), task, script))
	is.Equal(string(task.Result), "q|id|1152921504606846976||2|3|none|none|C|path|")
	task.Key = "a\x00b"
	is.NoErr(shell(t.Context(), task, script))
	is.Equal(string(task.Result), "q|id|1152921504606846976|none|2|3|none|none|C|path|")

	// Only the variables in Env are passed on, and none of another task.
	given := worqr.CommandWith(worqr.CommandOptions{Env: []string{"WORQR_TEST_OWN", "REDIS_URL=mine", "WORQR_TEST_ABSENT", "WORQR_KEY", "LC_ALL=de"}}, "sh", "-c", script+`; printf %s "${WORQR_TEST_ABSENT-none}"`)
	task.Key = "key"
	is.NoErr(given(t.Context(), task))
	is.Equal(string(task.Result), "q|id|1152921504606846976|key|2|3|the peer's|mine|de|path|none")
}

func TestCommandExitStatus(t *testing.T) {
	is := parallel(t)
	before := []byte("before")
	task := &worqr.Task{Result: before}

	err := shell(t.Context(), task, "echo out; echo worse >&2; exit 3")
	exit, ok := errors.AsType[*exec.ExitError](err)
	is.True(ok)
	is.Equal(exit.ExitCode(), 3)
	is.Equal(err.Error(), `worqr: run "sh": exit status 3: worse`)
	is.True(!broken(err))
	is.Equal(task.Result, before) // a failed program sets no result

	err = shell(t.Context(), task, "echo no use >&2; exit 65")
	is.True(broken(err))
	tells(t, err, "exit status 65: no use")

	err = shell(t.Context(), task, "kill -9 $$")
	is.True(!broken(err))
	tells(t, err, "signal: killed")

	is.NoErr(shell(t.Context(), task, "echo a warning >&2"))
	is.Equal(len(task.Result), 0)
}

// In a queue, the program's result is stored, and a failed attempt is retried.
func TestCommandServesQueue(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	q.Handle(worqr.Command("sh", "-c", `mkdir "$1/once" 2>/dev/null && exit 1; tr a-z A-Z`, "sh", t.TempDir()), nil)
	key := sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("hello"), KeepResult: time.Hour}))(t)[0]
	stop := run(t, p)
	is.Equal(string(sure(q.Wait(t.Context(), key))(t).Value), "HELLO")
	stop()
	is.Equal(p.Stats().HandlerErrors, int64(1))
}
