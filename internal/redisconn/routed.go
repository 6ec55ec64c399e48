package redisconn

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Routed marks the line as one to a node of a cluster, and returns it. If the node sends a call to
// another node, the line keeps its connection and returns that reply as it is.
func (l *Line) Routed() *Line {
	l.routed = true
	return l
}

// At returns the call for the node that has the key. It's for calls without a key of their own.
func (c Call) At(key string) Call {
	c.head = &Head{name: c.name + " " + key, call: c, at: key}
	return c
}

// Key is the key that decides which node of a cluster takes the call; false if any node does.
func (c *Call) Key() (key string, ok bool) {
	first := 0
	switch {
	case c.head != nil && c.head.at != "":
		return c.head.at, true
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

// keyless are the commands of ours whose first argument is no key.
var keyless = map[string]bool{
	"ASKING": true, "CLUSTER": true, "CONFIG": true, "ECHO": true, "INFO": true, "MEMORY": true, "PING": true, "PUBSUB": true, "ROLE": true, "SCAN": true, "TIME": true,
}

// Asking returns the call as it is sent after an ASK redirection, to a node that doesn't own the
// slot yet: its commands go in one exchange, and the last reply is that of the call. It is false for
// a call of several keys, which can't be sent so.
func (c *Call) Asking() (calls []Call, ok bool) {
	call := *c
	if c.script != nil {
		if n, _ := c.args[1].(int); n != 1 {
			return nil, false
		}
		// Not by its digest: the node is asked once, and might not know it.
		call.name, call.script, call.args = "EVAL", nil, slices.Clone(c.args)
		call.args[0] = c.script.src
	}
	call.head = nil
	return []Call{Command("ASKING"), call}, true
}

// A Redirection says where a cluster node wants a call to go.
type Redirection struct {
	Ask     bool // this once: the slot is on its way there
	Slot    int
	Address string // host and port; without the host it is that of the node which said so; "" if that node doesn't know it
}

// Redirected returns the redirection that an error reply is.
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
	at := strings.LastIndexByte(words[2], ':') // hosts of IPv6 have no brackets here
	if err != nil || r.Slot < 0 || at < 0 {
		return r, false
	}
	port, err := strconv.Atoi(words[2][at+1:])
	if err != nil || port < 0 || port > 65535 {
		return r, false
	}
	if port == 0 || words[2][:at] == "?" { // another server has taken the address of a dead owner, say
		return r, true
	}
	r.Address = net.JoinHostPort(strings.Trim(words[2][:at], "[]"), words[2][at+1:])
	return r, true
}

// A Later is why a server hasn't carried out a call that will succeed after a while, there or at
// another server.
type Later string

// Alone means that a master refuses writes because it has too few replicas.
const Alone Later = "NOREPLICAS"

// Postponed returns why a call is to be made again later; "" if it isn't. None of it was carried
// out: only the first word of the reply counts, which isn't that of an error inside a script. (A script
// that may not write for want of replicas fails with its first write, and not later.)
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

// Astray is the error of a call that no node has carried out. Why is what the last one said. Away
// is true for it.
func Astray(why error) error {
	return &absentError{fmt.Errorf("no node of the cluster takes the call: %s", why)}
}

// harmless reports whether a reply says nothing against the connection.
func (l *Line) harmless(err error) bool {
	if _, redirected := Redirected(err); redirected {
		return l.routed
	}
	later := Postponed(err)
	return l.routed && (later == "TRYAGAIN" || later == "CLUSTERDOWN")
}

// ErrCluster says that a server is a node of a cluster, but was used as a single server.
var ErrCluster = errors.New("this server is part of a cluster; use Open with redis+cluster://")

// ErrPlain says that a server is not in cluster mode, and was taken for a node of a cluster.
var ErrPlain = errors.New("this server isn't part of a cluster; use a URL with redis://")

// Plain has the answer to a CLUSTER command say so where only a server gives it that is not in cluster
// mode.
func Plain(err error) error {
	if e, ok := errors.AsType[redis.Error](err); ok && strings.Contains(string(e), "cluster support disabled") {
		return ErrPlain
	}
	return err
}

// placed adds ErrCluster to an error reply that only a node of a cluster gives, and what to do to one that asks
// for a password.
func (l *Line) placed(err error) error {
	if replied(err, "NOAUTH") {
		return fmt.Errorf("%w The server needs a password: put it into the URL, as in redis://:PASSWORD@HOST", err)
	}
	if l.routed || !replied(err, "MOVED ", "ASK ", "CROSSSLOT", "CLUSTERDOWN", "ERR Script attempted to access a non local key in a cluster node") {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCluster, err)
}
