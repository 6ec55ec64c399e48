// Package redistest provides a real Redis for tests: one server for each test binary, or a test's
// own, which it may stop, kill and restart, and links to it that can be cut.
package redistest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisserver"
)

// Env names the environment variable with the URL of a Redis to use if no server is installed.
const Env = "WORQR_TEST_REDIS"

const none = "the tests need a Redis: run \"make test\", which installs one on Debian and Ubuntu, or put redis-server or valkey-server into PATH, or set " + Env + "=redis://host:port"

// MainOfMany is Main for tests that mostly wait: more of them run in parallel than there are
// processors. A -parallel flag on the command line takes precedence, since Run parses it.
func MainOfMany(run func() int) (code int) {
	if err := flag.Set("test.parallel", strconv.Itoa(max(12, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	return Main(run)
}

// Main runs the tests of a package with a Redis, or with the engine that EngineEnv selects, and
// fails if goroutines of this module are left behind. TestMain calls it with m.Run.
func Main(run func() int) (code int) {
	defer func() {
		if err := whole.end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := try(func() { shareEngine(whole) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = run()
	if n := skipped.Load(); n > 0 {
		fmt.Fprintf(os.Stderr, "on %s; %d tests and subtests need a single server, and were skipped (-v tells which and why)\n", shared.name, n)
	}
	if left := leaked(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
		return 1
	}
	if all := denied(); all != "" {
		fmt.Fprintln(os.Stderr, "the rule of the worker in "+rules+" does not suffice:\n"+all)
		return 1
	}
	return code
}

// leaked waits for the goroutines of this module to end, and returns the stacks of those that
// don't. A Check that has no caller anymore may check again after a lease.
func leaked() (stacks string) {
	for range 500 {
		buf := make([]byte, 1<<22)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for _, g := range strings.Split(string(buf), "\n\n") {
			if strings.Contains(g, "worqr/worqr") && !strings.Contains(g, "redistest.") && !strings.Contains(g, "redisserver.") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		stacks = strings.Join(left, "\n\n")
		time.Sleep(20 * time.Millisecond) // interval between checks, not for synchronization
	}
	return stacks
}

// URL returns the URL of the shared engine.
func URL() string { return shared.url }

// Prefix returns a namespace for one test. Its keys are removed at the end.
func Prefix(t testing.TB) string {
	t.Helper()
	noted()
	prefix := fmt.Sprintf("t%08x", rand.Uint32())
	t.Cleanup(func() {
		c, err := DialURL(shared.url)
		if err != nil {
			return // the test had its own server
		}
		defer func() { _ = c.Close() }()
		keys := Keys(t, c, prefix)
		if shared.dial == nil && len(keys) > 0 {
			_, _ = c.Do("UNLINK", redis.Args{}.AddFlat(keys)...)
			return
		}
		for _, key := range keys { // maybe on different nodes
			_, _ = c.Do("DEL", key)
		}
	})
	return prefix
}

// Conn returns a connection to the shared engine. In a cluster, each command goes to the node that
// has its key.
func Conn(t testing.TB) redis.Conn {
	t.Helper()
	noted()
	return Dial(t, shared.url)
}

// Dial returns a connection that is closed at the end.
func Dial(t testing.TB, url string) redis.Conn {
	t.Helper()
	c := Sure(DialURL(url, redis.DialReadTimeout(time.Minute)))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// IsHistory reports whether a key has the history of a queue, which stays when everything else is gone.
func IsHistory(key string) bool { return strings.Contains(key, ":history:{") }

// Keys returns the keys of a namespace, sorted.
func Keys(t testing.TB, c redis.Conn, prefix string) []string {
	t.Helper()
	var keys []string
	for cursor := "0"; ; {
		reply := Sure(redis.Values(c.Do("SCAN", cursor, "MATCH", prefix+":*", "COUNT", 10000)))(t)
		var some []string
		if _, err := redis.Scan(reply, &cursor, &some); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, some...)
		if cursor == "0" {
			break
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Several skips a test that needs several servers in short mode: such tests take a third of the time.
func Several(t testing.TB) {
	if _, tests := t.(*testing.T); tests && testing.Short() { // the benchmark's TB is another type, and needs them
		t.Skip("it starts several servers; run it without -short")
	}
}

// A Server is a test's own redis-server.
type Server struct {
	dir      string
	port     int
	bus      int // the port of a cluster's node for other nodes
	args     []string
	scheme   string // of its URL
	password string // of the default user, if the harness needs it
	sentinel bool   // it is a sentinel, with its own configuration
	cmd      *exec.Cmd
}

// Placeholders among the arguments, for the ports.
const (
	portOfServer = "<port>"
	busOfServer  = "<bus>"
)

// Start starts a server with additional arguments. It is killed at the end. The test is skipped if
// no server is installed.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	OneServer(t, OwnServer)
	if restricted() && !slices.Contains(args, "--requirepass") {
		file := filepath.Join(t.TempDir(), "users.acl") // so that users survive a restart
		Must(t, os.WriteFile(file, nil, 0o600))
		args = append(slices.Clone(args), "--aclfile", file)
	}
	s, err := start(args)
	if errors.Is(err, redisserver.ErrNone) {
		t.Skip("needs redis-server or valkey-server in PATH, to stop and restart it")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = Resume(s.cmd.Process) // in case a test left it paused
		s.CheckDenials(t)
		s.stop()
	})
	return s
}

// StartAndDial starts a server, and also returns a connection to it.
func StartAndDial(t testing.TB) (*Server, redis.Conn) {
	t.Helper()
	s := Start(t)
	return s, Dial(t, s.URL())
}

func start(args []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "worqr-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, args: args, scheme: "redis://"}
	err = redisserver.OnFreePort(func(port int) error {
		s.port, s.bus = port, busPort()
		return s.launch()
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// launch starts the process and waits until it accepts connections.
func (s *Server) launch() error {
	args := append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--unixsocket", filepath.Join(s.dir, "redis.sock"),
	}, s.args...)
	for i, a := range args {
		switch a {
		case portOfServer:
			args[i] = fmt.Sprint(s.port)
		case busOfServer:
			args[i] = fmt.Sprint(s.bus)
		}
	}
	if s.sentinel {
		args = []string{s.config(), "--sentinel"}
	}
	cmd, err := redisserver.Launch(context.Background(), args...)
	if err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

// Addr returns the host and port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL returns the address as a URL.
func (s *Server) URL() string { return s.scheme + s.Addr() }

// Socket returns the path of the Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Pause stops the server, which keeps its connections and answers no requests.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	Must(t, Pause(s.cmd.Process))
}

// Resume continues a paused server.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	Must(t, Resume(s.cmd.Process))
}

// Kill kills the server.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Restart starts a killed server again on the same port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	Must(t, s.launch())
}

func (s *Server) stop() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// Calls returns how many times a command was called since CONFIG RESETSTAT.
func Calls(t testing.TB, c redis.Conn, command string) int {
	t.Helper()
	info := Sure(redis.String(c.Do("INFO", "commandstats")))(t)
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	calls, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(calls) // 0 if it was never called
	return n
}
