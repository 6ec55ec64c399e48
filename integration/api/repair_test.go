package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Orphans go back in the order in which they had started, and run again.
func TestRepairRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	conn := redistest.Conn(t)
	gone := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	q := working(t, gone, "q")
	enqueue(t, q, numbers("t", 300)...)
	is.NoErr(q.Put(t.Context(), "x", []byte("keyed"), nil))
	held, err := q.StartTasks(t.Context(), 251)
	is.NoErr(err)
	is.Equal(len(held), 251)
	for _, key := range []string{"workers", "working", "rounds"} { // Redis loses the worker
		name := prefix + ":" + key + ":{q}"
		if key == "working" {
			name += ":" + gone.WorkerID()
		}
		_, err := conn.Do("DEL", name)
		is.NoErr(err)
	}
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	report, err := doctor.Repair(t.Context(), nil)
	is.NoErr(err)
	is.True(report.OK())
	is.Equal(count(report, "orphan"), 251)
	is.Equal(waiting(t, doctor.Queue("q")), append([]string{"keyed"}, numbers("t", 300)...))
	report, err = doctor.Check(t.Context(), nil)
	is.NoErr(err)
	is.True(report.OK())
	is.NoErr(doctor.Queue("q").Put(t.Context(), "x", []byte("again"), nil)) // the key is free
	got := make(chan string, 400)
	doctor.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		got <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	run(t, doctor)
	is.Equal(receive(t, got, 301), append([]string{"again"}, numbers("t", 300)...))
}

// Whatever is broken of what surrounds the tasks, Repair mends all of it, so that a
// second look finds nothing, and no payload is lost.
func TestRepairDamage(t *testing.T) {
	t.Parallel()
	first := *modelSeed
	if first == 0 {
		first = rand.Uint64()
	}
	for seed := first; seed < first+2*(*modelSeeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			f := newFleet(t, rand.NewPCG(seed, 0))
			for range 80 {
				f.step()
			}
			before := f.payloads()
			var done []string
			for range 1 + f.r.IntN(4) {
				done = append(done, f.harm())
			}
			defer func() {
				if t.Failed() {
					t.Logf("to repeat it: -run TestRepairDamage -model.seed %d -model.seeds 1; the damage was\n%s", seed, strings.Join(done, "\n"))
				}
			}()
			doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: f.prefix, Lease: 150 * time.Millisecond})
			repaired, err := doctor.Repair(t.Context(), nil)
			is.NoErr(err)
			checked, err := doctor.Check(t.Context(), nil)
			is.NoErr(err)
			for _, ill := range ills(checked) {
				if ill.Kind != "no-worker" && ill.Kind != "paused" && ill.Kind != "worker-list" { // who lives writes these again
					t.Errorf("after the repair, %v", ill)
				}
			}
			after := f.payloads()
			for payload, n := range before {
				if after[payload] < n {
					t.Errorf("%d of %q are left of %d", after[payload], payload, n)
				}
			}
			if t.Failed() {
				t.Log(repaired)
			}
		})
	}
}

// What cannot be returned, because a key holds something else, is not called
// repaired, and is once the key is free.
func TestRepairBesideForeignType(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	conn := redistest.Conn(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	for _, c := range [][]any{{"LPUSH", ":process:{q}:p1", "a"}, {"ZADD", ":working:{q}:w9", 1, "p1"}, {"ZADD", ":holders:{q}", 0, "w9"}, {"SET", ":token:{q}", 1}, {"SET", ":queues:{q}", "x"}, {"SADD", ":registry", "q"}} {
		c[1] = prefix + c[1].(string)
		_, err := conn.Do(c[0].(string), c[1:]...)
		is.NoErr(err)
	}
	for range 2 {
		report, err := doctor.Repair(t.Context(), nil)
		is.NoErr(err)
		is.True(!report.OK())
		is.Equal(count(report, "wrong-type"), 1)
		for _, f := range ills(report) {
			is.True(!f.Repaired)
		}
	}
	_, err := conn.Do("DEL", prefix+":queues:{q}")
	is.NoErr(err)
	report, err := doctor.Repair(t.Context(), nil)
	is.NoErr(err)
	is.True(report.OK())
	is.Equal(waiting(t, doctor.Queue("q")), []string{"a"})
}

// Repair goes on with the return of a worker that leaves, and leaves it alone when it is
// a member again meanwhile.
func TestRepairOfWhoComesBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
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
	enqueue(t, q, numbers("", 150)...) // more than one call returns
	_, err := q.StartTasks(t.Context(), 150)
	is.NoErr(err)
	left := make(chan error, 1)
	go func() { left <- q.StopWork(context.Background()) }()
	receiveClosed(t, half)

	fails, back := make(chan struct{}), make(chan struct{})
	var once sync.Once
	tool := &tamper{Url: redistest.Doctor(t, server.URL(), "p"), Before: func(verb string, _ []any) error {
		if verb == "fail" {
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
