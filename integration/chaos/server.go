package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisserver"
)

// A durability is what a server keeps when it is killed.
type durability string

// The classes.
const (
	always   durability = "always"   // AOF, fsync with every write
	everysec durability = "everysec" // AOF, fsync once a second
	snapshot durability = "rdb"      // an RDB file every second in which something changed
	nothing  durability = "none"
)

var durable = map[durability][]string{
	always:   {"--appendonly", "yes", "--appendfsync", "always", "--save", ""},
	everysec: {"--appendonly", "yes", "--appendfsync", "everysec", "--save", ""},
	snapshot: {"--appendonly", "no", "--save", "1 1"},
	nothing:  {"--appendonly", "no", "--save", ""},
}

// ordered reports whether the server's own history is there to be read: what
// is killed under everysec loses the end of it.
func (d durability) ordered() bool { return d == always || d == everysec }

// A server is the Redis of one arena.
type server struct {
	dir  string
	host string
	port int
	args []string
	tls  files

	mu      sync.Mutex
	cmd     *exec.Cmd
	slowest slowCall
}

// A slowCall is a script that took Redis long.
type slowCall struct {
	took time.Duration
	call string
}

func startServer(dir, host string, args []string, tls files) (*server, error) {
	s := &server{dir: filepath.Join(dir, "redis"), host: host, args: args, tls: tls}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	err := redisserver.OnFreePort(func(port int) error {
		s.port = port
		return s.launch()
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// launch starts the process and waits until it accepts connections.
func (s *server) launch() error {
	cmd, err := redisserver.Launch(context.Background(), slices.Concat(s.tls.args(s.port), []string{
		"--bind", s.host, "--dir", s.dir, "--protected-mode", "no",
		"--slowlog-log-slower-than", "200", "--slowlog-max-len", "1024",
		"--auto-aof-rewrite-percentage", "0", "--aof-load-truncated", "yes", // one history, in one file
	}, s.args)...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd = cmd
	return nil
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) url() string {
	if s.tls.Authority != "" {
		return "rediss://" + s.addr()
	}
	return "redis://" + s.addr()
}

// dial makes a connection of the driver's own, past all links.
func (s *server) dial() (redis.Conn, error) {
	config, err := s.tls.config()
	if err != nil {
		return nil, err
	}
	c, err := redis.DialURL(s.url(), redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(time.Minute), redis.DialTLSConfig(config))
	if err != nil {
		return nil, fmt.Errorf("reach redis-server: %w", err)
	}
	return c, nil
}

// do makes calls on a connection of the driver's own, and returns the reply to the last.
func (s *server) do(calls ...[]any) (reply any, err error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	for _, call := range calls {
		if reply, err = c.Do(call[0].(string), call[1:]...); err != nil {
			return nil, fmt.Errorf("%v: %w", call[0], err)
		}
	}
	return reply, nil
}

func (s *server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Signal(sig) // or it has ended, which others notice
}

// kill kills the process: nothing is written any more.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Kill() // or it has ended already
	_ = s.cmd.Wait()
}

// stop ends the process once all of its history is written: with everysec, that of the last two
// seconds may not be.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // or it has ended already
	_ = s.cmd.Wait()
}

// written is how many bytes of its history the server has written.
func (s *server) written() (int64, error) {
	paths, err := s.history()
	if err != nil || len(paths) == 0 {
		return 0, err
	}
	info, err := os.Stat(paths[len(paths)-1])
	if err != nil {
		return 0, fmt.Errorf("look at the AOF: %w", err)
	}
	return info.Size(), nil
}

// forget has a killed server come back with no more than so many bytes of its
// history, as after a power failure: what is not synced is gone.
func (s *server) forget(from int64) error {
	paths, err := s.history()
	if err == nil && len(paths) > 0 {
		err = os.Truncate(paths[len(paths)-1], from)
	}
	if err != nil {
		return fmt.Errorf("truncate the AOF: %w", err)
	}
	return nil
}

// note keeps what SLOWLOG has to say of scripts, which ends with the process.
func (s *server) note() error {
	entries, err := redis.Values(s.do([]any{"SLOWLOG", "GET", -1}))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		fields, err := redis.Values(entry, nil)
		if err != nil || len(fields) < 4 {
			return fmt.Errorf("read SLOWLOG: %v", err)
		}
		micros, _ := redis.Int64(fields[2], nil) // a number, or 0
		call, _ := redis.Strings(fields[3], nil)
		took := time.Duration(micros) * time.Microsecond
		if len(call) > 1 && (call[0] == "EVALSHA" || call[0] == "EVAL") && took > s.slowest.took {
			s.slowest = slowCall{took, scriptName(call[0], call[1])}
		}
	}
	return nil
}

// history returns the paths of the AOF, oldest first, without the base, which is empty.
func (s *server) history() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof"))
	slices.Sort(paths)
	return paths, err
}
