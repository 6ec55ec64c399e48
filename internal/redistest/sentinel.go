package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisserver"
)

// Sentinels are three sentinels with a master and two replicas.
type Sentinels struct {
	Servers []*Server // the master first, in their initial order
	Watch   []*Server // the sentinels
	setup   SentinelSetup
}

// A SentinelSetup has options for StartSentinels.
type SentinelSetup struct {
	Password string     // of the servers
	Watch    string     // the password of the sentinels
	TLS      *Authority // all connections use TLS
	Args     []string   // more arguments of the servers

	// Hurried makes the sentinels always consider a master down after two seconds of silence.
	// Otherwise they promote a replica only when told to, or between Hurry and Promoted: on a busy
	// machine, a healthy master may be silent for that long.
	Hurried bool
}

// Milliseconds of silence after which a master is considered down.
const (
	hurried   = "2000" // with less, they would promote one replica after the other on a busy machine
	unhurried = "60000"
)

// MasterName is the sentinels' name for the master.
const MasterName = "main"

// StartSentinels starts sentinels, a master and replicas.
func StartSentinels(t testing.TB, setup SentinelSetup) *Sentinels {
	t.Helper()
	Several(t)
	s := &Sentinels{setup: setup}
	s.Servers = append(s.Servers, s.server(t))
	master := s.Servers[0]
	for range 2 {
		s.Servers = append(s.Servers, s.server(t, "--replicaof", "127.0.0.1", fmt.Sprint(master.port)))
	}
	for range 3 {
		s.Watch = append(s.Watch, s.Sentinel(t, master, ""))
	}
	for _, w := range s.Watch {
		s.await(t, w, func(about map[string]string) bool {
			return about["num-other-sentinels"] == "2" && about["num-slaves"] == "2" && about["flags"] == "master"
		})
	}
	return s
}

// server starts one of the watched servers.
func (s *Sentinels) server(t testing.TB, args ...string) *Server {
	t.Helper()
	args = append(slices.Clone(s.setup.Args), args...)
	if s.setup.Password != "" {
		args = append(args, "--requirepass", s.setup.Password, "--masterauth", s.setup.Password)
	}
	if s.setup.TLS == nil {
		server := Start(t, args...)
		server.password = s.setup.Password
		return server
	}
	server := StartTLS(t, s.setup.TLS, []string{"127.0.0.1"}, append(args, "--tls-replication", "yes", "--tls-auth-clients", "no")...)
	server.password = s.setup.Password
	return server
}

// Sentinel starts another sentinel, which logs in to the servers as a user; "" is the default one.
// It stores its state in its configuration.
func (s *Sentinels) Sentinel(t testing.TB, master *Server, user string) *Server {
	t.Helper()
	dir := Sure(os.MkdirTemp("", "worqr-sentinel-"))(t)
	w := &Server{dir: dir, scheme: master.scheme, sentinel: true, password: s.setup.Watch}
	downAfter := unhurried
	if s.setup.Hurried {
		downAfter = hurried
	}
	lines := []string{
		"bind 127.0.0.1", "dir " + dir, fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, master.port),
		"sentinel down-after-milliseconds " + MasterName + " " + downAfter, "sentinel failover-timeout " + MasterName + " 3000",
	}
	switch {
	case user != "":
		lines = append(lines, "sentinel auth-user "+MasterName+" "+user, "sentinel auth-pass "+MasterName+" SECRET")
	case s.setup.Password != "":
		lines = append(lines, "sentinel auth-pass "+MasterName+" "+s.setup.Password)
	}
	if p := s.setup.Watch; p != "" {
		lines = append(lines, "requirepass "+p, "sentinel sentinel-pass "+p)
	}
	port := "port "
	if a := s.setup.TLS; a != nil {
		cert, key := a.server(t, []string{"127.0.0.1"})
		lines = append(lines, "port 0", "tls-replication yes", "tls-auth-clients no",
			"tls-cert-file "+cert, "tls-key-file "+key, "tls-ca-cert-file "+a.File)
		port = "tls-port "
	}
	Must(t, redisserver.OnFreePort(func(at int) error {
		w.port = at
		if err := os.WriteFile(w.config(), []byte(strings.Join(append(lines, port+fmt.Sprint(at)), "\n")), 0o600); err != nil {
			return err
		}
		return w.launch()
	}))
	t.Cleanup(func() {
		_ = Resume(w.cmd.Process) // in case a test left it paused
		w.stop()
	})
	return w
}

// Stray starts a sentinel that is cut off from all others: it names the master that it was given
// forever, and its configuration is the oldest. It sees that the servers answer, but may not
// communicate with other sentinels through them.
func (s *Sentinels) Stray(t testing.TB, master *Server) *Server {
	t.Helper()
	for _, server := range s.Servers {
		Sure(server.Call("ACL", "SETUSER", "stray", "on", ">SECRET", "+info", "+ping", "+client|setname"))(t)
	}
	w := s.Sentinel(t, master, "stray")
	s.await(t, w, func(about map[string]string) bool { return about["runid"] != "" }) // it has connected to the master
	return w
}

// config returns the configuration file of a sentinel.
func (s *Server) config() string { return filepath.Join(s.dir, fmt.Sprint("sentinel-", s.port)) }

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() (all []string) {
	for _, w := range s.Watch {
		all = append(all, w.Addr())
	}
	return all
}

// URL returns the URL of the master.
func (s *Sentinels) URL() string {
	url, login, query := "redis+sentinel://", "", ""
	if s.setup.TLS != nil {
		url = "rediss+sentinel://"
	}
	if s.setup.Password != "" {
		login = ":" + s.setup.Password + "@"
	}
	if s.setup.Watch != "" {
		query = "?sentinel=" + s.setup.Watch
	}
	return url + login + strings.Join(s.Addrs(), ",") + "/" + MasterName + query
}

// await waits until a sentinel's description of the master is as wanted.
func (s *Sentinels) await(t testing.TB, w *Server, want func(about map[string]string) bool) {
	t.Helper()
	eventually(t, func() error {
		about, err := redis.StringMap(w.Call("SENTINEL", "MASTER", MasterName))
		if err == nil && !want(about) {
			err = fmt.Errorf("sentinel %s says %v", w.Addr(), about)
		}
		return err
	})
}

// Failover makes a sentinel promote a replica, although the master is healthy, and returns when it
// is promoted.
func (s *Sentinels) Failover(t testing.TB) (now *Server) {
	t.Helper()
	was := s.Master(t)
	eventually(t, func() error { // it refuses while another failover is in progress, or no replica is ready
		_, err := s.Watch[0].Call("SENTINEL", "FAILOVER", MasterName)
		return err
	})
	return s.Promoted(t, was)
}

// Hurry makes the sentinels notice within seconds if the master goes away now.
func (s *Sentinels) Hurry(t testing.TB) {
	t.Helper()
	for _, w := range s.Watch {
		Sure(w.Call("SENTINEL", "SET", MasterName, "down-after-milliseconds", hurried))(t)
	}
}

// Promoted waits until a server other than the given one is the master, and returns it. Without
// Hurry, that server stays the master.
func (s *Sentinels) Promoted(t testing.TB, than *Server) (now *Server) {
	t.Helper()
	eventually(t, func() error {
		if now = s.Master(t); now == than {
			return errors.New("no replica was promoted")
		}
		return now.is("master")
	})
	for _, w := range s.Watch {
		if !s.setup.Hurried {
			_, _ = w.Call("SENTINEL", "SET", MasterName, "down-after-milliseconds", unhurried) // some may be gone
		}
	}
	return now
}

// is reports why the server doesn't report a role, master or slave.
func (s *Server) is(role string) error {
	said, err := redis.Values(s.Call("ROLE"))
	if err != nil {
		return err
	}
	is, err := redis.String(said[0], nil)
	if err == nil && is != role {
		err = fmt.Errorf("%s says that it is a %s, not a %s", s.Addr(), is, role)
	}
	return err
}

// Demoted waits until a server reports that it's no longer a master.
func (s *Sentinels) Demoted(t testing.TB, server *Server) {
	t.Helper()
	eventually(t, func() error { return server.is("slave") })
}

// Master returns the server that the first running sentinel names.
func (s *Sentinels) Master(t testing.TB) *Server {
	t.Helper()
	var all []error
	for _, w := range s.Watch {
		where, err := redis.Strings(w.Call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName))
		if err != nil || len(where) != 2 {
			all = append(all, fmt.Errorf("%s says %q: %w", w.Addr(), where, err))
			continue
		}
		at := slices.IndexFunc(s.Servers, func(server *Server) bool { return fmt.Sprint(server.port) == where[1] })
		if at < 0 {
			all = append(all, fmt.Errorf("%s names a master that is none of ours: %v", w.Addr(), where)) // the port of another test's server
			continue
		}
		return s.Servers[at]
	}
	t.Fatal(errors.Join(all...))
	return nil
}

// eventually repeats a function until it succeeds, for up to a minute.
func eventually(t testing.TB, do func() error) {
	t.Helper()
	every(t, 20*time.Millisecond, do)
}

// Eventually waits until a condition holds, for up to a minute.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	every(t, 5*time.Millisecond, func() error {
		if !holds() {
			return errors.New("timed out waiting until " + what)
		}
		return nil
	})
}

// every is eventually with a given pause.
func every(t testing.TB, pause time.Duration, do func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(pause) { // interval between checks, not for synchronization
		err := do()
		if err == nil {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}
