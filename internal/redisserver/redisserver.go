// Package redisserver starts Redis servers for tests, campaigns and benchmarks.
package redisserver

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

// ErrNone means that there is no server to start.
var ErrNone = errors.New("there is no redis-server and no valkey-server in PATH; install one")

// Env names the environment variable with the server to start, such as valkey-server: a name in
// PATH, or a path.
const Env = "WORQR_TEST_SERVER"

// Program returns the path of the server.
func Program() (path string, err error) {
	if wanted := os.Getenv(Env); wanted != "" {
		if path, err = exec.LookPath(wanted); err != nil {
			return "", fmt.Errorf("%s: %w", Env, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNone
}

// OnFreePort calls launch with a free port, and with another one if that fails: another process may
// take the port in the meantime.
func OnFreePort(launch func(port int) error) (err error) {
	for range 5 {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		_ = l.Close() // launch needs the port
		if err = launch(l.Addr().(*net.TCPAddr).Port); err == nil || errors.Is(err, ErrNone) {
			return err
		}
	}
	return err
}

// Launch starts a server with the given arguments and waits until it accepts connections, or is a
// sentinel. The server ends when ctx or this process ends.
func Launch(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := Program()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	if err := Serve(cmd); err != nil {
		return nil, err
	}
	return cmd, nil
}

// Serve starts a command that becomes a server, and waits as Launch does. The command ends when
// this process ends.
func Serve(cmd *exec.Cmd) error {
	cmd.SysProcAttr = DieWithParent()
	out, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "eady to accept connections") || strings.Contains(lines.Text(), "Sentinel ID is") {
			go func() {
				for lines.Scan() { // so that the server never blocks on its log
				}
			}()
			return nil
		}
		fmt.Fprintln(&said, lines.Text())
	}
	_ = cmd.Wait() // its output is more useful than the error
	return fmt.Errorf("%s did not start:\n%s", cmd.Path, said.String())
}
