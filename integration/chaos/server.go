package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A durability is what a server keeps when it is killed.
type durability string

// The classes.
const (
	always   durability = "always"   // AOF, fsync with every write
	everysec durability = "everysec" // AOF, fsync once a second
	snapshot durability = "rdb"      // an RDB file every second in which something changed
	nothing  durability = "none"
)

var durable = map[durability][]string{
	always:   {"--appendonly", "yes", "--appendfsync", "always", "--save", ""},
	everysec: {"--appendonly", "yes", "--appendfsync", "everysec", "--save", ""},
	snapshot: {"--appendonly", "no", "--save", "1 1"},
	nothing:  {"--appendonly", "no", "--save", ""},
}

// ordered reports whether the server's own history is there to be read: what
// is killed under everysec loses the end of it.
func (d durability) ordered() bool { return d == always || d == everysec }

// A server is the Redis of one arena.
type server struct {
	*redistest.Server
	t       testing.TB
	dir     string
	slowest slowCall
}

// A slowCall is a script that took Redis long.
type slowCall struct {
	took time.Duration
	call string
}

// startServer starts one that keeps its data in a directory. With an authority it wants certificates.
func startServer(t testing.TB, dir string, authority *redistest.Authority, args []string) *server {
	s := &server{t: t, dir: dir}
	peertest.Must(t, os.MkdirAll(dir, 0o700))
	args = slices.Concat([]string{
		"--dir", dir, "--protected-mode", "no", "--slowlog-log-slower-than", "200", "--slowlog-max-len", "1024",
		"--auto-aof-rewrite-percentage", "0", "--aof-load-truncated", "yes", // one history, in one file
	}, args)
	if authority != nil {
		s.Server = redistest.StartTLS(t, authority, []string{"127.0.0.1"}, args...)
	} else {
		s.Server = redistest.Start(t, args...)
	}
	return s
}

// do makes calls on a connection of the driver's own, past all links, and returns the reply to the last.
func (s *server) do(calls ...[]any) (reply any) {
	c := redistest.Sure(redis.Dial("unix", s.Socket(), redis.DialReadTimeout(time.Minute)))(s.t)
	defer func() { _ = c.Close() }() // it has nothing to lose
	for _, call := range calls {
		reply = redistest.Do(s.t, c, call[0].(string), call[1:]...)
	}
	return reply
}

// end ends the process once all of its history is written: a killed one may not have written that of
// the last two seconds.
func (s *server) end() {
	_, _ = s.Call("SHUTDOWN", "NOSAVE") // it is gone before it could answer
	s.Kill()
}

// written is how many bytes of its history the server has written.
func (s *server) written() int64 {
	paths := s.history()
	if len(paths) == 0 {
		return 0
	}
	return redistest.Sure(os.Stat(paths[len(paths)-1]))(s.t).Size()
}

// forget has a killed server come back with no more than so many bytes of its
// history, as after a power failure: what is not synced is gone.
func (s *server) forget(from int64) {
	if paths := s.history(); len(paths) > 0 {
		peertest.Must(s.t, os.Truncate(paths[len(paths)-1], from))
	}
}

// note keeps what the server has to say of scripts and of what it has denied, which ends with the process.
func (s *server) note() {
	s.CheckDenials(s.t)
	for _, entry := range redistest.Sure(redis.Values(s.do([]any{"SLOWLOG", "GET", -1}), nil))(s.t) {
		fields := redistest.Sure(redis.Values(entry, nil))(s.t)
		micros := redistest.Sure(redis.Int64(fields[2], nil))(s.t)
		call := redistest.Sure(redis.Strings(fields[3], nil))(s.t)
		took := time.Duration(micros) * time.Microsecond
		if len(call) > 1 && (call[0] == "EVALSHA" || call[0] == "EVAL") && took > s.slowest.took {
			s.slowest = slowCall{took, scriptName(call[0], call[1])}
		}
	}
}

// scriptName is the verb of a call to a script. Where Redis did not have it yet it
// was sent in full, of which SLOWLOG keeps too little to know it by.
func scriptName(call, digest string) string {
	if verb := store.NameOf(digest); verb != "" && call == "EVALSHA" {
		return verb
	}
	return "sent in full"
}

// history returns the paths of the AOF, oldest first, without the base, which is empty.
func (s *server) history() []string {
	paths := redistest.Sure(filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof")))(s.t)
	slices.Sort(paths)
	return paths
}
