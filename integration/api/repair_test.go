package api

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A task that can't be returned because its key has the wrong type isn't reported as repaired. Once
// the key is free, it is.
func TestRepairBesideForeignType(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	for _, c := range [][]any{{"LPUSH", ":process:{q}:w9.1.1.1", "a"}, {"ZADD", ":working:{q}:w9", 1, "w9.1.1.1"}, {"HSET", ":state:{q}", "token", 1}, {"SET", ":queues:{q}", "x"}, {"SADD", ":registry", "q"}} {
		c[1] = prefix + c[1].(string)
		redistest.Do(t, conn, c[0].(string), c[1:]...)
	}
	for range 2 {
		report := sure(doctor.Repair(t.Context(), nil))(t)
		is.True(!intact(report))
		is.Equal(count(report, "wrong-type"), 1)
		for _, f := range ills(report) {
			is.True(!f.Repaired)
		}
	}
	redistest.Do(t, conn, "DEL", prefix+":queues:{q}")
	is.True(intact(sure(doctor.Repair(t.Context(), nil))(t)))
	is.Equal(waiting(t, doctor.Queue("q")), []string{"a"})
}

// Repair continues the return of a leaving worker's tasks, and stops if the worker has rejoined.
func TestRepairOfWhoComesBack(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	half, rest := make(chan struct{}), make(chan struct{})
	var first sync.Once
	link := &tamper{Url: server.URL(), After: func(verb string, _ []any) {
		if verb == "leave" {
			first.Do(func() { close(half); hold(t, rest) })
		}
	}}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, numbers("", 150)...) // more than one call can return
	sure(q.StartTasks(t.Context(), 150))(t)
	left := make(chan error, 1)
	go func() { left <- q.StopWork(context.Background()) }()
	receiveClosed(t, half)

	fails, back := make(chan struct{}), make(chan struct{})
	var once sync.Once
	tool := &tamper{Url: redistest.Doctor(t, server.URL(), "p"), Before: func(verb string, _ []any) error {
		if verb == "evict" {
			once.Do(func() { close(fails); hold(t, back) })
		}
		return nil
	}}
	doctor := tool.Open(t, worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	repaired := make(chan error, 1)
	go func() { _, err := doctor.Repair(context.Background(), nil); repaired <- err }()
	receiveClosed(t, fails)
	close(rest)
	is.Equal(receive(t, left, 1), []error{nil})
	is.NoErr(q.StartWork(t.Context()))
	task := take(t, q)
	close(back)
	is.Equal(receive(t, repaired, 1), []error{nil})
	is.NoErr(task.Finish(t.Context()))
	is.Equal(p.Stats().TimesEvicted, int64(0))
}
