package worqr_test

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that does not know whether it has joined joins again, under its id. When it
// may have been failed meanwhile, that id is over, and it comes back under another.
func TestUncertainJoin(t *testing.T) {
	t.Parallel()
	for name, failed := range map[string]bool{"still there": false, "failed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr())
			p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
			working(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}), "other") // so that Redis knows the script
			is.NoErr(p.StartWorker(t.Context()))
			before, q := p.ID(), p.Queue("q")
			lost := link.LoseRepliesTo("p:suspects:{q}", 1)
			is.True(is_(q.StartWork(t.Context()), worqr.ErrUnknown))
			<-lost
			c := redistest.Dial(t, server.URL())
			members, err := redis.Strings(c.Do("ZRANGE", "p:workers:{q}", 0, -1))
			is.NoErr(err)
			is.Equal(members, []string{before}) // it has joined
			if failed {
				_, err := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).FailWorker(t.Context(), before)
				is.NoErr(err)
				is.True(is_(q.StartWork(t.Context()), worqr.ErrEvicted))
			}
			eventually(t, "it has joined", func() bool { return q.StartWork(t.Context()) == nil })
			is.Equal(p.ID() != before, failed)
			members, err = redis.Strings(c.Do("ZRANGE", "p:workers:{q}", 0, -1))
			is.NoErr(err)
			is.Equal(members, []string{p.ID()})
		})
	}
}
