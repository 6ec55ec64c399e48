//go:build unix

package program_test

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

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/program"
)

var errTimeout, errCanceled = errors.New("took too long"), errors.New("canceled")

// The test binary runs itself again with a shell script in this variable. That process runs the
// script as its only program.
const scriptEnv = "WORQR_TEST_SCRIPT"

func TestMain(m *testing.M) {
	if script := os.Getenv(scriptEnv); script != "" {
		_, err := program.Run(context.Background(), program.Program{Name: "sh", Args: []string{"-c", script}, Env: os.Environ()})
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// shell runs the script, with args as $1 and so on.
func shell(ctx context.Context, input []byte, script string, args ...string) ([]byte, error) {
	return program.Run(ctx, program.Program{Name: "sh", Args: append([]string{"-c", script, "sh"}, args...), Env: os.Environ(), Input: input})
}

// pids reads the process ids that a script has written to the file.
func pids(t testing.TB, file string) []int {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	peertest.Must(t, err)
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

// gone reports whether the process has ended, waited for or not.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z ")) ||
		runtime.GOOS == "linux" && err != nil // since the first check
}

// allGone waits until the n processes in the file have ended.
func allGone(t testing.TB, file string, n int) {
	t.Helper()
	all := pids(t, file)
	if len(all) != n {
		t.Fatalf("%d processes, want %d", len(all), n)
	}
	for _, pid := range all {
		peertest.Eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool { return gone(pid) })
	}
}

func TestPayloadAndResult(t *testing.T) {
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
			before := bytes.Clone(payload)
			output, err := program.Run(t.Context(), program.Program{Name: "cat", Input: payload})
			is.NoErr(err)
			is.True(bytes.Equal(output, payload[:min(len(payload), 1<<20)]))
			is.True(bytes.Equal(payload, before))
			is.Equal(output == nil, len(payload) == 0)
		})
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := program.Run(t.Context(), program.Program{Name: "no-such-program"})
	is.True(errors.Is(err, exec.ErrNotFound))
	file := filepath.Join(t.TempDir(), "text")
	_, err = program.Run(t.Context(), program.Program{Name: file})
	is.True(errors.Is(err, os.ErrNotExist))
	is.NoErr(os.WriteFile(file, []byte("text"), 0o600))
	_, err = program.Run(t.Context(), program.Program{Name: file})
	is.True(errors.Is(err, os.ErrPermission))
}

func TestErrorOutput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := shell(t.Context(), nil, `i=0; while [ $i -lt 5000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
	peertest.Tells(t, err, "\nline 4998\nline 4999")
	is.True(!strings.Contains(err.Error(), "line 4500\n"))
	is.True(len(err.Error()) <= 2048+100)
	_, err = shell(t.Context(), nil, `printf '\377\200 end' >&2; exit 1`) // not UTF-8
	peertest.Tells(t, err, "exit status 1: \uFFFD end")
}

// A program need not read its input.
func TestIgnoresInput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	large := make([]byte, 5<<20)
	output, err := shell(t.Context(), large, "exec <&-; echo out")
	is.NoErr(err)
	is.Equal(string(output), "out\n")
	_, err = shell(t.Context(), large, "exit 65")
	exit, ok := errors.AsType[*exec.ExitError](err)
	is.True(ok && exit.ExitCode() == 65) // not the error of writing the input
}

// When the context ends, the whole group ends, and Run returns at once.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "pids")
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errTimeout)
	defer cancel()
	output, err := shell(ctx, make([]byte, 1<<20), `
		trap '' TERM INT HUP
		sleep 60 & echo $! >>"$1"
		sleep 60 & echo $! >>"$1"
		(trap '' TERM; sleep 60; true) & echo $! >>"$1"
		echo working >&2
		echo $$ >>"$1"
		wait`, file)
	took := time.Since(start)
	t.Logf("returned after %v", took)
	is.True(errors.Is(err, errTimeout))
	is.True(took >= time.Second)
	is.True(took < 10*time.Second) // of 60
	peertest.Tells(t, err, "took too long: working")
	is.Equal(output, nil)
	allGone(t, file, 4)
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancelCause(t.Context())
	ran := make(chan error, 1)
	go func() {
		_, err := shell(ctx, nil, `echo $$ >>"$1"; exec sleep 60`, file)
		ran <- err
	}()
	peertest.Eventually(t, "it runs", func() bool { return len(pids(t, file)) == 1 })
	cancel(errCanceled)
	is.True(errors.Is(<-ran, errCanceled))
	allGone(t, file, 1)

	_, err := shell(ctx, nil, `echo $$ >>"$1"`, file) // it has already ended
	is.True(errors.Is(err, errCanceled))
	is.Equal(len(pids(t, file)), 1) // nothing was started
	_, err = program.Run(ctx, program.Program{Name: "no-such-program"})
	is.True(errors.Is(err, errCanceled))
}

// Contexts end while programs start and end: each either succeeds, or fails with the cause.
func TestContextRaces(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeoutCause(t.Context(), rand.N(6*time.Millisecond), errTimeout)
				output, err := program.Run(ctx, program.Program{Name: "cat", Input: []byte("in")})
				cancel()
				if err == nil && string(output) != "in" || err != nil && !errors.Is(err, errTimeout) {
					t.Errorf("%v, %q", err, output)
				}
			}
		})
	}
	all.Wait()
}

// Processes that a program leaves in its group end with it, however it ends.
func TestLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"0", "1", "65"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			file := filepath.Join(t.TempDir(), "pids")
			start := time.Now()
			output, err := shell(t.Context(), nil, `
				sleep 60 & echo $! >>"$1"
				sleep 60 >/dev/null 2>&1 </dev/null & echo $! >>"$1"
				echo out
				exit `+status, file)
			is.True(time.Since(start) < 30*time.Second) // of 60
			is.Equal(err == nil, status == "0")
			if err == nil {
				is.Equal(string(output), "out\n")
			}
			allGone(t, file, 2)
		})
	}
}

// A process with its own session escapes. Run doesn't wait for it, whatever it holds open.
func TestEscape(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid isn't available")
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
		"timeout": {"sleep 60", errTimeout},
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
					time.Sleep(5 * time.Millisecond) // poll
				}
			}()
			start := time.Now()
			output, err := shell(ctx, make([]byte, 5<<20), escape+c.end, file) // which no process reads
			took := time.Since(start)
			t.Logf("returned after %v", took)
			escaped := pids(t, file)
			is.Equal(len(escaped), 1)
			alive := !gone(escaped[0])
			_ = syscall.Kill(escaped[0], syscall.SIGKILL)
			is.True(alive)
			is.True(took < 30*time.Second) // of 60
			is.True(errors.Is(err, c.cause))
			if c.cause == nil {
				is.Equal(string(output), "out\n")
			}
		})
	}
}

// A program doesn't outlive its peer, even if the peer is killed.
func TestPeerKilled(t *testing.T) {
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
	peertest.Eventually(t, "the program runs", func() bool { return len(pids(t, file)) == 1 })
	is.True(!gone(pids(t, file)[0]))
	is.NoErr(peer.Process.Kill())
	_ = peer.Wait() // killed
	allGone(t, file, 1)
}
