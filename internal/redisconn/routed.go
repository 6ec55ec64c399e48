package redisconn

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// At returns the call for the node that has the key. It's for calls without a key of their own.
func (c Call) At(key string) Call {
	c.at = key
	return c
}

// Key returns the key that determines which node of a cluster gets the call, or false if any node
// may.
func (c *Call) Key() (key string, ok bool) {
	first := 0
	switch {
	case c.at != "":
		return c.at, true
	case c.script != nil:
		if n, _ := c.args[1].(int); n == 0 {
			return "", false
		}
		first = 2
	case keyless[c.name]:
		return "", false
	}
	if first >= len(c.args) {
		return "", false
	}
	key, ok = c.args[first].(string)
	return key, ok
}

// keyless lists the commands whose first argument isn't a key.
var keyless = map[string]bool{
	"ASKING": true, "CLUSTER": true, "CONFIG": true, "ECHO": true, "INFO": true, "MEMORY": true, "PING": true, "PUBSUB": true, "ROLE": true, "SCAN": true, "TIME": true,
}

// Asking returns the commands for a call after an ASK redirection, to a node that doesn't own the
// slot yet: send them in one exchange; the last reply is the call's. It returns false for a script: its keys may be
// on both nodes.
func (c *Call) Asking() (calls []Call, ok bool) {
	return []Call{Command("ASKING"), *c}, c.script == nil
}

// A Redirection is the node to which another node redirects a call.
type Redirection struct {
	Ask     bool // only this once: the slot is moving there
	Slot    int
	Address string // host and port; a missing host is the redirecting node's; "" if that node doesn't know it
}

// Redirected parses an error reply that is a redirection.
func Redirected(err error) (r Redirection, ok bool) {
	e, ok := errors.AsType[redis.Error](err)
	if !ok || len(e) > maxReply {
		return r, false
	}
	words := strings.Fields(string(e))
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return r, false
	}
	r.Ask = words[0] == "ASK"
	r.Slot, err = strconv.Atoi(words[1])
	at := strings.LastIndexByte(words[2], ':') // IPv6 hosts have no brackets here
	if err != nil || r.Slot < 0 || at < 0 {
		return r, false
	}
	port, err := strconv.Atoi(words[2][at+1:])
	if err != nil || port < 0 || port > 65535 {
		return r, false
	}
	if port == 0 || words[2][:at] == "?" { // for example, another server has the address of a dead owner
		return r, true
	}
	r.Address = net.JoinHostPort(strings.Trim(words[2][:at], "[]"), words[2][at+1:])
	return r, true
}

// A Later is the reason why a server hasn't carried out a call that will succeed later, there or on
// another server.
type Later string

// Alone means that a master refuses writes because it has too few replicas.
const Alone Later = "NOREPLICAS"

// Postponed returns why a call must be repeated later, or "" if it doesn't need to be. The server
// carried out no part of it: only the first word of the reply counts, and errors inside a script
// don't begin with these words. (A script that may not write because replicas are missing fails at
// its first write.)
func Postponed(err error) Later {
	if e, ok := errors.AsType[redis.Error](err); ok {
		word, _, _ := strings.Cut(string(e), " ")
		switch word {
		case "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY", string(Alone):
			return Later(word)
		}
	}
	return ""
}

// Astray returns the error of a call that no node has carried out; why is the last node's reason.
// Away reports true for it.
func Astray(why error) error {
	return &absentError{fmt.Errorf("no node of the cluster accepts the call: %s", why)}
}

// harmless reports whether a reply doesn't mean that the connection is bad. routed means that it leads to a node
// of a cluster.
func harmless(err error, routed bool) bool {
	if _, redirected := Redirected(err); redirected {
		return routed
	}
	later := Postponed(err)
	return routed && (later == "TRYAGAIN" || later == "CLUSTERDOWN")
}

// ErrCluster means that a node of a cluster was used as a single server.
var ErrCluster = errors.New("this server is part of a cluster; use Open with redis+cluster://")

// ErrPlain means that a server that isn't in cluster mode was used as a node of a cluster.
var ErrPlain = errors.New("this server isn't part of a cluster; use a URL with redis://")

// Plain adds ErrPlain to the answer to a CLUSTER command if only a server that isn't in cluster
// mode gives it.
func Plain(err error) error {
	if e, ok := errors.AsType[redis.Error](err); ok && strings.Contains(string(e), "cluster support disabled") {
		return ErrPlain
	}
	return err
}

// placed adds ErrCluster to an error reply that only a node of a cluster gives, and advice to one
// that asks for a password.
func placed(err error, routed bool) error {
	if replied(err, "NOAUTH") {
		return fmt.Errorf("%w The server needs a password: put it into the URL, as in redis://:PASSWORD@HOST", err)
	}
	if routed || !replied(err, "MOVED ", "ASK ", "CROSSSLOT", "CLUSTERDOWN", "ERR Script attempted to access a non local key in a cluster node") {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCluster, err)
}
