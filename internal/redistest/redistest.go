// Package redistest gives tests a real Redis: one server for each test binary,
// or one of a test's own that it may stop, kill and restart, and links to it
// that can be cut.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisserver"
)

// Env names the environment variable with the URL of a Redis to use when no
// server is installed.
const Env = "WORQR_TEST_REDIS"

const none = "the tests need a Redis: run \"make test\", which installs one on Debian and Ubuntu, or put redis-server or valkey-server into PATH, or set " + Env + "=redis://host:port"

var shared string // URL

// Main runs the tests of a package with a Redis, and fails if goroutines of
// this module are left behind. TestMain calls it with m.Run.
func Main(run func() int) (code int) {
	server, err := start(nil)
	switch {
	case err == nil:
		defer server.stop()
		shared = server.URL()
	case os.Getenv(Env) != "":
		shared = os.Getenv(Env)
	case errors.Is(err, redisserver.ErrNone):
		fmt.Fprintln(os.Stderr, none)
		return 1
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = run()
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

// leaked waits for the goroutines of this module to end, and returns the
// stacks of those that do not.
func leaked() (stacks string) {
	for range 100 {
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
		time.Sleep(20 * time.Millisecond) // between two looks, no synchronisation
	}
	return stacks
}

// URL is that of the shared server.
func URL() string { return shared }

// Prefix returns a namespace of the test's own. What is left of it is removed
// in the end.
func Prefix(t testing.TB) string {
	prefix := fmt.Sprintf("t%08x", rand.Uint32())
	t.Cleanup(func() {
		c, err := redis.DialURL(shared)
		if err != nil {
			return // the test had a server of its own
		}
		defer func() { _ = c.Close() }()
		for _, key := range Keys(t, c, prefix) {
			_, _ = c.Do("DEL", key) // tidying up
		}
	})
	return prefix
}

// Conn returns a connection to the shared server.
func Conn(t testing.TB) redis.Conn { return Dial(t, shared) }

// Dial returns a connection that is closed in the end.
func Dial(t testing.TB, url string) redis.Conn {
	t.Helper()
	c, err := redis.DialURL(url, redis.DialReadTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Keys returns the keys of a namespace, sorted.
func Keys(t testing.TB, c redis.Conn, prefix string) []string {
	t.Helper()
	var keys []string
	for cursor := "0"; ; {
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", prefix+":*", "COUNT", 10000))
		if err != nil {
			t.Fatal(err)
		}
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

// A Server is a redis-server of a test's own.
type Server struct {
	dir    string
	port   int
	args   []string
	scheme string // of its URL
	cmd    *exec.Cmd
}

// portOfServer stands for the port among the arguments.
const portOfServer = "<port>"

// Start starts a server with the given further arguments. It is killed in the
// end. The test is skipped when no server is installed.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if restricted() && !slices.Contains(args, "--requirepass") {
		file := filepath.Join(t.TempDir(), "users.acl") // so that users outlive a restart
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
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
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		s.checkDenials(t)
		s.stop()
	})
	return s
}

func start(args []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "worqr-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, args: args, scheme: "redis://"}
	err = redisserver.OnFreePort(func(port int) error {
		s.port = port
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
		if a == portOfServer {
			args[i] = fmt.Sprint(s.port)
		}
	}
	cmd, err := redisserver.Launch(context.Background(), args...)
	if err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

// Addr is the host and port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL is the address as a URL.
func (s *Server) URL() string { return s.scheme + s.Addr() }

// Socket is the path of the Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Signal sends the server a signal.
func (s *Server) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Kill kills the server.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Restart starts a killed server again on the same port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// A Link is a TCP proxy to a server that can be cut, stalled, or made to lose
// replies.
type Link struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	conns map[net.Conn]bool
	lose  string // replies to requests that contain this are lost
	times int    // that many are left to lose
	lost  chan struct{}
	deaf  bool
	gone  bool
}

// NewLink returns a link to the address.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	link := &Link{to: to, listener: l, conns: map[net.Conn]bool{}}
	link.wg.Go(link.accept)
	t.Cleanup(func() {
		link.mu.Lock()
		link.gone = true
		link.mu.Unlock()
		_ = l.Close()
		link.Cut()
		link.wg.Wait()
	})
	return link
}

// URL is where the link listens.
func (l *Link) URL() string { return "redis://" + l.listener.Addr().String() }

// Cut closes every connection. New ones may be made.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// LoseReplyTo has the reply to the next request that contains the given bytes
// lost: the request reaches the server, and the connection ends instead of the
// reply. The returned channel is closed when that has happened.
func (l *Link) LoseReplyTo(request string) <-chan struct{} { return l.LoseRepliesTo(request, 1) }

// LoseRepliesTo does the same to the next so many requests. The channel is
// closed with the last.
func (l *Link) LoseRepliesTo(request string, times int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.times, l.lost = request, times, make(chan struct{})
	return l.lost
}

// Deafen has everything that the server says be lost, on connections that stay
// open, until it is called with false.
func (l *Link) Deafen(deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = deaf
}

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.serve(c) })
	}
}

func (l *Link) serve(c net.Conn) {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := d.DialContext(ctx, "tcp", l.to)
	if err != nil {
		_ = c.Close()
		return
	}
	l.mu.Lock()
	l.conns[c], l.conns[s] = true, true
	gone := l.gone
	l.mu.Unlock()
	end := func() { _ = c.Close(); _ = s.Close() }
	if gone {
		end()
	}
	var both sync.WaitGroup
	doomed := make(chan chan struct{}, 1) // the next reply is to be lost; closed then, unless nil
	both.Go(func() { l.requests(s, c, doomed); end() })
	both.Go(func() { l.replies(c, s, doomed); end() })
	both.Wait()
	l.mu.Lock()
	delete(l.conns, c)
	delete(l.conns, s)
	l.mu.Unlock()
}

func (l *Link) requests(server, client net.Conn, doomed chan<- chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			l.mu.Lock()
			if l.times > 0 && strings.Contains(string(buf[:n]), l.lose) {
				l.times--
				last := l.lost
				if l.times > 0 {
					last = nil
				}
				doomed <- last
			}
			l.mu.Unlock()
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) replies(client, server net.Conn, doomed <-chan chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			select {
			case lost := <-doomed:
				if lost != nil {
					close(lost)
				}
				return
			default:
			}
			if !l.isDeaf() {
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) isDeaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}

// Calls returns how often a command was called since CONFIG RESETSTAT.
func Calls(t testing.TB, c redis.Conn, command string) int {
	t.Helper()
	info, err := redis.String(c.Do("INFO", "commandstats"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	calls, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(calls) // it was never called
	return n
}
