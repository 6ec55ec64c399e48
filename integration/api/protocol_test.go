package api

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A peer registers its protocol version. A peer that the fleet refuses starts nothing.
func TestProtocol(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix, Name: "first"})
	q := working(t, p, "q")
	for w := range each(t, p.Workers(t.Context())) {
		is.Equal(w.Protocol, store.Ours.Newest)
	}
	is.Equal(sure(redis.String(conn.Do("GET", prefix+":protocol")))(t), "2:2")

	redistest.Do(t, conn, "SET", prefix+":protocol", "4:3") // as future peers do
	said := &journal{}
	late := open(t, worqr.Options{Prefix: prefix, Logger: said.Logger()})
	before := redistest.Keys(t, conn, prefix)
	err := late.StartWorker(t.Context())
	is.True(is_(err, worqr.ErrProtocol))
	is.True(strings.Contains(err.Error(), "they speak protocol 4 and need every peer to speak 3 or later, but this program speaks 2; upgrade this program"))
	is.Equal(strings.Count(err.Error(), "worqr: "), 1)
	late.Queue("other").Handle(tell(make(chan string, 1)), nil)
	is.True(is_(late.Run(t.Context()), worqr.ErrProtocol)) // returns at once
	is.Equal(redistest.Keys(t, conn, prefix), before)

	redistest.Do(t, conn, "SET", prefix+":protocol", "1:0") // as peers of the previous protocol do
	err = late.StartWorker(t.Context())
	is.True(is_(err, worqr.ErrProtocol))
	is.True(strings.Contains(err.Error(), "they speak protocol 1, and this program works with 2 or later"))
	is.Equal(redistest.Keys(t, conn, prefix), before)

	enqueue(t, q, "a") // a peer that already serves goes on
	is.NoErr(take(t, q).Finish(t.Context()))
}

// A peer that was evicted, and that the fleet then refuses, stays out, runs nothing and logs the
// reason. It comes back when it may.
func TestProtocolAfterEviction(t *testing.T) {
	is := parallel(t)
	prefix, conn, said := redistest.Prefix(t), redistest.Conn(t), &journal{}
	p := open(t, worqr.Options{Prefix: prefix, Lease: 3 * time.Second, Logger: said.Logger()}) // a join has a third of it
	q := working(t, p, "q")
	enqueue(t, q, "a")
	task := take(t, q)
	before := p.WorkerID()

	redistest.Do(t, conn, "SET", prefix+":protocol", "4:3")
	sure(p.FailWorker(t.Context(), before))(t)
	<-task.Context().Done()
	eventually(t, "it says why", func() bool { return len(said.Lines("they speak protocol 4")) > 0 })
	is.True(is_(q.StartWork(t.Context()), worqr.ErrProtocol))
	is.Equal(len(redistest.Keys(t, conn, prefix+":worker:")), 0)
	is.Equal(waiting(t, q), []string{"a"})
	is.Equal(len(said.Lines("they speak protocol 4")), 1) // however often it tries

	redistest.Do(t, conn, "DEL", prefix+":protocol")
	eventually(t, "it is back", func() bool { return len(said.Lines("serving again under the new id")) > 0 })
	is.True(p.WorkerID() != before)
	is.NoErr(take(t, q).Finish(t.Context()))
}

// A peer starts without the check if its ACL rules are older and don't have the key, or if the key
// holds something else.
func TestProtocolUnknown(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	rule := slices.DeleteFunc(redistest.Rule(t, "worker", ruled), func(w string) bool { return strings.Contains(w, "protocol") })
	redistest.Do(t, c, "ACL", redis.Args{"SETUSER", "old"}.AddFlat(rule)...)
	for _, url := range []string{"redis://old:SECRET@" + server.Addr(), server.URL()} {
		said := &journal{}
		p := openAt(t, url, worqr.Options{Prefix: ruled, Logger: said.Logger()})
		q := working(t, p, letters)
		enqueue(t, q, "a")
		is.NoErr(take(t, q).Finish(t.Context()))
		is.Equal(len(said.Lines("WARN")), 0)
		is.NoErr(p.Close())
		redistest.Do(t, c, "ACL", "LOG", "RESET")
		redistest.Do(t, c, "DEL", ruled+":protocol")
		redistest.Do(t, c, "LPUSH", ruled+":protocol", "foreign")
	}
}
