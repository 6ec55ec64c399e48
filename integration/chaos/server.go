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

// A durability says what a server keeps when it is killed.
type durability string

// The durabilities.
const (
	always   durability = "always"   // AOF, fsync after every write
	everysec durability = "everysec" // AOF, fsync once a second
	snapshot durability = "rdb"      // an RDB file every second if something changed
	nothing  durability = "none"
)

var durable = map[durability][]string{
	always:   {"--appendonly", "yes", "--appendfsync", "always", "--save", ""},
	everysec: {"--appendonly", "yes", "--appendfsync", "everysec", "--save", ""},
	snapshot: {"--appendonly", "no", "--save", "1 1"},
	nothing:  {"--appendonly", "no", "--save", ""},
}

// ordered reports whether the server writes a history, its AOF. A server killed under everysec loses
// the end of its AOF.
func (d durability) ordered() bool { return d == always || d == everysec }

// A server is the Redis server of one arena.
type server struct {
	*redistest.Server
	t       testing.TB
	dir     string
	slowest slowCall
}

// A slowCall is a script that took long.
type slowCall struct {
	took time.Duration
	call string
}

// startServer starts a server with its data in a directory. With an authority, it requires
// certificates.
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

// do makes calls on the driver's own connection, not through a link, and returns the last reply.
func (s *server) do(calls ...[]any) (reply any) {
	c := redistest.Sure(redis.Dial("unix", s.Socket(), redis.DialReadTimeout(time.Minute)))(s.t)
	defer func() { _ = c.Close() }() // it has nothing to lose
	for _, call := range calls {
		reply = redistest.Do(s.t, c, call[0].(string), call[1:]...)
	}
	return reply
}

// end ends the process once its whole history is written. A killed one may miss the last two
// seconds.
func (s *server) end() {
	_, _ = s.Call("SHUTDOWN", "NOSAVE") // it exits before it can answer
	s.Kill()
}

// written returns how many bytes of its history the server has written.
func (s *server) written() int64 {
	paths := s.history()
	if len(paths) == 0 {
		return 0
	}
	return redistest.Sure(os.Stat(paths[len(paths)-1]))(s.t).Size()
}

// forget truncates the history of a killed server to from bytes, as a power failure does with
// unsynced writes.
func (s *server) forget(from int64) {
	if paths := s.history(); len(paths) > 0 {
		peertest.Must(s.t, os.Truncate(paths[len(paths)-1], from))
	}
}

// note saves the server's slow log, and checks for denied commands, before the process ends and
// loses them.
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

// scriptName returns the verb of a script call. If Redis didn't have the script yet, it was sent in
// full, and SLOWLOG keeps too little of it to tell which one it was.
func scriptName(call, digest string) string {
	if verb := store.NameOf(digest); verb != "" && call == "EVALSHA" {
		return verb
	}
	return "sent in full"
}

// history returns the paths of the AOF, oldest first, without the empty base.
func (s *server) history() []string {
	paths := redistest.Sure(filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof")))(s.t)
	slices.Sort(paths)
	return paths
}
