package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisserver"
)

// EngineEnv names the environment variable that says what the tests of a binary share:
//
//   - single, or nothing: one server
//   - valkey: one valkey-server, as are all others that the tests start
//   - tls: one server that wants TLS and certificates of its clients
//   - sentinel: a master, two replicas and three sentinels
//   - cluster: three masters with a replica each
const EngineEnv = "WORQR_TEST_ENGINE"

// An engine is what the tests of a binary share.
type engine struct {
	name    string
	url     string
	servers []*Server // on each of which a user is made; none if it isn't ours
	tls     *tls.Config
	dial    func(login ...redis.DialOption) (redis.Conn, error)
}

var shared engine

// Why tests don't run on an engine that isn't a single server without TLS. Those that start a
// server of their own say so by Start, those with pools and proxies by what they call, and the
// others are in stay.
const (
	OwnServer = "it starts, stops, freezes, configures or counts the commands of a server of its own"
	OwnPool   = "a pool of the program's own leads to a single server"
	OwnProxy  = "it puts a proxy in front of a single server"
)

// stay are the tests on the shared engine that need a single server, by engine: "" is any but one
// server.
var stay = map[string]map[string]string{
	"": {
		"TestRefusals": "it has users, servers and proxies of its own that refuse one command each",
	},
}

// engineName is which engine is wanted.
func engineName() string {
	if name := os.Getenv(EngineEnv); name != "" {
		return name
	}
	return "single"
}

// skipped counts the tests that didn't run on the engine.
var skipped atomic.Int64

// OneServer skips a test on every engine that isn't a single server without TLS.
func OneServer(t testing.TB, why string) {
	t.Helper()
	if _, ok := t.(*binary); ok || slices.Contains([]string{"", "single", "valkey"}, shared.name) { // "" shares nothing
		return
	}
	skipped.Add(1)
	t.Skipf("not on %s: %s", shared.name, why)
}

// noted has go test know that a result is of one engine and server only. It notes what a test
// reads of its environment, but not what is read before the tests.
var noted = sync.OnceFunc(func() {
	for _, name := range []string{EngineEnv, Env, redisserver.Env} {
		_ = os.Getenv(name)
	}
})

// allowed skips a test that is named in stay.
func allowed(t testing.TB) {
	t.Helper()
	noted()
	name, _, _ := strings.Cut(t.Name(), "/")
	for _, engine := range []string{"", shared.name} {
		if why, ok := stay[engine][name]; ok {
			OneServer(t, why)
		}
	}
}

// startEngine starts what is wanted.
func (b *binary) startEngine() (err error) {
	defer caught(&err)
	shared.name = engineName()
	switch shared.name {
	case "valkey":
		if os.Getenv(redisserver.Env) == "" {
			must(b, os.Setenv(redisserver.Env, "valkey-server"))
		}
		fallthrough
	case "single":
		return b.startSingle()
	case "tls":
		b.startTLS()
	case "sentinel":
		b.startSentinels()
	case "cluster":
		b.startCluster()
	default:
		return fmt.Errorf("%s=%s: there are single, valkey, tls, sentinel and cluster", EngineEnv, shared.name)
	}
	return nil
}

func (b *binary) startSingle() error {
	server, err := start(nil)
	switch {
	case err == nil:
		b.Cleanup(server.stop)
		shared.url, shared.servers = server.URL(), []*Server{server}
	case os.Getenv(Env) != "":
		shared.url = os.Getenv(Env)
	case errors.Is(err, redisserver.ErrNone):
		return errors.New(none)
	default:
		return err
	}
	return nil
}

// tlsEnv names the variable in which processes that a test starts find what they need for TLS.
const tlsEnv = "WORQR_TEST_TLS_FILES"

func (b *binary) startTLS() {
	authority := NewAuthority(b)
	server := StartTLS(b, authority, []string{"127.0.0.1"})
	must(b, os.Setenv(tlsEnv, authority.files(b)))
	shared.url, shared.servers, shared.tls = server.URL(), []*Server{server}, Sure(tlsOfFiles())(b)
	shared.dial = func(login ...redis.DialOption) (redis.Conn, error) {
		return redis.DialURL(server.URL(), append(login, redis.DialTLSConfig(shared.tls))...)
	}
}

// Env is for the environment of a process that a test starts: there, TLS makes it a client.
func (a *Authority) Env(t testing.TB) string {
	t.Helper()
	return tlsEnv + "=" + a.files(t)
}

func (a *Authority) files(t testing.TB) string {
	cert, key := a.clientFiles(t)
	return strings.Join([]string{a.File, cert, key}, string(filepath.ListSeparator))
}

// tlsOfFiles reads what files has written.
func tlsOfFiles() (*tls.Config, error) {
	files := filepath.SplitList(os.Getenv(tlsEnv))
	if len(files) != 3 {
		return nil, nil
	}
	authority, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(files[1], files[2])
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{certificate},
		ClientSessionCache: tls.NewLRUClientSessionCache(0), // hundreds of handshakes at once keep a busy server from answering heartbeats
	}, nil
}

// TLS is what a peer needs for the URL: nil unless that is the shared engine's, and the engine
// wants TLS.
func TLS(rawURL string) *tls.Config {
	switch bare, _ := cutLogin(rawURL); {
	case shared.name == "": // a process that a test has started
		config, err := tlsOfFiles()
		if err != nil {
			panic(err)
		}
		return config
	case bare == shared.url:
		return shared.tls
	}
	return nil
}

func (b *binary) startSentinels() {
	s := StartSentinels(b, SentinelSetup{})
	shared.url, shared.servers = s.URL(), s.Servers
	shared.dial = func(login ...redis.DialOption) (redis.Conn, error) {
		var all []error
		for _, server := range s.Servers {
			err := server.is("master")
			if err == nil {
				return redis.DialURL(server.URL(), login...)
			}
			all = append(all, err)
		}
		return nil, errors.Join(all...)
	}
}

func (b *binary) startCluster() {
	c := StartCluster(b, 3, 3)
	for _, n := range c.Nodes { // nothing is to happen that a test doesn't ask for; only now: with it, nodes that wait for each other connect again
		Do(b, c.conn(b, n), "CONFIG", "SET", "cluster-node-timeout", unhurried)
	}
	shared.url, shared.servers = c.URL(), c.Nodes
	shared.dial = c.dial
}

// oneServer is started when it is asked for.
var oneServer = sync.OnceValue(func() string {
	server, err := start(nil)
	if err != nil {
		panic(err)
	}
	whole.Cleanup(server.stop)
	return server.URL()
})

// SingleURL is that of a single server: the shared one, or one beside an engine that is more.
func SingleURL() string {
	if shared.dial == nil {
		return shared.url
	}
	return oneServer()
}

// cutLogin returns a URL without the user and the password in it.
func cutLogin(rawURL string) (bare string, login *url.Userinfo) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	name, rest, ok := strings.Cut(rest, "@")
	if !ok {
		return rawURL, nil
	}
	u, err := url.Parse("redis://" + name + "@h")
	if err != nil {
		return rawURL, nil
	}
	return scheme + "://" + rest, u.User
}

// withLogin returns the URL of a user.
func withLogin(rawURL string, name, password string) string {
	bare, _ := cutLogin(rawURL)
	return strings.Replace(bare, "://", "://"+url.UserPassword(name, password).String()+"@", 1)
}

// DialURL makes a connection to the shared engine, whatever it is, or to another single server.
func DialURL(rawURL string, options ...redis.DialOption) (redis.Conn, error) {
	bare, login := cutLogin(rawURL)
	if shared.dial == nil || bare != shared.url {
		return redis.DialURL(rawURL, options...)
	}
	if login != nil {
		password, _ := login.Password()
		options = append(slices.Clone(options), redis.DialUsername(login.Username()), redis.DialPassword(password))
	}
	return shared.dial(options...)
}

// A binary is what a test is to what it starts: everything ends with it.
type binary struct {
	testing.TB // its other methods are not there
	mu         sync.Mutex
	ends       []func()
	failed     []string
}

// whole is the one of this process.
var whole = &binary{}

type fatal struct{ err error }

// caught turns what Fatal was called with into an error.
func caught(err *error) {
	switch f := recover().(type) {
	case nil:
	case fatal:
		*err = f.err
	default:
		panic(f)
	}
}

// Outside has the harness work for a program that isn't a test. What do has started ends with it, and
// what has failed is returned.
func Outside(do func(t testing.TB)) (err error) {
	b := &binary{}
	defer func() {
		for _, wrong := range b.end() {
			err = errors.Join(err, errors.New(wrong))
		}
	}()
	defer caught(&err)
	do(b)
	return nil
}

func (b *binary) Helper()      {}
func (b *binary) Name() string { return "Main" }

func (b *binary) Cleanup(end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = append(b.ends, end)
}

func (b *binary) TempDir() string {
	dir, err := os.MkdirTemp("", "worqr-engine-")
	must(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (b *binary) Error(args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = append(b.failed, fmt.Sprint(args...))
}

func (b *binary) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (b *binary) Fatal(args ...any)                 { panic(fatal{errors.New(fmt.Sprint(args...))}) }
func (b *binary) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }
func (b *binary) Skip(args ...any)                  { b.Fatal(args...) }

// end ends everything, the last first, and returns what was wrong.
func (b *binary) end() (wrong []string) {
	for {
		b.mu.Lock()
		n := len(b.ends)
		if n == 0 {
			defer b.mu.Unlock()
			return b.failed
		}
		last := b.ends[n-1]
		b.ends = b.ends[:n-1]
		b.mu.Unlock()
		last()
	}
}
