package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
)

// A server is a Redis for one measurement, on a free port, in a directory of its own. Nothing carries over from the one before, neither
// memory nor scripts nor counters.
type server struct {
	url string
	dir string
	cmd *exec.Cmd
}

// program finds the server to measure with.
func program() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no redis-server and no valkey-server in PATH; install one: each measurement starts its own")
}

// startServer starts a server, which ends with ctx at the latest. It writes a log of
// what it does, with that appendfsync; "" is none, and no other persistence.
func startServer(ctx context.Context, appendfsync string) (*server, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "worqr-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for %s: %w", path, err)
	}
	s := &server{dir: dir}
	for range 5 { // the port may be taken between here and there
		if err = s.launch(ctx, path, appendfsync); err == nil {
			return s, nil
		}
	}
	s.stop()
	return nil, err
}

// launch starts the process and waits until it accepts connections.
func (s *server) launch(ctx context.Context, path, appendfsync string) error {
	port, err := freePort()
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	s.url = fmt.Sprintf("redis://127.0.0.1:%d", port)
	args := []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--maxclients", "10000"}
	if appendfsync != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	}
	s.cmd = exec.CommandContext(ctx, path, args...)
	s.cmd.SysProcAttr = dieWithParent()
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "eady to accept connections") {
			go func() {
				for lines.Scan() { // so that it never blocks on its log
				}
			}()
			return nil
		}
		fmt.Fprintln(&said, lines.Text())
	}
	_ = s.cmd.Wait() // what it said tells more
	return fmt.Errorf("%s did not start:\n%s", path, said.String())
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// stop kills the server and removes what it has left.
func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // or it has ended already
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}
