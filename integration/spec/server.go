package spec

import (
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/worqr/worqr/internal/store"
)

// A Server is a store behind the protocol of Redis: it answers to scripts by what
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

type verb func(s *Store, c store.Call, at time.Time) any

// of makes a verb of one that works on a queue.
func of(f func(*queue, store.Call) any) verb {
	return func(s *Store, c store.Call, at time.Time) any { return f(newQueue(s, c.Keys, c.Args, at), c) }
}

// verbs are all there are. Each file adds its own.
var verbs = map[string]verb{}

// Serve starts a server on a free port.
func Serve() (*Server, error) {
	door, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{door: door, subscribers: map[string][]*server.Peer{}, scripts: map[string]loaded{}}
	s.store = New()
	s.store.Publish, s.store.Listening = s.publish, func(channel string) int { return len(s.subscribers[channel]) }
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
	Write(p, refusing(func() any { return s.do(name, args) }))
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
		return Refusal("ERR the specification does not know this script")
	}
	n, _ := strconv.Atoi(args[0])
	at := time.Now()
	if !l.still.IsZero() {
		at = l.still
	}
	return f(s.store, store.Call{Verb: store.VerbOf(l.verb), Keys: args[1 : 1+n], Args: args[1+n:]}, at)
}

// do carries out a script or a plain command.
func (s *Server) do(name string, args []string) any {
	switch name {
	case "EVAL":
		return s.eval(s.load(args[0]), args[1:])
	case "EVALSHA":
		return s.eval(args[0], args[1:])
	}
	return s.store.do(name, args)
}
