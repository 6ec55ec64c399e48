package api

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// home is the address of the servers.
const home = "127.0.0.1"

// serves checks that a peer works: calls, rounds, beats and the subscription.
func serves(t *testing.T, p *worqr.Peer) {
	t.Helper()
	starts, _ := counting(t, p, "q", nil)
	q := p.Queue("q")
	idle(t, q, 1)
	enqueue(t, q, "a", "b")
	receive(t, starts, 2)
	eventually(t, "both are finished", func() bool { return p.Stats().Finished == 2 })
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	server := redistest.StartTLS(t, a, []string{home}, "--tls-auth-clients", "no")
	config := &tls.Config{RootCAs: a.Pool()}
	serves(t, openAt(t, server.URL(), worqr.Options{Prefix: "p", TLSConfig: config}))
	if config.ServerName != "" || config.MinVersion != 0 {
		t.Error("the caller's config was changed")
	}
}

// With mutual TLS, the certificate identifies the client. ServerName is used to verify the server's
// certificate.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	for version, name := range map[string]string{"TLSv1.2": home, "TLSv1.3": "redis.example"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			a := redistest.NewAuthority(t)
			server := redistest.StartTLS(t, a, []string{name}, "--tls-protocols", version)
			serves(t, openAt(t, server.URL(), worqr.Options{Prefix: "p", TLSConfig: &tls.Config{
				RootCAs: a.Pool(), Certificates: []tls.Certificate{a.Client(t)}, ServerName: name,
			}}))
		})
	}
}

// Without options, the system's certificate authorities are trusted.
func TestTLSBySystem(t *testing.T) {
	a := redistest.NewAuthority(t)
	server := redistest.StartTLS(t, a, []string{home}, "--tls-auth-clients", "no")
	t.Setenv("SSL_CERT_FILE", a.File) // for the child process
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	spawn(t, childConfig{URL: server.URL(), Prefix: "p", Queue: "q", Concurrency: 1}).Kill()
}

// Every verb reports certificate errors immediately, and how to fix them. It is certain that
// nothing was carried out.
func TestTLSRefused(t *testing.T) {
	t.Parallel()
	a, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	server := redistest.StartTLS(t, a, []string{home}, "--tls-auth-clients", "no")
	elsewhere := redistest.StartTLS(t, a, []string{"redis.example"}, "--tls-auth-clients", "no")
	mutual := redistest.StartTLS(t, a, []string{home})
	older := redistest.StartTLS(t, a, []string{home}, "--tls-protocols", "TLSv1.2")
	plain := redistest.Start(t)
	trusting := &tls.Config{RootCAs: a.Pool()}
	for name, c := range map[string]struct {
		url    string
		config *tls.Config
		want   []string
	}{
		"an unknown authority":      {server.URL(), &tls.Config{RootCAs: other.Pool()}, []string{"unknown authority", "TLSConfig.RootCAs"}},
		"not a system authority":    {server.URL(), nil, []string{"unknown authority", "TLSConfig.RootCAs"}},
		"another host":              {elsewhere.URL(), trusting, []string{home, "TLSConfig.ServerName"}},
		"no certificate":            {mutual.URL(), trusting, []string{"TLSConfig.Certificates"}},
		"no certificate, TLS 1.2":   {mutual.URL(), &tls.Config{RootCAs: a.Pool(), MaxVersion: tls.VersionTLS12}, []string{"TLSConfig.Certificates"}},
		"a certificate not trusted": {mutual.URL(), &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{other.Client(t)}}, []string{"TLSConfig.Certificates"}},
		"too old":                   {older.URL(), &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS13}, []string{"protocol version"}},
		"rediss:// without TLS":     {"rediss://" + plain.Addr(), trusting, []string{"try redis://"}},
		"redis:// with TLS":         {"redis://" + server.Addr(), nil, []string{"try rediss://"}},
		"redis://, and a TLS alert": {"redis://" + alerting(t), nil, []string{"the server speaks TLS", "try rediss://"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := worqr.Options{Prefix: "p", TLSConfig: c.config, DialTimeout: patience / 10, CallTimeout: patience / 10} // many handshakes share few processors
			if c.url == "rediss://"+plain.Addr() {
				opts.DialTimeout = 0 // nobody answers
			}
			p := openAt(t, strings.Replace(c.url, "//", "//:hunter2@", 1), opts)
			open := sure(worqr.Open(c.url, &opts))(t) // doesn't begin with a login
			defer open.Close()
			began := time.Now()
			for verb, err := range map[string]error{
				"Enqueue":         p.Queue("q").Enqueue(t.Context(), []byte("canary")),
				"StartWorker":     p.StartWorker(t.Context()),
				"without a login": open.Queue("q").Enqueue(t.Context(), []byte("canary")),
			} {
				if err == nil || is_(err, worqr.ErrUnknownOutcome) {
					t.Errorf("%s: %v", verb, err)
					continue
				}
				for _, part := range c.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %q is not in: %v", verb, part, err)
					}
				}
				for _, secret := range []string{"hunter2", "canary"} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("%s shows %s: %v", verb, secret, err)
					}
				}
			}
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it took %v", took) // each call may wait 2 s for a silent server
			}
		})
	}
}

// alerting returns the address of a server that, as some do, answers plain text with a TLS alert
// and closes the connection.
func alerting(t *testing.T) string {
	t.Helper()
	return redistest.Listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte("\x15\x03\x03\x00\x02\x02\x46")) // fatal: protocol version
	}).Addr()
}

// If a port accepts connections but never answers, calls fail when the dial timeout or their
// context ends, and leave no connection open.
func TestTLSBlackHole(t *testing.T) {
	is := parallel(t)
	closed := make(chan struct{}, 100)
	hole := redistest.Listen(t, func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c) // until the client gives up
		closed <- struct{}{}
	})
	// Dialing the connection for beats times out sooner, after a third of the lease.
	p := openAt(t, "rediss://"+hole.Addr(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	err := p.StartWorker(t.Context())
	is.True(err != nil && strings.Contains(err.Error(), "try redis://"))
	receive(t, closed, 1)
	err = p.Queue("q").Enqueue(t.Context(), []byte("a"))
	is.True(err != nil && strings.Contains(err.Error(), "try redis://") && !is_(err, worqr.ErrUnknownOutcome))
	receive(t, closed, 1)
}
