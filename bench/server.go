package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/worqr/worqr/internal/redisserver"
)

// A server is a Redis for one measurement, on a free port, in a directory of its own.
// Nothing carries over from the one before, neither memory nor scripts nor counters.
type server struct {
	address string
	url     string
	dir     string
	cmd     *exec.Cmd
}

// startServer starts a server, which ends with ctx at the latest. It writes a log of
// what it does, with that appendfsync; "" is none, and no other persistence. More are
// further arguments.
func startServer(ctx context.Context, appendfsync string, more ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "worqr-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a server: %w", err)
	}
	s := &server{dir: dir}
	args := append([]string{"--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--maxclients", "10000"}, more...)
	if appendfsync != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	}
	err = redisserver.OnFreePort(func(port int) (err error) {
		s.address = fmt.Sprintf("127.0.0.1:%d", port)
		s.url = "redis://" + s.address
		s.cmd, err = redisserver.Launch(ctx, append(args, "--port", fmt.Sprint(port))...)
		return err
	})
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// stop kills the server and removes what it has left.
func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // or it has ended already
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}
