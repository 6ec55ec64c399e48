// Package topology knows where the servers are: at one address, at a master that sentinels name, or
// on the nodes of a cluster. It sends each call and each subscription to the right server, and
// closes connections to a server that has been replaced.
package topology

import (
	"cmp"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

// Servers are the servers that have the tasks.
type Servers struct {
	Address string        // in human-readable form, without user and password; "" if it isn't known
	Renew   time.Duration // the age at which a connection is replaced, because its login may expire; 0 is never

	dial    redisconn.Dial // connects to the single server
	changed atomic.Pointer[func()]
	cluster *Cluster // instead of dial; nil for a single server
	watched bool     // sentinels name the server
}

// Options configure connections. The zero value means the defaults.
type Options struct {
	TLS                 *tls.Config           // for the rediss schemes
	DialTimeout         time.Duration         // of each step of a dial
	Credentials         redisconn.Credentials // called at each dial of a server that has tasks
	SentinelCredentials redisconn.Credentials // called at each dial of a sentinel
	Renew               time.Duration         // age limit of a connection with Credentials
}

// renewAfter is the default of Options.Renew: shorter than the validity of tokens of all known
// services.
const renewAfter = 30 * time.Minute

var (
	errBoth        = errors.New("the URL has a user or a password, and Options.Credentials is set; remove one of them")
	errBothWatches = errors.New("the URL has ?sentinel=, and Options.SentinelCredentials is set; remove one of them")
)

// Open returns the servers at a URL. It does no I/O, and its errors never quote the URL, which
// may hold a password.
func Open(url string, o Options) (*Servers, error) {
	u, err := redisconn.ParseURL(url)
	switch {
	case err != nil:
		return nil, err
	case o.Credentials != nil && u.Login.Given():
		return nil, errBoth
	case o.SentinelCredentials != nil && u.Sentinel.Given():
		return nil, errBothWatches
	}
	s := &Servers{Address: u.Address()}
	if o.Credentials != nil {
		s.Renew = cmp.Or(o.Renew, renewAfter)
	}
	server := redisconn.Server{
		Network: u.Network, Address: u.Addresses[0], DB: u.DB, Login: u.Login, Credentials: o.Credentials,
		Timeout: o.DialTimeout, Secure: u.Secure, TLS: o.TLS,
	}.Guarded()
	if u.Kind == redisconn.Cluster {
		s.cluster = NewCluster(u.Addresses, func(address string) redisconn.Dial {
			node := server
			node.Address = address
			return node.Dial
		})
		return s, nil
	}
	s.dial = server.Dial
	if u.Kind == redisconn.Sentinel {
		watcher := server.Guarded()
		watcher.DB, watcher.Login, watcher.Credentials = 0, u.Sentinel, o.SentinelCredentials
		s.watched = true
		s.dial = newSentinels(u.Master, u.Addresses, watcher, server, &s.changed).dial
	}
	return s, nil
}

// Of returns the single server that dial connects to.
func Of(dial redisconn.Dial) *Servers { return &Servers{dial: dial} }

// Dial makes a connection to the single server. The caller owns the connection.
func (s *Servers) Dial() redisconn.Dial { return s.dial }

// OnChange calls tell after another server has replaced the previous one, as in a failover, and all
// connections to the old one are closed. tell must not block. In a cluster, earlier functions are called, too.
func (s *Servers) OnChange(tell func()) {
	if s.cluster != nil {
		s.cluster.onChange(tell)
		return
	}
	s.changed.Store(&tell)
}
