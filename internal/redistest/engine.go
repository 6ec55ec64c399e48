package redistest

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
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

// EngineEnv names the environment variable that selects what the tests of a binary share:
//
//   - single, or nothing: one server
//   - valkey: one valkey-server; the tests also start no other kind
//   - tls: one server that requires TLS and client certificates
//   - sentinel: a master, two replicas and three sentinels
//   - cluster: three masters with a replica each
const EngineEnv = "WORQR_TEST_ENGINE"

// An engine is what the tests of a binary share.
type engine struct {
	name    string
	url     string
	servers []*Server // on each of which users are created; none if the engine isn't ours
	tls     *tls.Config
	dial    func(login ...redis.DialOption) (redis.Conn, error)
}

var shared engine

// whole owns what the tests of this binary share.
var whole = &stand{}

// Reasons why tests don't run on an engine other than a single server without TLS. Tests that start
// their own server report it through Start, those with pools and proxies through the functions they
// call, and the others call OneServer.
const (
	OwnServer = "it starts, stops, freezes or configures its own server, or counts its commands"
	OwnPool   = "it uses its own pool, which leads to a single server"
	OwnProxy  = "it puts a proxy in front of a single server"
)

// skipped counts the tests that didn't run on the engine.
var skipped atomic.Int64

// OneServer skips a test unless the engine is a single server without TLS.
func OneServer(t testing.TB, why string) {
	t.Helper()
	if _, ok := t.(*stand); ok || slices.Contains([]string{"", "single", "valkey"}, shared.name) { // "" shares nothing
		return
	}
	skipped.Add(1)
	t.Skipf("not on %s: %s", shared.name, why)
}

// noted makes go test's cache distinguish engines and servers. It records the environment variables
// that a test reads, but not those read before the tests.
var noted = sync.OnceFunc(func() {
	for _, name := range []string{EngineEnv, Env, redisserver.Env} {
		_ = os.Getenv(name)
	}
})

// shareEngine starts the selected engine.
func shareEngine(t *stand) {
	shared.name = cmp.Or(os.Getenv(EngineEnv), "single")
	switch shared.name {
	case "valkey":
		if os.Getenv(redisserver.Env) == "" {
			Must(t, os.Setenv(redisserver.Env, "valkey-server"))
		}
		fallthrough
	case "single":
		shareSingle(t)
	case "tls":
		shareTLS(t)
	case "sentinel":
		shareSentinels(t)
	case "cluster":
		shareCluster(t)
	default:
		t.Fatalf("%s=%s: the engines are single, valkey, tls, sentinel and cluster", EngineEnv, shared.name)
	}
}

func shareSingle(t *stand) {
	server, err := start(nil)
	switch {
	case err == nil:
		t.Cleanup(server.stop)
		shared.url, shared.servers = server.URL(), []*Server{server}
	case os.Getenv(Env) != "":
		shared.url = os.Getenv(Env)
	case errors.Is(err, redisserver.ErrNone):
		t.Fatal(none)
	default:
		t.Fatal(err)
	}
}

// tlsEnv names the variable that tells processes started by a test where the TLS files are.
const tlsEnv = "WORQR_TEST_TLS_FILES"

func shareTLS(t *stand) {
	authority := NewAuthority(t)
	server := StartTLS(t, authority, []string{"127.0.0.1"})
	Must(t, os.Setenv(tlsEnv, authority.files(t)))
	shared.url, shared.servers, shared.tls = server.URL(), []*Server{server}, Sure(tlsOfFiles())(t)
	shared.dial = func(login ...redis.DialOption) (redis.Conn, error) {
		return redis.DialURL(server.URL(), append(login, redis.DialTLSConfig(shared.tls))...)
	}
}

// files returns the value of tlsEnv, with which TLS works as a client.
func (a *Authority) files(t testing.TB) string {
	cert, key := a.clientFiles(t)
	return strings.Join([]string{a.File, cert, key}, string(filepath.ListSeparator))
}

// tlsOfFiles reads the files that tlsEnv names.
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
		ClientSessionCache: tls.NewLRUClientSessionCache(0), // hundreds of full handshakes would delay heartbeats on a busy server
	}, nil
}

// TLS returns the configuration that a peer needs for the URL: nil unless it is the shared engine's
// URL and the engine requires TLS.
func TLS(rawURL string) *tls.Config {
	switch bare, _ := cutLogin(rawURL); {
	case shared.name == "": // in a process that a test has started
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

func shareSentinels(t *stand) {
	s := StartSentinels(t, SentinelSetup{})
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

func shareCluster(t *stand) {
	c := StartCluster(t, 3, 3)
	for _, n := range c.Nodes { // no failover may happen unasked; not earlier, since starting nodes reconnect by the short timeout
		Do(t, c.conn(t, n), "CONFIG", "SET", "cluster-node-timeout", unhurried)
	}
	shared.url, shared.servers = c.URL(), c.Nodes
	shared.dial = c.dial
}

// oneServer is started on demand.
var oneServer = sync.OnceValue(func() string {
	server, err := start(nil)
	if err != nil {
		panic(err)
	}
	whole.Cleanup(server.stop)
	return server.URL()
})

// SingleURL returns the URL of a single server: the shared one, or another one if the engine has
// several.
func SingleURL() string {
	if shared.dial == nil {
		return shared.url
	}
	return oneServer()
}

// cutLogin returns a URL without its user and password, and these.
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

// withLogin returns the URL with a login.
func withLogin(rawURL string, name, password string) string {
	bare, _ := cutLogin(rawURL)
	return strings.Replace(bare, "://", "://"+url.UserPassword(name, password).String()+"@", 1)
}

// DialURL makes a connection to the shared engine, of any kind, or to another single server.
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
