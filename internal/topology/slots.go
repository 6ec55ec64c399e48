package topology

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Cluster records which node of a Redis Cluster owns which slot. It may be out of date: the
// redirection of a call that went to the wrong node corrects it.
type Cluster struct {
	seeds []string // never forgotten
	dial  func(address string) redisconn.Dial
	met   atomic.Bool // a server has said whether it is in cluster mode; set by the Router

	mu     sync.RWMutex       // protects the fields below
	owners [keys.Slots]string // "" if it isn't known
	others []string           // known nodes that may own nothing
	pace   pace
	watch  []func()
}

// Intervals between requests for all owners.
const (
	askEvery   = 500 * time.Millisecond
	askRefused = time.Minute // after a refusal
	mostOthers = 4096        // a cluster has up to 1,000 nodes
)

// NewCluster returns a Cluster that only knows the addresses of some nodes.
func NewCluster(seeds []string, dial func(address string) redisconn.Dial) *Cluster {
	return &Cluster{seeds: slices.Clone(seeds), dial: dial}
}

// IsCluster reports whether keys are on several servers.
func (s *Servers) IsCluster() bool { return s.cluster != nil }

// owner returns the node that owns a slot; "" if it isn't known.
func (c *Cluster) owner(slot int) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.owners[slot]
}

// all returns the nodes that own slots, sorted, and all known nodes.
func (c *Cluster) all() (owners, known []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	seen, last := map[string]bool{"": true}, ""
	for _, at := range c.owners { // ranges of slots have the same owner
		if at != last && !seen[at] {
			seen[at], owners = true, append(owners, at)
		}
		last = at
	}
	slices.Sort(owners)
	known = slices.Concat(owners, c.others, c.seeds)
	slices.Sort(known)
	return owners, slices.Compact(known)
}

// members returns the nodes that own slots, and their replicas.
func (c *Cluster) members() (owners, replicas []string) {
	owners, _ = c.all()
	c.mu.RLock()
	defer c.mu.RUnlock()
	replicas = slices.DeleteFunc(slices.Clone(c.others), func(at string) bool { return slices.Contains(owners, at) })
	slices.Sort(replicas)
	return owners, replicas
}

func (c *Cluster) moved(slot int, address string) {
	c.mu.Lock()
	changed := c.owners[slot] != address
	c.owners[slot] = address
	c.mu.Unlock()
	if changed {
		c.tell()
	}
}

// take records a node's answer about all owners.
func (c *Cluster) take(said *owned) {
	c.mu.Lock()
	changed := false
	c.others = said.others
	for slot, now := range said.owners {
		if now != "" && now != c.owners[slot] { // if no node owns a slot, its last owner knows best
			c.owners[slot], changed = now, true
		}
	}
	c.mu.Unlock()
	if changed {
		c.tell()
	}
}

// onChange calls f after owners have changed. f must not block.
func (c *Cluster) onChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = append(slices.Clip(c.watch), f)
}

func (c *Cluster) tell() {
	c.mu.RLock()
	all := c.watch
	c.mu.RUnlock()
	for _, f := range all {
		f()
	}
}

// A pace limits how often nodes are asked for all owners.
type pace struct {
	asking  bool
	refused bool // the user lacks the permission, as of the last request
	next    time.Time
}

// mayAsk reports whether to ask nodes now. If so, the caller must call asked.
func (c *Cluster) mayAsk(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pace.asking || now.Before(c.pace.next) {
		return false
	}
	c.pace.asking = true
	return true
}

// isRefused reports whether the nodes don't report the owners, except in redirections.
func (c *Cluster) isRefused() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.pace.refused
}

func (c *Cluster) asked(now time.Time, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pause := askEvery
	if refused {
		pause = askRefused
	}
	c.pace = pace{refused: refused, next: now.Add(redisconn.Jitter(pause))}
}

// owned is an answer to CLUSTER SLOTS.
type owned struct {
	owners [keys.Slots]string
	others []string
}

var errSlots = errors.New("unexpected reply to CLUSTER SLOTS")

// readSlots parses a node's answer.
func readSlots(reply any, from string) (*owned, error) {
	ranges, ok := reply.([]any)
	if !ok || len(ranges) > keys.Slots {
		return nil, errSlots
	}
	host, _, _ := net.SplitHostPort(from)
	said := &owned{}
	for _, r := range ranges {
		of, _ := r.([]any)
		if len(of) < 3 {
			return nil, errSlots
		}
		first, ok1 := of[0].(int64)
		last, ok2 := of[1].(int64)
		if !ok1 || !ok2 || first < 0 || last < first || last >= keys.Slots {
			return nil, errSlots
		}
		owner, err := readNode(of[2], host)
		if err != nil {
			return nil, err
		}
		for _, replica := range of[3:] {
			if at, err := readNode(replica, host); err == nil && at != "" && len(said.others) < mostOthers && !slices.Contains(said.others, at) {
				said.others = append(said.others, at)
			}
		}
		for slot := first; slot <= last; slot++ {
			said.owners[slot] = owner
		}
	}
	return said, nil
}

// readNode parses the address of a node; it returns "" if the answering node doesn't know it. A
// missing host is the host that was asked.
func readNode(of any, from string) (string, error) {
	words, _ := of.([]any)
	if len(words) < 2 {
		return "", errSlots
	}
	host, _ := redis.String(words[0], nil) // nil if it is missing
	port, ok := words[1].(int64)
	switch {
	case !ok || port < 0 || port > 65535 || len(host) > maxHost:
		return "", fmt.Errorf("%w: a node has no address", errSlots)
	case host == "?" || port == 0:
		return "", nil
	case host == "":
		host = from
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
}

const maxHost = 255 // bytes

// whole completes the address of a redirection, in which the host may be missing.
func whole(address, from string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" {
		return address
	}
	host, _, _ = net.SplitHostPort(from)
	return net.JoinHostPort(host, port)
}
