package worqr_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

// lines are those that contain a text.
func (j *journal) lines(with string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buf.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A peer does not work where a full Redis would evict tasks, and warns where it
// might lose something else.
func TestEvictionPolicy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := redistest.Dial(t, server.URL())
	for _, c := range []struct {
		policy, maxmemory string
		refused, warned   bool
	}{
		{"noeviction", "0", false, false},
		{"noeviction", "100mb", false, false},
		{"allkeys-lru", "100mb", true, false},
		{"allkeys-lfu", "100mb", true, false},
		{"allkeys-random", "100mb", true, false},
		{"allkeys-lru", "0", false, true},
		{"volatile-lru", "100mb", false, true},
		{"volatile-ttl", "0", false, true},
	} {
		t.Run(c.policy+" "+c.maxmemory, func(t *testing.T) { // one after the other: the server is shared
			is := is.New(t)
			_, err := conn.Do("CONFIG", "SET", "maxmemory-policy", c.policy, "maxmemory", c.maxmemory)
			is.NoErr(err)
			var log journal
			peer := openAt(t, server.URL(), worqr.Options{Prefix: "p", Logger: log.logger()})
			q := peer.Queue("q")
			is.NoErr(q.Enqueue(t.Context(), []byte("a"))) // who only enqueues is not asked
			q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)

			for range 2 {
				err = peer.StartWorker(t.Context())
				is.Equal(errors.Is(err, worqr.ErrPolicy), c.refused)
				is.True(c.refused || err == nil)
				if !c.refused {
					is.NoErr(peer.StopWorker(t.Context()))
				}
			}
			want := 0
			if c.warned {
				want = 1 // however often it starts
			}
			is.Equal(len(log.lines("level=WARN")), want)
			is.Equal(len(log.lines("maxmemory-policy="+c.policy)), want)
			if c.refused {
				is.True(strings.Contains(err.Error(), "set maxmemory-policy to noeviction"))
				is.True(strings.Contains(err.Error(), c.policy))
				err = peer.Run(t.Context()) // returns at once, and leaves nothing
				is.True(errors.Is(err, worqr.ErrPolicy))
				for w, err := range peer.Workers(t.Context()) {
					t.Errorf("there is a worker: %v %v", w, err)
				}
			}
		})
	}
}

// Who may not ask says nothing.
func TestEvictionPolicyForbidden(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	conn := redistest.Dial(t, server.URL())
	_, err := conn.Do("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "&*", "+@all", "-info", "-config")
	is.NoErr(err)
	var log journal
	url := strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1)
	peer := openAt(t, url, worqr.Options{Logger: log.logger(), Prefix: "p"})
	is.NoErr(peer.StartWorker(t.Context()))
	is.NoErr(peer.StopWorker(t.Context()))
	is.Equal(len(log.lines("level=WARN")), 0)
	is.Equal(len(log.lines("the eviction policy cannot be read")), 1)
}
