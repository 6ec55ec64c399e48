package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// punctual is a peer that reports when it starts each task, and holds the payload "hold".
func punctual(c childConfig, _ *worqr.Peer, say func(report)) actor {
	return actor{
		handler: func(ctx context.Context, t *worqr.Task) error {
			say(report{What: "start", Key: t.Key, Payload: string(t.Payload), Token: t.Token})
			if string(t.Payload) == "hold" {
				<-ctx.Done()
			}
			return nil
		},
		opts: &worqr.HandleOptions{Concurrency: c.Concurrency},
		told: func(string) {},
	}
}

// An agenda schedules tasks for three punctual peers.
type agenda struct {
	t      *testing.T
	q      *worqr.Queue
	c      childConfig
	peers  []process
	starts chan report
	due    map[string]time.Time
	got    []report
}

func newAgenda(t *testing.T, lease time.Duration) *agenda {
	t.Helper()
	prefix := redistest.Prefix(t)
	f := &agenda{
		t: t, q: open(t, worqr.Options{Prefix: prefix}).Queue("q"), starts: make(chan report, 1000), due: map[string]time.Time{},
		c: childConfig{Mode: "due", URL: redistest.URL(), Queue: "q", Prefix: prefix, Concurrency: 2, Lease: lease},
	}
	for range 3 {
		f.peers = append(f.peers, f.spawn())
	}
	idle(t, f.q, len(f.peers))
	return f
}

func (f *agenda) spawn() process { return forward(spawn(f.t, f.c), f.starts) }

// ahead schedules a task in d.
func (f *agenda) ahead(d time.Duration) {
	f.t.Helper()
	k := fmt.Sprint(len(f.due))
	f.due[k] = time.Now().Add(d).Truncate(time.Millisecond) // as Redis has it
	sure(f.q.Add(f.t.Context(), worqr.TaskSpec{Key: k, Payload: []byte(k), At: f.due[k]}))(f.t)
}

func (f *agenda) take(n int) { f.got = append(f.got, receive(f.t, f.starts, n)...) }

// check checks that the tasks from take started within bound of their time. The benchmark measures
// the typical delay.
func (f *agenda) check(what string, bound time.Duration) {
	f.t.Helper()
	for _, r := range f.got {
		if late := r.At.Sub(f.due[r.Key]); late < 0 || late > bound {
			f.t.Errorf("%s: starts %v after its time, at most %v", what, late, bound)
		}
	}
	f.got = nil
}

// An idle fleet starts scheduled tasks when they're due. Its heartbeats are ten minutes apart, so
// only timers can start tasks here, and the bound may be wide.
func TestDueOnTime(t *testing.T) {
	t.Parallel()
	const slack = 10 * time.Second
	f := newAgenda(t, 30*time.Minute)
	const n = 100
	for range n {
		f.ahead(200*time.Millisecond + rand.N(300*time.Millisecond))
	}
	f.take(n)
	f.check("a hundred at once", slack)

	for range 5 {
		f.ahead(200*time.Millisecond + rand.N(100*time.Millisecond))
		f.take(1)
	}
	f.check("one by one", slack)

	for range 5 { // each due before the previous one
		f.ahead(500 * time.Millisecond)
		f.ahead(300 * time.Millisecond)
		f.ahead(200 * time.Millisecond)
		f.take(3)
	}
	f.check("earlier ones later", slack)

	// Only one peer has a free slot, and it has just one.
	enqueue(t, f.q, "hold", "hold", "hold", "hold", "hold")
	receive(t, f.starts, 5)
	for range 5 {
		f.ahead(200*time.Millisecond + rand.N(300*time.Millisecond))
		f.take(1)
	}
	f.check("all but one peer are busy", slack)
}

// If the worker that keeps the time is killed, the next heartbeat of another one starts due tasks.
// They don't wait for its eviction, which takes at least two heartbeats.
func TestDueWithoutKeeper(t *testing.T) {
	t.Parallel()
	const beat = 4 * time.Second
	f := newAgenda(t, 3*beat)
	conn := redistest.Conn(t)
	atRank := func(rank int) []string { // an idle worker: 0 is the one that has been idle longest
		return sure(redis.Strings(conn.Do("ZRANGE", f.c.Prefix+":idle:{q}", rank, rank)))(t)
	}
	keeper := atRank(0) // is woken by the first task, claims its time, and is idle again
	f.ahead(2 * time.Second)
	eventually(t, "somebody keeps the time", func() bool {
		claimed, _ := redis.Int64(conn.Do("HGET", f.c.Prefix+":state:{q}", "claimed"))
		return claimed == f.due["0"].UnixMilli() && slices.Equal(atRank(-1), keeper)
	})
	victim := sure(redis.Int(conn.Do("HGET", f.c.Prefix+":worker:"+keeper[0], "pid")))(t)
	f.peers[slices.IndexFunc(f.peers, func(p process) bool { return p.PID() == victim })].Kill()
	f.ahead(2 * time.Second) // later than the claimed time, so it wakes nobody
	f.take(2)
	f.check("the keeper of the clock was killed", 7*beat/4)
}
