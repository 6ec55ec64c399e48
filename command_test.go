//go:build unix

package worqr_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
)

// The test binary runs itself again with a shell script in this variable, as a
// peer whose only handler runs the script.
const scriptEnv = "WORQR_TEST_SCRIPT"

func init() {
	if script := os.Getenv(scriptEnv); script != "" {
		fmt.Println(worqr.Command("sh", "-c", script)(context.Background(), &worqr.Task{}))
		os.Exit(0)
	}
}

// shell runs the script as a Command, with args as $1 and so on.
func shell(ctx context.Context, t *worqr.Task, script string, args ...string) error {
	return worqr.Command("sh", append([]string{"-c", script, "sh"}, args...)...)(ctx, t)
}

// pids reads the process ids that a script has written into the file.
func pids(t testing.TB, file string) []int {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(t, err)
	var all []int
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if err != nil || !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		all = append(all, pid)
	}
	return all
}

// gone tells whether the process has ended, waited for or not.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z ")) ||
		runtime.GOOS == "linux" && err != nil // since the first look
}

// allGone waits until the n processes in the file have ended.
func allGone(t testing.TB, file string, n int) {
	t.Helper()
	all := pids(t, file)
	if len(all) != n {
		t.Fatalf("%d processes, want %d", len(all), n)
	}
	for _, pid := range all {
		eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool { return gone(pid) })
	}
}

func TestCommandPayloadAndResult(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := make([]byte, 5<<20)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	for name, payload := range map[string][]byte{
		"nothing": nil,
		"binary":  every,
		"bound":   large[:1<<20],
		"above":   large[:1<<20+1],
		"large":   large,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			task := &worqr.Task{Payload: bytes.Clone(payload)}
			is.NoErr(worqr.Command("cat")(t.Context(), task))
			is.True(bytes.Equal(task.Result, payload[:min(len(payload), 1<<20)]))
			is.True(bytes.Equal(task.Payload, payload))
			is.Equal(task.Result == nil, len(payload) == 0)
		})
	}
}

func TestCommandConcurrent(t *testing.T) {
	t.Parallel()
	handle := worqr.Command("cat")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			task := &worqr.Task{Payload: []byte(fmt.Sprint(i))}
			if err := handle(t.Context(), task); err != nil || string(task.Result) != fmt.Sprint(i) {
				t.Errorf("%d: %v, %q", i, err, task.Result)
			}
		})
	}
	all.Wait()
}

func TestCommandEnvironment(t *testing.T) { // not parallel: it changes the peer's
	is := is.New(t)
	t.Setenv("WORQR_KEY", "of another task")
	t.Setenv("WORQR_TEST_OWN", "the peer's")
	t.Setenv("REDIS_URL", "redis://:secret@host")
	t.Setenv("LC_ALL", "C")
	const script = `printf '%s|' "$WORQR_QUEUE" "$WORQR_PROCESS" "$WORQR_TOKEN" "${WORQR_KEY-none}" "$WORQR_RETRIES" "$WORQR_CRASHES" "${WORQR_TEST_OWN-none}" "${REDIS_URL-none}" "$LC_ALL" "${PATH:+path}"`
	task := &worqr.Task{Queue: "q", ID: "id", Token: 1 << 60, Key: "a key = \"'ü\n", Retries: 2, Crashes: 3}
	is.NoErr(shell(t.Context(), task, script))
	is.Equal(string(task.Result), "q|id|1152921504606846976|a key = \"'ü\n|2|3|none|none|C|path|")
	task.Key = ""
	is.NoErr(shell(t.Context(), task, script))
	is.Equal(string(task.Result), "q|id|1152921504606846976||2|3|none|none|C|path|")
	task.Key = "a\x00b"
	is.NoErr(shell(t.Context(), task, script))
	is.Equal(string(task.Result), "q|id|1152921504606846976|none|2|3|none|none|C|path|")

	// What is to be passed on is, and nothing of another task.
	given := worqr.CommandWith(worqr.CommandOptions{Env: []string{"WORQR_TEST_OWN", "REDIS_URL=mine", "WORQR_TEST_ABSENT", "WORQR_KEY", "LC_ALL=de"}}, "sh", "-c", script+`; printf %s "${WORQR_TEST_ABSENT-none}"`)
	task.Key = "key"
	is.NoErr(given(t.Context(), task))
	is.Equal(string(task.Result), "q|id|1152921504606846976|key|2|3|the peer's|mine|de|path|none")
}

func TestCommandExitStatus(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	before := []byte("before")
	task := &worqr.Task{Result: before}

	err := shell(t.Context(), task, "echo out; echo worse >&2; exit 3")
	exit, ok := errors.AsType[*exec.ExitError](err)
	is.True(ok)
	is.Equal(exit.ExitCode(), 3)
	is.Equal(err.Error(), `worqr: run "sh": exit status 3: worse`)
	is.True(!broken(err))
	is.Equal(task.Result, before) // it has none

	err = shell(t.Context(), task, "echo no use >&2; exit 65")
	is.True(broken(err))
	tells(t, err, "exit status 65: no use")

	err = shell(t.Context(), task, "kill -9 $$")
	is.True(!broken(err))
	tells(t, err, "signal: killed")

	is.NoErr(shell(t.Context(), task, "echo a warning >&2"))
	is.Equal(len(task.Result), 0)
}

func TestCommandCannotStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	err := worqr.Command("worqr-no-such-program")(t.Context(), &worqr.Task{})
	is.True(is_(err, exec.ErrNotFound))
	is.True(!broken(err))
	file := filepath.Join(t.TempDir(), "text")
	err = worqr.Command(file)(t.Context(), &worqr.Task{})
	is.True(is_(err, os.ErrNotExist))
	is.NoErr(os.WriteFile(file, []byte("text"), 0o600))
	err = worqr.Command(file)(t.Context(), &worqr.Task{})
	is.True(is_(err, os.ErrPermission))
	is.True(!broken(err))
}

func TestCommandErrorOutput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	err := shell(t.Context(), &worqr.Task{}, `i=0; while [ $i -lt 5000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
	tells(t, err, "\nline 4998\nline 4999")
	is.True(!strings.Contains(err.Error(), "line 4500\n"))
	is.True(len(err.Error()) <= 2048+100)
	err = shell(t.Context(), &worqr.Task{}, `printf '\377\200 end' >&2; exit 1`) // no UTF-8
	tells(t, err, "exit status 1: \uFFFD end")
}

// A program need not read its input.
func TestCommandIgnoresInput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	task := &worqr.Task{Payload: make([]byte, 5<<20)}
	is.NoErr(shell(t.Context(), task, "exec <&-; echo out"))
	is.Equal(string(task.Result), "out\n")
	is.True(broken(shell(t.Context(), task, "exit 65")))
}

// When the context ends, nothing is left of the group, and the handler returns
// at once.
func TestCommandContextEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, worqr.ErrTimeout)
	defer cancel()
	start := time.Now()
	task := &worqr.Task{Payload: make([]byte, 1<<20)} // which nobody reads
	err := shell(ctx, task, `
		trap '' TERM INT HUP
		sleep 60 & echo $! >>"$1"
		sleep 60 & echo $! >>"$1"
		(trap '' TERM; sleep 60; true) & echo $! >>"$1"
		echo working >&2
		echo $$ >>"$1"
		wait`, file)
	took := time.Since(start)
	t.Logf("returned after %v", took)
	is.True(is_(err, worqr.ErrTimeout))
	is.True(!broken(err))
	is.True(took >= time.Second)
	is.True(took < 10*time.Second) // of 60
	tells(t, err, "the attempt took too long: working")
	is.Equal(task.Result, nil)
	allGone(t, file, 4)
}

func TestCommandCanceled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancelCause(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- shell(ctx, &worqr.Task{}, `echo $$ >>"$1"; exec sleep 60`, file) }()
	eventually(t, "it runs", func() bool { return len(pids(t, file)) == 1 })
	cancel(worqr.ErrCanceled)
	is.True(is_(receive(t, ran, 1)[0], worqr.ErrCanceled))
	allGone(t, file, 1)

	err := shell(ctx, &worqr.Task{}, `echo $$ >>"$1"`, file) // it has ended already
	is.True(is_(err, worqr.ErrCanceled))
	is.Equal(len(pids(t, file)), 1) // nothing was started
	err = worqr.Command("worqr-no-such-program")(ctx, &worqr.Task{})
	is.True(is_(err, worqr.ErrCanceled))
}

// Contexts that end while programs start and end: each either succeeds, or
// fails with the cause.
func TestCommandContextRaces(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeoutCause(t.Context(), rand.N(6*time.Millisecond), worqr.ErrTimeout)
				task := &worqr.Task{Payload: []byte("in")}
				err := worqr.Command("cat")(ctx, task)
				cancel()
				if err == nil && string(task.Result) != "in" || err != nil && !is_(err, worqr.ErrTimeout) {
					t.Errorf("%v, %q", err, task.Result)
				}
			}
		})
	}
	all.Wait()
}

// What a program leaves in its group ends with it, however it ended.
func TestCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"0", "1", "65"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			file := filepath.Join(t.TempDir(), "pids")
			task := &worqr.Task{}
			start := time.Now()
			err := shell(t.Context(), task, `
				sleep 60 & echo $! >>"$1"
				sleep 60 >/dev/null 2>&1 </dev/null & echo $! >>"$1"
				echo out
				exit `+status, file)
			is.True(time.Since(start) < 30*time.Second) // of 60
			is.Equal(err == nil, status == "0")
			is.Equal(broken(err), status == "65")
			if err == nil {
				is.Equal(string(task.Result), "out\n")
			}
			allGone(t, file, 2)
		})
	}
}

// What has a session of its own escapes, and is not waited for, whatever it
// holds open.
func TestCommandEscape(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("there is no setsid here")
	}
	const escape = `
		setsid sh -c 'echo $$ >>"$1"; exec sleep 60' sh "$1" &
		until [ -s "$1" ]; do sleep 0.01; done
		echo out; `
	for name, c := range map[string]struct {
		end   string
		cause error
	}{
		"end":     {"exit 0", nil},
		"timeout": {"sleep 60", worqr.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			file := filepath.Join(t.TempDir(), "pids")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				for c.cause != nil && ctx.Err() == nil {
					if len(pids(t, file)) == 1 {
						cancel(c.cause)
					}
					time.Sleep(5 * time.Millisecond) // between two looks
				}
			}()
			task := &worqr.Task{Payload: make([]byte, 5<<20)} // which nobody reads
			start := time.Now()
			err := shell(ctx, task, escape+c.end, file)
			took := time.Since(start)
			t.Logf("returned after %v", took)
			escaped := pids(t, file)
			is.Equal(len(escaped), 1)
			alive := !gone(escaped[0])
			_ = syscall.Kill(escaped[0], syscall.SIGKILL)
			is.True(alive)
			is.True(took < 30*time.Second) // of 60
			is.True(is_(err, c.cause))
			if c.cause == nil {
				is.Equal(string(task.Result), "out\n")
			}
		})
	}
}

// A program does not outlive a peer that is killed.
func TestCommandPeerKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a program with its parent")
	}
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "pids")
	binary, err := os.Executable()
	is.NoErr(err)
	peer := exec.Command(binary)
	peer.Env = append(os.Environ(), scriptEnv+"=echo $$ >>'"+file+"'; exec sleep 60")
	is.NoErr(peer.Start())
	eventually(t, "the program runs", func() bool { return len(pids(t, file)) == 1 })
	is.True(!gone(pids(t, file)[0]))
	is.NoErr(peer.Process.Kill())
	_ = peer.Wait() // killed
	allGone(t, file, 1)
}

// Through a queue: the result is published, and an attempt that fails is
// followed by another.
func TestCommandServesQueue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	dir := t.TempDir()
	q.Handle(worqr.Command("sh", "-c", `mkdir "$1/once" 2>/dev/null && exit 1; tr a-z A-Z`, "sh", dir), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	synced, done := make(chan bool, 1), make(chan string, 1)
	go func() {
		for e := range p.Events(ctx, "q") {
			switch e.Kind {
			case worqr.EventSync:
				synced <- true
			case worqr.EventDone:
				done <- string(e.Result)
			}
		}
	}()
	receive(t, synced, 1)
	enqueue(t, q, "hello")
	stop := run(t, p)
	is.Equal(receive(t, done, 1), []string{"HELLO"})
	stop()
	is.Equal(p.Stats().Failures, int64(1))
}

// A program that takes too long is killed with its children, and its task is
// tried again.
func TestCommandTimesOutInQueue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	file := filepath.Join(t.TempDir(), "pids")
	q.Handle(worqr.Command("sh", "-c", `sleep 60 & echo $! >>"$1"; echo $$ >>"$1"; exec sleep 60`, "sh", file),
		&worqr.HandleOptions{Timeout: time.Second})
	enqueue(t, q, "a")
	stop := run(t, p)
	eventually(t, "the program and its child run", func() bool { return len(pids(t, file)) == 2 })
	began := time.Now()
	allGone(t, file, 2)
	t.Logf("gone %v after they were seen", time.Since(began))
	eventually(t, "the task waits to be tried again", func() bool {
		for s, err := range q.Scheduled(t.Context()) {
			must(t, err)
			return s.Retries == 1 && string(s.Payload) == "a"
		}
		return false
	})
	stop()
	is.Equal(p.Stats().Retried, int64(1))
}
