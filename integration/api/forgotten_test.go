package api

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// If Redis comes back without its last acknowledged writes, a peer notices that with its next
// round or beat. It reports lost writes only if there were any.
func TestLostWritesAreReported(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a round", "a beat"} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			prefix, conn := redistest.Prefix(t), redistest.Conn(t)
			said := &journal{}
			p := open(t, worqr.Options{Prefix: prefix, Lease: 3 * time.Second, Logger: said.Logger()})
			q := working(t, p, "q")
			work := func() {
				enqueue(t, q, "a")
				is.NoErr(sure(q.StartTask(t.Context()))(t).Finish(t.Context()))
			}
			for range 5 {
				work()
			}
			is.Equal(len(said.Lines("lost writes")), 0)
			is.Equal(p.Stats().LostWrites, int64(0))
			events, others := listen(t, p, "q"), listen(t, p, "other")
			defer func() { is.Equal(len(others), 0) }()

			eventually(t, "the peer says so", func() bool {
				if name == "a round" {
					redistest.Do(t, conn, "HSET", prefix+":rounds:{q}", p.WorkerID(), 1)
					work()
				} else {
					redistest.Do(t, conn, "ZADD", prefix+":workers:{q}", "XX", 1, p.WorkerID())
				}
				return len(said.Lines("Redis has lost writes")) > 0
			})
			is.True(p.Stats().LostWrites > 0)
			lost := until(t, events, inspect.EventLost)
			is.Equal(lost.Queue, "q")
			is.True(lost.Evidence != "")
		})
	}
}

// A worker that Redis no longer knows reports whether it was evicted or Redis was emptied: in the
// second case, Redis has also forgotten a token that the worker has seen.
func TestEmptiedRedisIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		befalls func(t *testing.T, s *redistest.Server, p *worqr.Peer)
		lost    bool
	}{
		"emptied": {func(t *testing.T, s *redistest.Server, _ *worqr.Peer) { has("FLUSHALL")(t, s, nil) }, true},
		"restarted": {func(t *testing.T, s *redistest.Server, _ *worqr.Peer) {
			s.Kill()
			s.Restart(t)
		}, true},
		"older tokens": {func(t *testing.T, s *redistest.Server, p *worqr.Peer) {
			has("ZREM p:workers:{q} "+p.WorkerID(), "HSET p:state:{q} token 2")(t, s, nil)
		}, true},
		"its own token": {func(t *testing.T, s *redistest.Server, p *worqr.Peer) {
			has("ZREM p:workers:{q} "+p.WorkerID())(t, s, nil)
		}, false},
		"no token at all": {func(t *testing.T, s *redistest.Server, p *worqr.Peer) {
			has("ZREM p:workers:{q} "+p.WorkerID(), "HSET p:state:{q} token foreign")(t, s, nil)
		}, false},
		"evicted": {func(t *testing.T, s *redistest.Server, p *worqr.Peer) {
			sure(openAt(t, s.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), p.WorkerID()))(t)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			server, said := redistest.Start(t), &journal{}
			p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Second, Logger: said.Logger()})
			q := working(t, p, "q")
			working(t, p, "idle")
			enqueue(t, q, "a", "b", "c")
			for range 3 {
				is.NoErr(take(t, q).Finish(t.Context()))
			}
			before := p.WorkerID()
			c.befalls(t, server, p)
			look := redistest.Dial(t, server.URL())
			eventually(t, "it has come back", func() bool {
				id := p.WorkerID()
				there, err := redis.Bool(look.Do("EXISTS", "p:worker:"+id))
				return err == nil && there && id != before
			})
			lost := 0
			if c.lost {
				lost = 1
			}
			if name != "no token at all" { // no worker can join that queue
				eventually(t, "it says that it serves again", func() bool { return len(said.Lines("serving again under the new id")) == 1 })
			}
			is.Equal(len(said.Lines("worker="+before+" new="+p.WorkerID())), 1)
			is.Equal(p.Stats().LostWrites > 0, c.lost)
			eventually(t, "it says what is lost", func() bool { return len(said.Lines("Redis has lost writes")) >= lost })
			is.Equal(len(said.Lines("Redis has lost writes")), lost) // once, however many queues there are
			is.Equal(p.Stats().TimesEvicted, int64(1))
		})
	}
}
