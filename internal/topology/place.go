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

// A Place describes the servers that have the tasks.
type Place struct {
	dial    redisconn.Dial // connects to the single server
	address string
	renew   time.Duration
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

// Open returns the place at a URL. It does no I/O, and its errors contain nothing of the URL, which
// may hold a password.
func Open(url string, o Options) (*Place, error) {
	u, err := redisconn.ParseURL(url)
	switch {
	case err != nil:
		return nil, err
	case o.Credentials != nil && u.Login.Given():
		return nil, errBoth
	case o.SentinelCredentials != nil && u.Sentinel.Given():
		return nil, errBothWatches
	}
	p := &Place{address: u.Address()}
	if o.Credentials != nil {
		p.renew = cmp.Or(o.Renew, renewAfter)
	}
	server := redisconn.Server{
		Network: u.Network, Address: u.Addresses[0], DB: u.DB, Login: u.Login, Credentials: o.Credentials,
		Timeout: o.DialTimeout, Secure: u.Secure, TLS: o.TLS,
	}
	if u.Kind == redisconn.Cluster {
		p.cluster = NewCluster(u.Addresses, func(address string) redisconn.Dial {
			node := server
			node.Address = address
			return node.Dial
		})
		return p, nil
	}
	p.dial = server.Dial
	if u.Kind == redisconn.Sentinel {
		watcher := server
		watcher.DB, watcher.Login, watcher.Credentials = 0, u.Sentinel, o.SentinelCredentials
		p.watched = true
		p.dial = newSentinels(u.Master, u.Addresses, watcher, server, &p.changed).dial
	}
	return p, nil
}

// Of returns the place of a single server that dial connects to.
func Of(dial redisconn.Dial) *Place { return &Place{dial: dial} }

// Dial makes a connection to the single server. The caller owns the connection.
func (p *Place) Dial() redisconn.Dial { return p.dial }

// OnChange calls tell after another server has replaced the previous one, as in a failover, and all
// connections to the old one are closed. tell must not block.
func (p *Place) OnChange(tell func()) {
	if p.cluster != nil {
		p.cluster.onChange(tell)
		return
	}
	p.changed.Store(&tell)
}

// Renew returns the age at which a connection is replaced, because its login may expire; 0 is
// never.
func (p *Place) Renew() time.Duration { return p.renew }

// Address returns the address in human-readable form, without user and password; "" if it isn't
// known.
func (p *Place) Address() string { return p.address }
