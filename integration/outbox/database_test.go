// Package outbox tests contrib/outbox on real databases, which it starts in temporary folders.
package outbox

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/internal/redisserver"
	"github.com/worqr/worqr/internal/redistest"
)

// required is the environment variable that makes tests fail instead of being skipped if a database isn't installed.
const required = "WORQR_TEST_DATABASES"

// A kind is a kind of database. What isn't a server has no prepare.
type kind struct {
	name    string
	dialect outbox.Dialect
	driver  string
	dsn     func(port int, name string) string
	prepare func(dir string) error               // its folder
	command func(dir string, port int) *exec.Cmd // serves it
}

var (
	postgres = &kind{
		name: "postgres", dialect: outbox.Postgres, driver: "pgx",
		dsn: func(port int, name string) string {
			return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable&connect_timeout=5", port, name)
		},
		prepare: func(dir string) error {
			return output(unprivileged(exec.Command(program("initdb"), "-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")))
		},
		command: func(dir string, port int) *exec.Cmd {
			return unprivileged(exec.Command(program("postgres"), "-D", dir, "-p", strconv.Itoa(port), "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"))
		},
	}
	mariadb = &kind{
		name: "mariadb", dialect: outbox.MySQL, driver: "mysql",
		dsn: func(port int, name string) string {
			return fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s?timeout=5s&interpolateParams=true", port, name)
		},
		prepare: func(dir string) error { // a server deletes temporary tables of others that share its tmpdir
			return output(exec.Command(program("mariadb-install-db"), "--no-defaults", "--datadir="+dir, "--tmpdir="+filepath.Dir(dir), "--user="+login(), "--skip-test-db", "--skip-name-resolve"))
		},
		command: func(dir string, port int) *exec.Cmd {
			return exec.Command(program("mariadbd"), "--no-defaults", "--datadir="+dir, "--tmpdir="+filepath.Dir(dir), "--user="+login(), "--port="+strconv.Itoa(port), "--bind-address=127.0.0.1",
				"--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"), "--skip-grant-tables", "--skip-networking=0", "--innodb-buffer-pool-size=64M", "--max-connections=200")
		},
	}
	sqlite = &kind{name: "sqlite", dialect: outbox.SQLite, driver: "sqlite"}
	kinds  = []*kind{postgres, mariadb, sqlite}
)

// program returns the path of a program of a database, or its name. Debian doesn't put all into PATH.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	found = append(found, "/usr/sbin/"+name)
	for _, path := range slices.Backward(found) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return name
}

func login() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// unprivileged makes root run a command as another user: PostgreSQL refuses to run as root.
func unprivileged(c *exec.Cmd) *exec.Cmd {
	c.SysProcAttr = redisserver.DieWithParent()
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody(), Gid: nobody()}
	}
	return c
}

func nobody() uint32 {
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			id, _ := strconv.Atoi(u.Uid)
			return uint32(id)
		}
	}
	return 65534
}

func output(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", c.Path, err, out)
	}
	return nil
}

// A server is a running database.
type server struct {
	*kind
	dir  string
	port int
	cmd  *exec.Cmd
	said bytes.Buffer
}

func start(k *kind) (*server, error) {
	base, err := os.MkdirTemp("", "worqr-"+k.name+"-")
	if err != nil {
		return nil, err
	}
	s := &server{kind: k, dir: filepath.Join(base, "data")}
	err = errors.Join(os.Mkdir(s.dir, 0o700), os.Chmod(base, 0o755))
	if k == postgres && os.Getuid() == 0 {
		err = errors.Join(err, os.Chown(s.dir, int(nobody()), int(nobody())))
	}
	if err == nil {
		err = k.prepare(s.dir)
	}
	if err == nil {
		err = redisserver.OnFreePort(func(port int) error {
			s.port = port
			return s.launch()
		})
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// launch starts the process, and waits until it answers. After a kill, what is left of PostgreSQL may need a moment to end.
func (s *server) launch() (err error) {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) { // poll
		if err = s.attempt(); err == nil {
			return nil
		}
	}
	return err
}

func (s *server) attempt() error {
	s.cmd = s.command(s.dir, s.port)
	if s.cmd.SysProcAttr == nil {
		s.cmd.SysProcAttr = redisserver.DieWithParent()
	}
	s.said.Reset()
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(ended)
	}()
	db, err := sql.Open(s.driver, s.dsn(s.port, map[*kind]string{postgres: "postgres", mariadb: "mysql"}[s.kind]))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if err = db.Ping(); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended: %s", s.name, s.said.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return err
}

func (s *server) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		for s.cmd.Process.Signal(syscall.Signal(0)) == nil { // until it's reaped
			time.Sleep(time.Millisecond)
		}
	}
}

func (s *server) stop() {
	s.kill()
	_ = os.RemoveAll(filepath.Dir(s.dir))
}

// A database is an empty database.
type database struct {
	*kind
	dsn string
	on  *server // nil for SQLite
}

var (
	running   = map[*kind]func() (*server, error){}
	stopping  []*server
	stops     sync.Mutex
	databases atomic.Int64
)

func init() {
	for _, k := range kinds[:2] {
		running[k] = sync.OnceValues(func() (*server, error) {
			s, err := start(k)
			if err == nil {
				stops.Lock()
				stopping = append(stopping, s)
				stops.Unlock()
			}
			return s, err
		})
	}
}

func stopAll() {
	for _, s := range stopping {
		s.stop()
	}
}

// on runs a test on several kinds of databases.
func on(t *testing.T, test func(t *testing.T, d *database), kinds ...*kind) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, create(t, k, nil))
		})
	}
}

// create creates a database, on the server that all tests share if s is nil.
func create(t testing.TB, k *kind, s *server) *database {
	t.Helper()
	if k == sqlite {
		return &database{k, "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(normal)&_txlock=immediate", nil}
	}
	if s == nil {
		var err error
		if s, err = running[k](); err != nil {
			missing(t, k, err)
		}
	}
	name := fmt.Sprint("d", databases.Add(1))
	admin := redistest.Sure(sql.Open(k.driver, s.dsn(s.port, map[*kind]string{postgres: "postgres", mariadb: "mysql"}[k])))(t)
	defer func() { _ = admin.Close() }()
	redistest.Sure(admin.Exec("CREATE DATABASE " + name))(t)
	return &database{k, s.dsn(s.port, name), s}
}

// own starts a server that a test may kill.
func own(t testing.TB, k *kind) *server {
	t.Helper()
	s, err := start(k)
	if err != nil {
		missing(t, k, err)
	}
	t.Cleanup(s.stop)
	return s
}

// missing skips a test, unless the database can't be missing.
func missing(t testing.TB, k *kind, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv(required) == "" {
		t.Skipf("%s isn't installed", k.name)
	}
	t.Fatal(err)
}

func (d *database) open(t testing.TB) *sql.DB {
	t.Helper()
	db := redistest.Sure(sql.Open(d.driver, d.dsn))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
