package spec

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/worqr/worqr/internal/store"
)

// A Server is a miniredis that runs scripts as the specification of their verbs.
type Server struct {
	*Memory

	mu      sync.Mutex        // one script at a time; protects the field below
	scripts map[string]loaded // by digest
}

// A loaded script has its verb; its clock may be stopped.
type loaded struct {
	verb  string
	still time.Time
}

type verb func(s *Store, c store.Call, at time.Time) any

// of makes a verb of a function on a queue.
func of(f func(*queue, store.Call) any) verb {
	return func(s *Store, c store.Call, at time.Time) any { return f(newQueue(s, c.Keys, c.Args, at), c) }
}

// verbs are all of them. Each file adds its own.
var verbs = map[string]verb{}

// Serve starts a server on a free port.
func Serve() (*Server, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	s := &Server{Memory: &Memory{Miniredis: m}, scripts: map[string]loaded{}}
	m.Server().SetPreHook(func(p *server.Peer, name string, args ...string) bool {
		if name != "EVAL" && name != "EVALSHA" || args[1] == "0" {
			return false // every verb has keys; a script without is the test's own
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		sha := args[0]
		if name == "EVAL" {
			sha = s.load(sha)
		}
		Write(p, s.eval(sha, args[1:]))
		return true
	})
	return s, nil
}

// URL returns where the server listens.
func (s *Server) URL() string { return "redis://" + s.Addr() }

var (
	headers  = regexp.MustCompile(`(?m)^-- (\w+): `)
	standing = regexp.MustCompile(`local time = \{ '(\d+)', '(\d+)' \}`)
)

// load stores a script, and returns its digest. The header of its last file has its verb.
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
	sha := digest(source)
	s.scripts[sha] = l
	return sha
}

// eval runs a script in a store that holds the keys here under its prefix. Afterwards it copies the changes
// back.
func (s *Server) eval(sha string, args []string) any {
	l, ok := s.scripts[sha]
	if !ok {
		return Refusal("NOSCRIPT No matching script. Please use EVAL.")
	}
	n, _ := strconv.Atoi(args[0])
	keys, at := args[1:1+n], time.Now()
	if !l.still.IsZero() {
		at = l.still
	}
	is := New()
	is.Publish, is.Listening = s.Publish, func(channel string) int { return s.PubSubNumSub(channel)[channel] }
	prefix, _, _ := strings.Cut(keys[0], ":")
	for _, key := range s.Keys() {
		if strings.HasPrefix(key, prefix+":") {
			is.Set(key, s.Get(key))
			if ttl := s.TTL(key); ttl > 0 {
				is.keys[key].expires = time.Now().Add(ttl)
			}
		}
	}
	was := is.Clone()
	reply := is.Call(l.verb, keys, args[1+n:], at)
	for key, v := range is.keys {
		if reflect.DeepEqual(v, was.keys[key]) {
			continue
		}
		s.Del(key)
		ttl := time.Duration(0)
		if !v.expires.IsZero() {
			ttl = time.Until(v.expires)
		}
		s.Set(key, is.Get(key), ttl)
	}
	for key := range was.keys {
		if is.keys[key] == nil {
			s.Del(key)
		}
	}
	return reply
}
