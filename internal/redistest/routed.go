package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
)

// routed is a connection to a whole cluster, for tests: a command goes to the master that has its
// key. A command with keys of several masters, and some without a key, go to each of them; other
// commands go to the first. Slots don't move while it is used. A subscription receives what is
// published on the owner of the first channel, sharded or not.
type routed struct {
	nodes []redis.Conn // masters
	owner [keys.Slots]int

	mu    sync.Mutex // messages are received while commands are sent
	sent  []request  // and not answered yet
	multi bool       // a transaction begins with the next command, on the node that has its key
	in    int        // the node with the transaction
	ear   redis.Conn // the subscribed one
}

// A request was sent to some nodes. An empty one is answered locally.
type request struct {
	command string
	parts   []part
	skip    int // replies of the first part before the one that counts
}

type part struct {
	node int
	args []any
}

func newRouted(seed string, options []redis.DialOption) (redis.Conn, error) {
	dial := func(address string) (redis.Conn, error) { return redis.Dial("tcp", address, options...) }
	c, err := dial(seed)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // not needed anymore
	ranges, err := redis.Values(c.Do("CLUSTER", "SLOTS"))
	if err != nil {
		return nil, err
	}
	r, known := &routed{in: -1}, map[string]int{}
	for _, one := range ranges {
		span := one.([]any)
		master := span[2].([]any)
		address := fmt.Sprintf("%s:%d", master[0], master[1])
		n, ok := known[address]
		if !ok {
			n = len(r.nodes)
			known[address] = n
			node, err := dial(address)
			if err != nil {
				_ = r.Close() // as far as it was made
				return nil, err
			}
			r.nodes = append(r.nodes, node)
		}
		for s := span[0].(int64); s <= span[1].(int64); s++ {
			r.owner[s] = n
		}
	}
	return r, nil
}

// each calls a function for all nodes.
func (r *routed) each(do func(redis.Conn) error) error {
	var all []error
	for _, n := range r.nodes {
		all = append(all, do(n))
	}
	return errors.Join(all...)
}

func (r *routed) Close() error { return r.each(redis.Conn.Close) }
func (r *routed) Err() error   { return r.each(redis.Conn.Err) }
func (r *routed) Flush() error { return r.each(redis.Conn.Flush) }

// text returns an argument as text.
func text(args []any, i int) string {
	if i >= len(args) {
		return ""
	}
	if b, ok := args[i].([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(args[i])
}

// route returns where a command goes. A cursor of SCAN contains the number of the node.
func (r *routed) route(command string, args []any) (parts []part) {
	to := func(key string) []part { return []part{{r.owner[keys.Slot(key)], args}} }
	switch command {
	case "SCAN":
		cursor, _ := strconv.Atoi(text(args, 0)) // it is our own
		return []part{{cursor % len(r.nodes), append([]any{cursor / len(r.nodes)}, args[1:]...)}}
	case "KEYS", "ACL", "CONFIG", "SCRIPT", "FLUSHALL":
		for i := range r.nodes {
			parts = append(parts, part{i, args})
		}
		return parts
	case "DEL", "UNLINK", "EXISTS":
		at := map[int]int{} // the index of a slot's part
		for i, key := range args {
			slot := keys.Slot(text(args, i))
			n, ok := at[slot]
			if !ok {
				n = len(parts)
				at[slot], parts = n, append(parts, part{node: r.owner[slot]})
			}
			parts[n].args = append(parts[n].args, key)
		}
		return parts
	case "EVAL", "EVALSHA":
		if n, _ := strconv.Atoi(text(args, 1)); n > 0 {
			return to(text(args, 2))
		}
		return []part{{0, args}}
	case "OBJECT", "MEMORY", "DEBUG", "PUBSUB":
		return to(text(args, 1))
	case "TIME", "INFO", "PING", "ECHO", "CLIENT", "CLUSTER", "ROLE":
		return []part{{0, args}}
	}
	return to(text(args, 0))
}

func (r *routed) Send(command string, args ...any) error {
	command = strings.ToUpper(command)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case command == "MULTI":
		r.multi, r.sent = true, append(r.sent, request{})
		return nil
	case command == "EXEC" || command == "DISCARD":
		node := r.in
		r.in, r.sent = -1, append(r.sent, request{command: command, parts: []part{{node: node}}})
		return r.nodes[node].Send(command)
	case strings.HasSuffix(command, "SUBSCRIBE"):
		return r.subscribe(command, args)
	}
	of := request{command: command, parts: r.route(command, args)}
	var all []error
	if r.multi {
		r.multi, r.in, of.skip = false, of.parts[0].node, 1
		all = append(all, r.nodes[r.in].Send("MULTI"))
	}
	r.sent = append(r.sent, of)
	for _, p := range of.parts {
		all = append(all, r.nodes[p.node].Send(command, p.args...))
	}
	return errors.Join(all...)
}

// subscribe makes one node send what is published, in either way.
func (r *routed) subscribe(command string, channels []any) error {
	if r.ear == nil {
		r.ear = r.nodes[r.owner[keys.Slot(text(channels, 0))]]
	}
	err := r.ear.Send(command, channels...)
	if strings.HasPrefix(command, "P") {
		return err
	}
	for i, c := range channels {
		if r.nodes[r.owner[keys.Slot(text(channels, i))]] == r.ear {
			err = errors.Join(err, r.ear.Send("S"+command, c))
		}
	}
	return err
}

// hear returns the next message of a subscribed node, as if it weren't sharded.
func hear(receive func() (any, error)) (any, error) {
	for {
		reply, err := receive()
		said, ok := reply.([]any)
		if !ok || len(said) == 0 {
			return reply, err
		}
		switch kind, _ := redis.String(said[0], nil); kind {
		case "smessage":
			said[0] = []byte("message")
		case "ssubscribe", "sunsubscribe":
			continue
		}
		return said, err
	}
}

func (r *routed) Receive() (any, error) { return r.receive(redis.Conn.Receive) }

func (r *routed) ReceiveWithTimeout(d time.Duration) (any, error) {
	return r.receive(func(c redis.Conn) (any, error) { return redis.ReceiveWithTimeout(c, d) })
}

func (r *routed) receive(from func(redis.Conn) (any, error)) (any, error) {
	r.mu.Lock()
	var of request
	waits, ear := len(r.sent) > 0, r.ear
	if waits {
		of, r.sent = r.sent[0], r.sent[1:]
	}
	r.mu.Unlock()
	switch {
	case !waits && ear == nil:
		return nil, errors.New("nothing was sent")
	case !waits:
		return hear(func() (any, error) { return from(ear) })
	}
	var replies []any
	var failed error
	for _, p := range of.parts {
		for ; of.skip > 0; of.skip-- {
			if _, err := from(r.nodes[p.node]); err != nil {
				failed = err
			}
		}
		reply, err := from(r.nodes[p.node])
		if failed == nil {
			failed = err
		}
		replies = append(replies, reply)
	}
	if failed != nil {
		return nil, failed
	}
	return r.together(of, replies)
}

// together combines the replies of the nodes into one.
func (r *routed) together(of request, replies []any) (any, error) {
	switch {
	case len(replies) == 0:
		return "OK", nil
	case of.command == "SCAN":
		node, reply := of.parts[0].node, replies[0].([]any)
		cursor, err := redis.Int(reply[0], nil)
		next := cursor*len(r.nodes) + node
		if cursor == 0 { // continue with the next node
			next = (node + 1) % len(r.nodes)
		}
		return []any{[]byte(strconv.Itoa(next)), reply[1]}, err
	case of.command == "KEYS":
		var all []any
		for _, reply := range replies {
			all = append(all, reply.([]any)...)
		}
		return all, nil
	case len(replies) > 1 && (of.command == "DEL" || of.command == "UNLINK" || of.command == "EXISTS"):
		var sum int64
		for _, reply := range replies {
			n, ok := reply.(int64)
			if !ok {
				return reply, nil // it is queued
			}
			sum += n
		}
		return sum, nil
	}
	return replies[0], nil
}

func (r *routed) Do(command string, args ...any) (any, error) {
	return r.DoWithTimeout(-1, command, args...)
}

// DoWithTimeout is Do with a timeout for each reply; a negative one is the connection's.
func (r *routed) DoWithTimeout(d time.Duration, command string, args ...any) (any, error) {
	if command != "" {
		if err := r.Send(command, args...); err != nil {
			return nil, err
		}
	}
	if err := r.Flush(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	n := len(r.sent)
	r.mu.Unlock()
	var replies []any
	var last any
	var failed error
	for range n {
		var err error
		if d < 0 {
			last, err = r.Receive()
		} else {
			last, err = r.ReceiveWithTimeout(d)
		}
		if failed == nil {
			failed = err
		}
		replies = append(replies, last)
	}
	if command == "" {
		return replies, failed
	}
	return last, failed
}
