package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// What becomes due starts at once on peers that have nothing to do, and wakes
// only one of them; so does what is put before it.
func TestClock(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	const peers = 4
	lease := 30 * time.Second // no beat helps
	type start struct {
		payload string
		late    time.Duration
	}
	started := make(chan start, 100)
	due := time.Now().Add(2 * time.Second)
	for range peers {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease})
		p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
			started <- start{string(t.Payload), time.Since(due)}
			return nil
		}, &worqr.HandleOptions{Concurrency: 2})
		run(t, p)
	}
	q := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	put(t, q, "far", "far", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	put(t, q, "b", "b", &worqr.PutOptions{At: due}) // re-arms the clock
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	c := redistest.Dial(t, server.URL())
	before := scriptCalls(t, c)
	got := receive(t, started, 1)[0]
	is.Equal(got.payload, "b")
	is.True(got.late >= 0)
	is.True(got.late < 2*time.Second) // no beat was waited for
	eventually(t, "all are idle", func() bool {
		s := stats(t, q)
		return s.IdleWorkers == peers && s.Running == 0
	})
	steps := scriptCalls(t, c) - before
	if steps > 2*peers {
		t.Errorf("%d scripts were called for one task that came due", steps)
	}
	is.Equal(stats(t, q).Scheduled, 1)
	is.True(sure(q.RemoveKey(t.Context(), "far"))(t))
}

// Whoever keeps the time hands it over when it gets busy, when it is killed,
// fails or leaves.
func TestClockIsHandedOver(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"busy", "shut down", "failed", "paused"} {
		t.Run(how, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			started, release := make(chan string, 10), make(chan struct{})
			var peers []*worqr.Peer
			stops := map[string]func(){}
			for range 2 {
				p := open(t, worqr.Options{Prefix: prefix, Lease: 60 * time.Second, Drain: -1})
				p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
					started <- string(t.Payload)
					if string(t.Payload) == "holds" {
						select {
						case <-release:
						case <-ctx.Done():
						}
					}
					return nil
				}, &worqr.HandleOptions{Concurrency: 1})
				stops[p.WorkerID()] = run(t, p)
				peers = append(peers, p)
			}
			q := peers[0].Queue("q")
			eventually(t, "both are idle", func() bool { return stats(t, q).IdleWorkers == 2 })
			put(t, q, "key", "due", &worqr.PutOptions{At: time.Now().Add(1500 * time.Millisecond)})
			c := redistest.Conn(t)
			keeper := ""
			eventually(t, "somebody keeps the time", func() bool {
				last := sure(redis.Strings(c.Do("ZRANGE", prefix+":idle:{q}", -1, -1, "WITHSCORES")))(t)
				if len(last) == 2 && stats(t, q).IdleWorkers == 2 {
					score, err := redis.Float64(last[1], nil)
					if err != nil {
						sure(fmt.Sscan(last[1], &score))(t)
					}
					if score >= 1<<43 {
						keeper = last[0]
					}
				}
				return keeper != ""
			})
			other := peers[0]
			if other.WorkerID() == keeper {
				other = peers[1]
			}
			switch how {
			case "busy": // the other takes the first task, the keeper the second
				enqueue(t, q, "holds")
				is.Equal(receive(t, started, 1), []string{"holds"})
				is.Equal(other.Stats().RunningHandlers, int64(1))
				enqueue(t, q, "holds")
				is.Equal(receive(t, started, 1), []string{"holds"})
				release <- struct{}{} // one of them is idle again
			case "shut down":
				stops[keeper]()
			case "failed":
				sure(other.FailWorker(t.Context(), keeper))(t)
			case "paused":
				is.NoErr(q.Pause(t.Context()))
				eventually(t, "it is due", func() bool { _, err := q.Peek(t.Context()); return err == nil })
				is.Equal(len(started), 0)
				is.NoErr(q.Resume(t.Context()))
			}
			since := time.Now()
			is.Equal(receive(t, started, 1), []string{"due"})
			is.True(time.Since(since) < 15*time.Second) // not by a beat
			close(release)
		})
	}
}

// Who is idle hears of a time that comes up while others do something else: what
// was put during a pause, and what was blocked by a task that others end.
func TestClockHearsOfAll(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"resume", "finish", "fail", "retry", "requeue"} {
		t.Run(how, func(t *testing.T) {
			is := parallel(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			hand := working(t, open(t, worqr.Options{Prefix: prefix, Lease: time.Minute}), "q")
			put(t, hand, "key", "held", nil)
			task := take(t, hand)
			p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
			got := make(chan string, 10)
			q.Handle(tell(got), nil)
			run(t, p)
			eventually(t, "it is idle", func() bool { return stats(t, q).IdleWorkers == 1 })
			soon := &worqr.PutOptions{At: time.Now().Add(700 * time.Millisecond)}
			want := "soon"
			switch how {
			case "resume":
				is.NoErr(q.Pause(ctx))
				put(t, q, "other", "soon", soon)
				is.NoErr(q.Resume(ctx))
			case "finish":
				put(t, q, "key", "soon", soon)
				is.NoErr(task.Finish(ctx))
			case "fail":
				put(t, q, "key", "soon", soon)
				is.NoErr(task.Fail(ctx, errors.New("no")))
			case "retry":
				is.NoErr(task.Retry(ctx, 700*time.Millisecond))
				want = "held"
			case "requeue":
				is.NoErr(task.Fail(ctx, errors.New("no")))
				sure(q.RequeueAllFailed(ctx))(t)
				want = "held"
			}
			since := time.Now()
			is.Equal(receive(t, got, 1), []string{want})
			is.True(time.Since(since) < 15*time.Second) // not by a beat
		})
	}
}

// Whoever keeps the time hears of what is planned also while something that is
// due stands before it, which nobody may start yet.
func TestClockBehindWhatIsDue(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	accused(t, redistest.URL(), prefix, "q", 2)
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour}) // no beat helps
	q := p.Queue("q")
	started, release := make(chan string, 10), make(chan struct{})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- t.Key
		if t.Crashes > 0 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	defer close(release)
	receive(t, started, 1) // the other one is due, and left until this has ended
	idle(t, q, 1)
	is.Equal(stats(t, q).Scheduled, 1)
	put(t, q, "soon", "soon", &worqr.PutOptions{At: time.Now().Add(300 * time.Millisecond)})
	is.Equal(receive(t, started, 1), []string{"soon"})
}
