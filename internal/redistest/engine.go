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

// whole is what the tests of this binary share is started on.
var whole = &stand{}

// Why tests don't run on an engine that isn't a single server without TLS. Those that start a
// server of their own say so by Start, those with pools and proxies by what they call, and the
// others call OneServer.
const (
	OwnServer = "it starts, stops, freezes, configures or counts the commands of a server of its own"
	OwnPool   = "a pool of the program's own leads to a single server"
	OwnProxy  = "it puts a proxy in front of a single server"
)

// skipped counts the tests that didn't run on the engine.
var skipped atomic.Int64

// OneServer skips a test on every engine that isn't a single server without TLS.
func OneServer(t testing.TB, why string) {
	t.Helper()
	if _, ok := t.(*stand); ok || slices.Contains([]string{"", "single", "valkey"}, shared.name) { // "" shares nothing
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

// shareEngine starts what is wanted.
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
		t.Fatalf("%s=%s: there are single, valkey, tls, sentinel and cluster", EngineEnv, shared.name)
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

// tlsEnv names the variable in which processes that a test starts find what they need for TLS.
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

// Env is for the environment of a process that a test starts: there, TLS makes it a client.
func (a *Authority) Env(t testing.TB) string {
	t.Helper()
	return tlsEnv + "=" + a.files(t)
}

func (a *Authority) files(t testing.TB) string {
	cert, key := a.clientFiles(t)
	return strings.Join([]string{a.File, cert, key}, string(filepath.ListSeparator))
}

// tlsOfFiles reads what shareTLS has left.
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
	for _, n := range c.Nodes { // nothing is to happen that a test doesn't ask for; only now: with it, nodes that wait for each other connect again
		Do(t, c.conn(t, n), "CONFIG", "SET", "cluster-node-timeout", unhurried)
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
