package redisconn

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Limits for calls that are combined into one.
const (
	joinArgs = 2500
	joinSize = 256 << 10
	lookBack = 16 // commands of a pipeline that a call may join
)

// A Head is the common beginning of script calls that may be combined. Calls with the same head
// become one call with the arguments of all callers, one after the other. All callers get the same
// reply, which they must not change. So a combined script must treat the arguments as if the
// callers had sent theirs one after the other, and accept all or none.
type Head struct {
	name string // equal for equal heads
	call Call
	at   string // a key that determines the node, if the call has none
}

// Head returns the head with the keys and arguments of a call.
func (c Call) Head() *Head {
	h := &Head{call: c}
	h.name = fmt.Sprintf("%q", h.call.args)
	return h
}

// Call returns the call with additional arguments.
func (h *Head) Call(tail []any) Call {
	c := h.call.With(tail)
	c.head = h
	return c
}

// A pipeline is the commands that are sent together.
type pipeline struct {
	commands []command
	timeout  time.Duration // for each reply
}

// A command is one call, or several combined ones.
type command struct {
	calls   []*Call
	replies []*Reply // of each call
	tail    int      // arguments after the head
	size    int
	whole   bool // it contains the script's source instead of its digest
}

// add adds a call to a command that it may join, or as a new command.
func (p *pipeline) add(c *Call, r *Reply, alone bool) {
	size := c.size()
	p.timeout += time.Duration(size) * time.Second / slowestLink
	if c.head != nil && !alone {
		for i := len(p.commands) - 1; i >= max(0, len(p.commands)-lookBack); i-- {
			if cmd := &p.commands[i]; cmd.takes(c, size) {
				cmd.add(c, r, size)
				return
			}
		}
	}
	if len(p.commands) < cap(p.commands) {
		p.commands = p.commands[:len(p.commands)+1] // reuses its slices
	} else {
		p.commands = append(p.commands, command{})
	}
	p.commands[len(p.commands)-1].add(c, r, size)
}

// commandOf returns the command of one call.
func commandOf(c *Call) *command { return &command{calls: []*Call{c}, tail: len(c.tail)} }

func (cmd *command) takes(c *Call, size int) bool {
	h := cmd.calls[0].head
	return h != nil && cmd.tail+len(c.tail) <= joinArgs && cmd.size+size <= joinSize &&
		(h == c.head || h.name == c.head.name)
}

func (cmd *command) add(c *Call, r *Reply, size int) {
	cmd.calls = append(cmd.calls, c)
	cmd.replies = append(cmd.replies, r)
	cmd.tail += len(c.tail)
	cmd.size += size
}

func (cmd *command) answer(r Reply) {
	for _, to := range cmd.replies {
		*to = r
	}
}

// args returns all arguments of the command.
func (cmd *command) args() []any {
	first := cmd.calls[0]
	if cmd.tail == 0 && !cmd.whole {
		return first.args
	}
	all := append(make([]any, 0, len(first.args)+cmd.tail), first.args...)
	if cmd.whole {
		all[0] = first.script.source()
	}
	for _, c := range cmd.calls {
		all = append(all, c.tail...)
	}
	return all
}

// told returns the arguments that may be secret: all but the script.
func (cmd *command) told() []any {
	args := cmd.args()
	if cmd.calls[0].script != nil {
		args = args[1:]
	}
	return args
}

func (cmd *command) send(conn redis.Conn) error {
	name := cmd.calls[0].name
	if cmd.whole {
		name = "EVAL"
	}
	return conn.Send(name, cmd.args()...)
}

// unloaded reports whether Redis didn't know a script.
func (p *pipeline) unloaded() bool { return slices.ContainsFunc(p.commands, command.unloaded) }

func (cmd command) unloaded() bool {
	return !cmd.whole && cmd.calls[0].script != nil && Unloaded(cmd.replies[0].Err)
}

// reload keeps only the commands whose script Redis didn't know, to send them with the source.
func (p *pipeline) reload() {
	n := 0
	for i := range p.commands {
		if p.commands[i].unloaded() {
			p.commands[n], p.commands[i] = p.commands[i], p.commands[n]
			p.commands[n].whole = true
			n++
		}
	}
	p.reset(n)
}

// poisoned reports whether a reply means that the connection is useless.
func (p *pipeline) poisoned(routed bool) bool {
	return slices.ContainsFunc(p.commands, func(cmd command) bool {
		err := cmd.replies[0].Err
		return poisoned(err) && !harmless(err, routed)
	})
}

// reset keeps the first n commands, and reuses the memory of the others.
func (p *pipeline) reset(n int) {
	for i := range p.commands[n:] {
		cmd := &p.commands[n+i]
		clear(cmd.calls)
		clear(cmd.replies)
		*cmd = command{calls: cmd.calls[:0], replies: cmd.replies[:0]}
	}
	p.commands = p.commands[:n]
}
