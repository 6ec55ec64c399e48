package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// An engine is what keeps the tasks.
type engine string

// The engines.
const (
	single      engine = "single"
	leastRights engine = "acl" // peers may do what the worker of docs/security.md may, and nothing else
	withTLS     engine = "tls" // peers have certificates
	onSentinel  engine = "sentinel"
	onCluster   engine = "cluster"
)

var engines = []engine{single, leastRights, withTLS, onSentinel, onCluster}

// anywhere are the campaigns that know other engines than a single server.
var anywhere = []string{"kills", "smoke"}

// A site is servers of which the arena has several.
type site interface {
	url() string                        // for peers
	all() []*redistest.Server           // that have keys
	trouble(d *rand.Rand) (what string) // has something come upon the servers, after which nothing may be lost
}

// begin starts the servers.
func (a *arena) begin() (err error) {
	host, args := "127.0.0.1", slices.Concat(durable[a.durability], a.users)
	if a.everywhere {
		host = "0.0.0.0"
	}
	switch a.engine {
	case onSentinel, onCluster:
		return redistest.Try(func() { a.site = newSite(a.stand, a.engine, append([]string{}, args...), a.queues()) })
	case withTLS:
		if err := redistest.Try(func() {
			authority := redistest.NewAuthority(a.stand)
			a.tls.Authority = authority.File
			a.tls.Certificate, a.tls.Key = authority.Files(a.stand, "127.0.0.1")
		}); err != nil {
			return err
		}
	}
	if a.server, err = startServer(a.dir, host, args, a.tls); err != nil {
		return err
	}
	a.cleanup = append(a.cleanup, a.server.kill)
	if a.engine == leastRights {
		var rule []string
		if err := redistest.Try(func() { rule = redistest.Rule(a.stand, "worker", prefix) }); err != nil {
			return err
		}
		_, err = a.server.do(redis.Args{"ACL", "SETUSER", restricted}.AddFlat(rule))
	}
	return err
}

const restricted = "restricted" // the name of the user with the least rights

// url is where the driver looks on.
func (a *arena) url() string {
	if a.site != nil {
		return a.site.url()
	}
	return a.server.url()
}

// peerURL is where peers work.
func (a *arena) peerURL() string {
	if a.engine == leastRights {
		return strings.Replace(a.url(), "://", "://"+restricted+":SECRET@", 1)
	}
	return a.url()
}

// observer returns a peer of the driver.
func (a *arena) observer() (*worqr.Peer, error) {
	config, err := a.tls.config()
	if err != nil {
		return nil, err
	}
	return worqr.Open(a.url(), &worqr.Options{Prefix: prefix, Lease: a.lease, TLSConfig: config})
}

// each does something to each server that has keys.
func (a *arena) each(do func(redis.Conn) error) error {
	conns := []func() (redis.Conn, error){}
	if a.site == nil {
		conns = append(conns, a.server.dial)
	} else {
		for _, s := range a.site.all() {
			conns = append(conns, func() (redis.Conn, error) { return redis.DialURL(s.URL()) })
		}
	}
	for _, dial := range conns {
		c, err := dial()
		if err != nil {
			return err
		}
		err = do(c)
		_ = c.Close() // it has nothing to lose
		if err != nil {
			return err
		}
	}
	return nil
}

// denials demands that peers with the least rights were denied nothing.
func (a *arena) denials() error {
	if a.engine != leastRights {
		return nil
	}
	entries, err := redis.Values(a.server.do([]any{"ACL", "LOG"}))
	for _, e := range entries {
		pairs, _ := redis.Values(e, nil)
		said := fmt.Sprintf("%q", pairs)
		if strings.Contains(said, `"`+restricted+`"`) {
			a.report.violate("peers were denied something: %s", said)
		}
	}
	return err
}

// files are those with which peers and servers show who they are.
type files struct{ Authority, Certificate, Key string }

// config is what a client needs to connect; nil without TLS.
func (f files) config() (*tls.Config, error) {
	if f.Authority == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.Authority)
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		return nil, errors.New("the certificate of the authority isn't one")
	}
	return &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
}

// args are those of the server.
func (f files) args(port int) []string {
	if f.Authority == "" {
		return []string{"--port", fmt.Sprint(port)}
	}
	return []string{"--port", "0", "--tls-port", fmt.Sprint(port), "--tls-cert-file", f.Certificate, "--tls-key-file", f.Key, "--tls-ca-cert-file", f.Authority}
}
