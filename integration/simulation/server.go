package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/integration/calls"
)

// A server stands for Redis. miniredis provides the data and the commands; the server adds scripts,
// publish and subscribe, and faults. It isn't safe for concurrent use.
type server struct {
	store   *memory
	scripts *interpreter

	jumped   time.Duration // how far the clock of Redis is off
	readonly bool
	full     bool // maxmemory is reached
	loading  bool
	mute     bool // messages reach no subscriber, but are counted as if they did

	subscribers map[string][]*link // by channel
	push        func(to *link, message []byte)

	wrote   bool            // the current request has made a command that writes
	touched map[string]bool // keys of these commands
}

// A command has the properties of a Redis command.
type command struct {
	writes bool
	hungry bool // refused when memory is full
	keys   int  // how many of the first arguments are keys; 0: all
}

// commands are those that the library uses. Others are refused, so that the rules
// for a full or read-only Redis cover everything that is used.
var commands = func() map[string]command {
	all := map[string]command{}
	know := func(c command, names string) {
		for _, n := range strings.Fields(names) {
			all[n] = c
		}
	}
	know(command{}, `EXISTS GET GETRANGE HEXISTS HGET HKEYS HLEN HMGET HRANDFIELD HSTRLEN INFO LINDEX LLEN LPOS LRANGE PING PTTL PUBLISH
		SRANDMEMBER SSCAN TIME TYPE ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZRANK ZREVRANGE ZSCAN ZSCORE`)
	know(command{writes: true, hungry: true, keys: 1}, "HINCRBY HSET LPUSH RPUSH SADD SET ZADD")
	know(command{writes: true, hungry: true, keys: 2}, "LMOVE RPOPLPUSH")
	know(command{writes: true, keys: 1}, "HDEL LREM PEXPIRE SREM ZPOPMIN ZREM ZREMRANGEBYSCORE")
	know(command{writes: true}, "DEL UNLINK")
	return all
}()

func newServer() *server {
	s := &server{store: newMemory(), subscribers: map[string][]*link{}, touched: map[string]bool{}}
	s.store.SetTime(s.clock())
	s.store.ClockTTL(true)
	s.scripts = newInterpreter(s.command)
	return s
}

func (s *server) close() {
	s.scripts.close()
	s.store.Close()
}

// clock returns the time of Redis.
func (s *server) clock() time.Time { return time.Now().Add(s.jumped) }

// A request is a parsed request of a client.
type request struct {
	verb string   // of the script, or the name of the command
	keys []string // of the script
	args []string
	call calls.Call // the same, of a script
	from *process   // nil for a late copy
	copy bool
}

// worker returns the id of the worker that a script is called for, if any.
func (r *request) worker() string {
	switch r.verb {
	case "join", "start", "finish", "heartbeat", "leave":
		return r.call.Arg("worker")
	case "evict":
		return r.call.Arg("target")
	}
	return ""
}

// begin prepares for one request.
func (s *server) begin() {
	s.wrote = false
	clear(s.touched)
	// miniredis looks for expired keys whenever this clock has moved, so it moves in
	// steps; the scripts get the exact time.
	s.store.SetTime(s.clock().Truncate(100 * time.Millisecond))
}

// parse parses a request; the reply is an error if it's invalid.
func (s *server) parse(args []string) (r request, p *program, reply any) {
	name := strings.ToUpper(args[0])
	r = request{verb: name, args: args[1:]}
	if name != "EVALSHA" && name != "EVAL" {
		return r, nil, nil
	}
	call, ok := calls.Parse(args)
	if !ok {
		return r, nil, refusal("ERR this calls no verb")
	}
	if name == "EVAL" {
		var err error
		if p, err = s.scripts.load(call.Verb, args[1]); err != nil {
			return r, nil, refusal("ERR Error compiling script: " + err.Error())
		}
	} else if p = s.scripts.programs[args[1]]; p == nil {
		return r, nil, refusal("NOSCRIPT No matching script. Please use EVAL.")
	}
	return request{verb: p.verb, keys: call.Keys, args: call.Args, call: call}, p, nil
}

// do runs a request. Afterwards touched has the keys that it has changed.
func (s *server) do(r request, p *program) any {
	switch {
	case s.loading:
		return refusal("LOADING Redis is loading the dataset in memory")
	case p != nil:
		return s.scripts.eval(p, r.keys, r.args)
	}
	return s.command(append([]string{r.verb}, r.args...))
}

// command runs one command.
func (s *server) command(args []string) any {
	name := strings.ToUpper(args[0])
	c, known := commands[name]
	switch {
	case !known:
		return refusal(fmt.Sprintf("ERR unknown command '%s'", name))
	case c.writes && s.readonly:
		return refusal("READONLY You can't write against a read only replica.")
	case c.hungry && s.full && !s.wrote:
		return refusal("OOM command not allowed when used memory > 'maxmemory'.")
	case name == "INFO": // miniredis has little of it
		return "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
	case name == "TIME":
		us := s.clock().UnixMicro()
		return []any{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)}
	case name == "PUBLISH" && len(args) == 3:
		return s.publish(args[1], args[2])
	case c.writes:
		s.wrote = true
		n := len(args) - 1
		if c.keys > 0 {
			n = min(n, c.keys)
		}
		for _, k := range args[1 : n+1] {
			s.touched[k] = true
		}
	}
	return s.store.Do(args...)
}

func (s *server) publish(channel, message string) any {
	to := s.subscribers[channel]
	if !s.mute && len(to) > 0 {
		b := appendReply(nil, []any{"message", channel, message})
		for _, l := range to {
			s.push(l, b)
		}
	}
	return int64(len(to))
}

// subscribe answers a request of a connection that subscribes or has subscriptions.
func (s *server) subscribe(l *link, args []string) []byte {
	var b []byte
	for _, name := range args[1:] {
		kind := strings.ToLower(args[0])
		switch kind {
		case "subscribe":
			if !l.hears[name] {
				l.hears[name] = true
				s.subscribers[name] = append(slices.Clone(s.subscribers[name]), l)
			}
		case "unsubscribe":
			s.unsubscribe(l, name)
		}
		b = appendReply(b, []any{kind, name, int64(len(l.hears))})
	}
	return b
}

func (s *server) unsubscribe(l *link, name string) {
	delete(l.hears, name)
	rest := slices.DeleteFunc(slices.Clone(s.subscribers[name]), func(o *link) bool { return o == l })
	if len(rest) == 0 {
		delete(s.subscribers, name)
		return
	}
	s.subscribers[name] = rest
}

// disconnect forgets a connection.
func (s *server) disconnect(l *link) {
	for name := range l.hears {
		s.unsubscribe(l, name)
	}
}
