package worqr_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A Redis that has come back without the last that it had answered is noticed, with
// the next round or the next beat, and not taken for lost otherwise.
func TestLostWritesAreReported(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a round", "a beat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix, conn := redistest.Prefix(t), redistest.Conn(t)
			said := &lines{}
			p := open(t, worqr.Options{Prefix: prefix, Lease: 900 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(said, nil))})
			q := working(t, p, "q")
			work := func() {
				enqueue(t, q, "a")
				task, err := q.StartTask(t.Context())
				is.NoErr(err)
				is.NoErr(task.Finish(t.Context()))
			}
			for range 5 {
				work()
			}
			is.True(!strings.Contains(said.all(), "lost writes"))

			eventually(t, "the peer says so", func() bool {
				if name == "a round" {
					_, err := conn.Do("HSET", prefix+":rounds:{q}", p.ID(), 1)
					is.NoErr(err)
					work()
				} else {
					_, err := conn.Do("ZADD", prefix+":workers:{q}", "XX", 1, p.ID())
					is.NoErr(err)
				}
				return strings.Contains(said.all(), "Redis has lost writes")
			})
		})
	}
}

// lines keep what a logger says.
type lines struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.Write(p)
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}
