package spec

import (
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// A Server is the model behind the protocol of Redis: it answers to scripts by what
// it knows of their verbs, and to the few plain commands that the tables use.
type Server struct {
	door *server.Server

	mu          sync.Mutex // protects the fields below
	store       *Store
	subscribers map[string][]*server.Peer
	scripts     map[string]loaded // by digest
}

// A loaded script is known by its verb; the time may stand still in it.
type loaded struct {
	verb  string
	still time.Time
}

type verb func(s *Store, keys, args []string, at time.Time) any

// of makes a verb of one that works on a queue.
func of(f func(*queue, []string) any) verb {
	return func(s *Store, keys, args []string, at time.Time) any { return f(newQueue(s, keys, args, at), args[5:]) }
}

var verbs = map[string]verb{
	"enqueue": enqueue, "enqueue_once": enqueueOnce, "enqueue_unique": enqueueUnique, "rouse": rouse, "stage": stage, "commit": commit, "haul": haul, "pause": pause, "join": join,
	"register": register, "enlist": enlist, "unlist": unlist, "delist": delist,
	"step": of(step), "beat": of(beat), "sweep": of(sweep), "leave": of(leave), "fail": of(fail),
	"put": of(put), "remove": of(remove), "cancel": of(cancel), "cancel_key": of(cancelKey),
	"requeue": of(requeue), "resume": of(resume), "delete": of(deleteQueue),
	"check": of(check), "explain": of(explain),
}

// Serve starts a server on a free port.
func Serve() (*Server, error) {
	door, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{door: door, subscribers: map[string][]*server.Peer{}, scripts: map[string]loaded{}}
	s.store = &Store{keys: map[string]*value{}, publish: s.publish, listening: func(channel string) int { return len(s.subscribers[channel]) }}
	door.SetPreHook(func(p *server.Peer, name string, args ...string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.serve(p, strings.ToUpper(name), args)
		return true
	})
	return s, nil
}

// URL is where the server listens.
func (s *Server) URL() string { return "redis://" + s.door.Addr().String() }

// Close ends it.
func (s *Server) Close() { s.door.Close() }

func (s *Server) publish(channel, message string) int {
	for _, p := range s.subscribers[channel] {
		p.Block(func(w *server.Writer) {
			w.WritePushLen(3)
			w.WriteBulk("message")
			w.WriteBulk(channel)
			w.WriteBulk(message)
			w.Flush()
		})
	}
	return len(s.subscribers[channel])
}

func (s *Server) serve(p *server.Peer, name string, args []string) {
	switch name {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		s.listen(p, strings.ToLower(name), args)
		return
	}
	var reply any
	func() {
		defer func() {
			if r := recover(); r != nil {
				refused, ok := r.(Refusal)
				if !ok {
					panic(r)
				}
				reply = refused
			}
		}()
		reply = s.do(name, args)
	}()
	write(p, reply)
}

func (s *Server) listen(p *server.Peer, kind string, channels []string) {
	for i, c := range channels {
		others := slices.DeleteFunc(slices.Clone(s.subscribers[c]), func(o *server.Peer) bool { return o == p })
		if kind == "subscribe" {
			others = append(others, p)
			p.OnDisconnect(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.subscribers[c] = slices.DeleteFunc(s.subscribers[c], func(o *server.Peer) bool { return o == p })
			})
		}
		s.subscribers[c] = others
		p.Block(func(w *server.Writer) {
			w.WritePushLen(3)
			w.WriteBulk(kind)
			w.WriteBulk(c)
			w.WriteInt(i + 1)
		})
	}
}

// A Status is a simple string.
type Status string

func write(p *server.Peer, reply any) {
	switch r := reply.(type) {
	case nil:
		p.WriteNull()
	case Status:
		p.WriteInline(string(r))
	case Refusal:
		p.WriteError(string(r))
	case int:
		p.WriteInt(r)
	case int64:
		p.WriteInt(int(r))
	case string:
		p.WriteBulk(r)
	case []any:
		p.WriteLen(len(r))
		for _, v := range r {
			write(p, v)
		}
	}
}

var (
	headers  = regexp.MustCompile(`(?m)^-- (\w+): `)
	standing = regexp.MustCompile(`local time = \{ '(\d+)', '(\d+)' \}`)
)

// load reads the verb of a script off the header of its last file.
func (s *Server) load(source string) string {
	var l loaded
	for _, m := range headers.FindAllStringSubmatch(source, -1) {
		if verbs[m[1]] != nil {
			l.verb = m[1]
		}
	}
	if m := standing.FindStringSubmatch(source); m != nil {
		seconds, _ := strconv.ParseInt(m[1], 10, 64)
		micros, _ := strconv.ParseInt(m[2], 10, 64)
		l.still = time.UnixMicro(seconds*1_000_000 + micros)
	}
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	s.scripts[sha] = l
	return sha
}

func (s *Server) eval(sha string, args []string) any {
	l, ok := s.scripts[sha]
	if !ok {
		return Refusal("NOSCRIPT No matching script. Please use EVAL.")
	}
	f := verbs[l.verb]
	if f == nil {
		return Refusal("ERR the model does not know this script")
	}
	n, _ := strconv.Atoi(args[0])
	at := time.Now()
	if !l.still.IsZero() {
		at = l.still
	}
	return f(s.store, args[1:1+n], args[1+n:], at)
}

// do carries out a script or a plain command.
func (s *Server) do(name string, args []string) any {
	k := s.store
	switch name {
	case "EVAL":
		return s.eval(s.load(args[0]), args[1:])
	case "EVALSHA":
		return s.eval(args[0], args[1:])
	case "PING":
		return Status("PONG")
	case "TIME":
		us := time.Now().UnixMicro()
		return []any{text(us / 1e6), text(us % 1e6)}
	case "PUBLISH":
		return s.publish(args[0], args[1])
	case "SCAN":
		var all []any
		for _, key := range slices.Sorted(maps.Keys(k.keys)) {
			if ok, _ := path.Match(args[2], key); k.exists(key) && (ok || strings.HasPrefix(key, strings.TrimSuffix(args[2], "*"))) {
				all = append(all, key)
			}
		}
		return []any{"0", append([]any{}, all...)}
	case "DEL", "UNLINK":
		n := 0
		for _, key := range args {
			n += bit(k.exists(key))
			k.del(key)
		}
		return n
	}
	return s.onKey(name, args[0], args[1:])
}

// onKey carries out a command on one key.
func (s *Server) onKey(name, key string, args []string) any {
	k := s.store
	switch name {
	case "TYPE":
		if v := k.at(key, ""); v != nil {
			return Status(v.kind)
		}
		return Status("none")
	case "EXISTS":
		return bit(k.exists(key))
	case "PTTL":
		switch v := k.at(key, ""); {
		case v == nil:
			return -2
		case v.expires.IsZero():
			return -1
		default:
			return time.Until(v.expires).Milliseconds()
		}
	case "PEXPIRE":
		k.expire(key, number(args[0]))
		return bit(k.exists(key))
	case "PERSIST":
		return bit(k.persist(key))
	case "SET":
		k.put(key, args[0])
		return Status("OK")
	case "GET":
		if v, ok := k.get(key); ok {
			return v
		}
		return nil
	case "LPUSH":
		k.push(key, args...)
		return k.length(key)
	case "RPUSH":
		for _, a := range args {
			k.pushFront(key, a)
		}
		return k.length(key)
	case "RPOP":
		if v, ok := k.popFront(key); ok {
			return v
		}
		return nil
	case "LPOP":
		items := k.items(key)
		if len(items) == 0 {
			return nil
		}
		k.change(key, "list", func(v *value) { v.list = v.list[:len(v.list)-1] })
		return items[len(items)-1]
	case "LREM":
		n := k.length(key)
		k.change(key, "list", func(v *value) {
			v.list = slices.DeleteFunc(slices.Clone(v.list), func(item string) bool { return item == args[1] })
		})
		return n - k.length(key)
	case "LLEN":
		return k.length(key)
	case "LTRIM": // from the back, which is the head in Redis
		from, to := int(number(args[0])), int(number(args[1]))
		k.change(key, "list", func(v *value) {
			n := len(v.list)
			v.list = slices.Clone(v.list[max(n-1-to, 0):max(n-from, 0)])
		})
		return Status("OK")
	case "LRANGE":
		return words(slices.Backward(k.items(key)))
	case "HSET":
		n := 0
		for i := 0; i < len(args); i += 2 {
			if _, ok := k.field(key, args[i]); !ok {
				n++
			}
			k.set(key, args[i], args[i+1])
		}
		return n
	case "HGET":
		if f, ok := k.field(key, args[0]); ok {
			return f
		}
		return nil
	case "HEXISTS":
		_, ok := k.field(key, args[0])
		return bit(ok)
	case "HDEL":
		return k.unset(key, args...)
	case "HLEN":
		return k.fields(key)
	case "HGETALL":
		all := []any{}
		if v := k.at(key, "hash"); v != nil {
			for name, f := range v.hash {
				all = append(all, name, f)
			}
		}
		return all
	case "ZADD":
		n := k.size(key)
		for i := 0; i < len(args); i += 2 {
			f, _ := strconv.ParseFloat(args[i], 64)
			k.make(key, "zset").zset[args[i+1]] = f
		}
		return k.size(key) - n
	case "ZREM":
		n := k.size(key)
		k.remove(key, args...)
		return n - k.size(key)
	case "ZCARD":
		return k.size(key)
	case "ZCOUNT":
		low, _ := strconv.ParseFloat(args[0], 64)
		high, _ := strconv.ParseFloat(args[1], 64)
		return len(k.between(key, low, high))
	case "ZSCORE":
		if f, ok := k.score(key, args[0]); ok {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return nil
	case "ZRANGE":
		all := []any{}
		for _, r := range k.all(key) {
			all = append(all, r.name, strconv.FormatFloat(r.score, 'f', -1, 64))
		}
		return all
	case "SADD":
		for _, a := range args {
			k.make(key, "set").set[a] = true
		}
		return len(args)
	case "SISMEMBER":
		v := k.at(key, "set")
		return bit(v != nil && v.set[args[0]])
	case "SMEMBERS":
		all := []any{}
		if v := k.at(key, "set"); v != nil {
			for _, m := range slices.Sorted(maps.Keys(v.set)) {
				all = append(all, m)
			}
		}
		return all
	}
	return Refusal("ERR unknown command '" + name + "'")
}

func words(items func(func(int, string) bool)) []any {
	all := []any{}
	for _, item := range items {
		all = append(all, item)
	}
	return all
}
