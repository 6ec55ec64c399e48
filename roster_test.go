package worqr_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that was failed does not put its old id back on the list of peers,
// where nobody would remove it if it then died.
func TestFailedWorkerStaysOffTheList(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond})
	q := working(t, p, "q")
	old := p.ID()
	tap := redistest.Dial(t, server.URL())
	_, err := tap.Do("MONITOR")
	is.NoErr(err)
	_, err = openAt(t, server.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), old)
	is.NoErr(err)
	eventually(t, "the worker is back", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Workers == 1 && p.ID() != old
	})
	_, err = redistest.Dial(t, server.URL()).Do("ECHO", "over")
	is.NoErr(err)
	for {
		line, err := redis.String(tap.Receive())
		is.NoErr(err)
		if strings.Contains(line, `"SADD" "p:workers" "`+old+`"`) {
			t.Fatal("the worker has put its old id back: ", line)
		}
		if strings.Contains(line, `"over"`) {
			return
		}
	}
}

// What could not be written when a queue was joined is written with a later beat.
func TestRegistrationIsCompleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	is.NoErr(p.StartWorker(t.Context()))
	lists := []string{prefix + ":workers", prefix + ":registry"}
	for _, key := range lists {
		_, err := conn.Do("SET", key, "of another type")
		is.NoErr(err)
	}
	is.True(p.Queue("q").StartWork(t.Context()) == nil) // neither is needed to work
	_, err := conn.Do("DEL", lists[0], lists[1])
	is.NoErr(err)
	for i, member := range []string{p.ID(), "q"} {
		eventually(t, member+" is listed", func() bool {
			there, err := redis.Bool(conn.Do("SISMEMBER", lists[i], member))
			return err == nil && there
		})
	}
}
