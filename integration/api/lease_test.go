package api

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A job that takes several leases doesn't run twice.
func TestLongJob(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	var peers []*worqr.Peer
	started, release := make(chan string, 10), make(chan struct{})
	for range 3 {
		p := open(t, worqr.Options{Prefix: prefix})
		p.Queue("q").Handle(holding(started, release), nil)
		run(t, p)
		peers = append(peers, p)
	}
	q := peers[0].Queue("q")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("keyed")})
	enqueue(t, q, "list")
	receive(t, started, 2)
	time.Sleep(10 * time.Second) // several leases, in which nothing must happen
	is.Equal(len(started), 0)
	for _, p := range peers {
		is.Equal(p.Stats().TimesEvicted, int64(0))
	}
	close(release)
	allDone(t, q)
	is.Equal(len(started), 0)
}

// If two peers of a queue have different leases, Check reports it.
func TestDifferentLeases(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	start := func(name string, lease time.Duration, queues ...string) {
		p := open(t, worqr.Options{Prefix: prefix, Name: name, Lease: lease})
		for _, q := range queues {
			p.Queue(q).Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		}
		run(t, p)
		for _, q := range queues {
			eventually(t, name+" has joined", func() bool { return stats(t, p.Queue(q)).Workers > 0 })
		}
	}
	start("short", 900*time.Millisecond, "common", "own")
	start("alike", 900*time.Millisecond, "own")
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	found := func() (queues []string) {
		for _, f := range about(sure(doctor.Check(t.Context(), nil))(t), "leases") {
			queues = append(queues, f.Queue)
		}
		return queues
	}
	is.Equal(len(found()), 0)
	start("long", 1500*time.Millisecond, "common")
	eventually(t, "Check says so", func() bool { return len(found()) > 0 })
	is.Equal(found(), []string{"common"})
}
