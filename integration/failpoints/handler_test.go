package failpoints_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A handling says what a handler does with the first task, and when the fault happens. It finishes
// the other tasks.
type handling struct {
	name  string
	wire  string // the call that is held; "" if the fault happens while the handler runs
	holds bool   // handlers run until they are told to return, or until their contexts end
	drain bool   // Run's context has ended
	hasty bool   // Run doesn't wait for handlers then
	flood int    // how many such calls pass before one is held, out of very many tasks
	then  func(ctx context.Context, t *worqr.Task) error
}

var errNo = errors.New("no")

var handlings = []*handling{
	// Tasks are being taken; no handler has begun.
	{name: "taken", wire: "start"},
	// Handlers run.
	{name: "running", holds: true},
	// Handlers run, and Run's context has ended.
	{name: "draining", holds: true, drain: true},
	// A handler has returned nil.
	{name: "finish", wire: "finish:done"},
	// A handler has returned an error.
	{name: "retry", wire: "finish:retry", then: func(_ context.Context, t *worqr.Task) error {
		if t.Retries > 0 {
			return nil
		}
		return errNo
	}},
	// A handler has returned Permanent.
	{name: "fail", wire: "finish:fail", then: func(context.Context, *worqr.Task) error { return worqr.Permanent(errNo) }},
	// A handler has returned after its task was canceled.
	{name: "drop", wire: "finish:drop", then: func(ctx context.Context, _ *worqr.Task) error {
		<-ctx.Done()
		return ctx.Err()
	}},
	// Handlers had no time to drain, and Run returns their unfinished tasks.
	{name: "leave", wire: "leave", holds: true, drain: true, hasty: true},
	// Many handlers have returned, and two rounds may be under way; it holds the one after four others.
	{name: "flood", wire: "finish:done", flood: 4},
}

// payloads returns the tasks, in order.
func (h *handling) payloads() []string {
	if h.flood == 0 {
		return []string{"a", "b", "c", "d"}
	}
	all := make([]string, 5000)
	for i := range all {
		all[i] = fmt.Sprintf("%04d", i)
	}
	return all
}

// cells returns the cells of a handling.
func (h *handling) cells() (all []cell) {
	if h.wire == "" {
		return []cell{{kill, received}, {pause, received}, {evict, received}, {lost, executed}}
	}
	for _, c := range cells {
		if c.fault == kill || c.fault == pause || c.fault == evict || c.fault == lost {
			all = append(all, c)
		}
	}
	if h.flood > 0 {
		all = append(all, cell{again, atOnce})
	}
	return all
}

// handle is the main function of a victim that runs a handler.
func (v *victim) handle(h *handling, at place) {
	var mu sync.Mutex
	begun, release := map[string]int{}, make(chan struct{})
	handler := func(ctx context.Context, t *worqr.Task) error {
		payload := string(t.Payload)
		mu.Lock()
		begun[payload]++
		first := begun[payload] == 1
		mu.Unlock()
		if h.flood == 0 || payload == proof {
			v.say(report{What: "begun", Payload: payload})
		}
		switch {
		case h.holds && first && payload < "c":
			select {
			case <-release:
			case <-ctx.Done():
				v.say(report{What: "over", Payload: payload, Result: kind(context.Cause(ctx))})
				return ctx.Err()
			}
		case h.then != nil && payload == "a":
			return h.then(ctx, t)
		}
		return nil
	}
	opts := &worqr.HandleOptions{Concurrency: 2, Prefetch: -1, Backoff: func(*worqr.Task, error) time.Duration { return 0 }}
	if h.flood > 0 {
		opts.Concurrency, opts.Prefetch = 100, 0
	}
	v.queue.Handle(handler, opts)
	v.say(report{What: "ready"})
	v.await("go")
	if h.wire != "" {
		v.gate.arm(h.wire, at, h.flood, 1)
	}
	ctx, cancel := context.WithCancel(v.ctx)
	ran := make(chan error, 1)
	go func() { ran <- v.peer.Run(ctx) }()
	for {
		select {
		case line := <-v.lines:
			switch line {
			case "release":
				close(release)
			case "leave":
				cancel()
			}
		case err := <-ran:
			v.say(report{What: "left", Result: kind(err), Lost: v.peer.Stats().TakenOver})
			v.await("exit")
		}
	}
}

// A draining is a log handler that calls tell when Run begins to wait for handlers.
type draining struct {
	slog.Handler
	tell func()
}

func (d draining) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "worqr: draining") {
		d.tell()
	}
	return d.Handler.Handle(ctx, r)
}

// log returns a logger that writes to standard error.
func (v *victim) log() *slog.Logger {
	return slog.New(draining{slog.NewTextHandler(os.Stderr, nil), func() { v.say(report{What: "draining"}) }})
}

// TestHandlers applies faults while handlers run, and around the calls that they cause.
func TestHandlers(t *testing.T) {
	for _, h := range handlings {
		t.Run(h.name, func(t *testing.T) {
			for _, c := range h.cells() {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					defer hint(t)
					h.run(t, c)
				})
			}
		})
	}
}

// run applies the fault to a handler, and checks what happens to its tasks.
func (h *handling) run(t *testing.T, c cell) {
	lease := longLease
	switch c.fault {
	case kill, pause:
		lease = shortLease
	case evict:
		lease = 3 * time.Second // the victim learns of it with its next heartbeat
	}
	w := newWorld(t, lease)
	p := launch(t, config{URL: redistest.URL(), Prefix: w.prefix, Handling: h.name, Place: c.holds(), Lease: lease})
	p.next("ready")
	p.Tell("go")
	w.enqueue(h.payloads()...)

	o := &onlooker{p: p, starts: map[string]int{}, over: map[string]string{}}
	if h.holds || h.name == "drop" {
		o.until("a has begun", func() bool { return o.starts["a"] > 0 })
	}
	if h.holds {
		o.until("b has begun", func() bool { return o.starts["b"] > 0 })
	}
	if h.name == "drop" {
		w.cancel("a")
	}
	if h.drain {
		p.Tell("leave")
		o.until("Run waits for handlers", func() bool { return o.draining })
	}
	if h.wire != "" {
		o.until("the call is held", func() bool { return o.reached != nil })
	}

	switch c.fault {
	case kill:
		p.Kill()
	case pause:
		p.Stop()
	case evict:
		redistest.Sure(w.rescuer.FailWorker(t.Context(), o.worker))(t)
	case lost:
		if h.wire == "" {
			w.cut()
		}
	}
	if c.fault == kill || c.fault == pause {
		w.gone(o.worker)
	}
	if c.place == sent && c.fault != lost || c.fault == again {
		w.deliver(o.reached)
	}
	if c.fault == kill || c.fault == pause {
		w.gone(o.worker)
	}
	if c.fault == pause {
		p.Continue()
	}
	if h.wire != "" && c.fault != kill {
		if c.fault == lost {
			p.Tell("cut")
		} else {
			p.verdict(c.place)
		}
	}

	var taken []string // by the rescuer
	failed := c.fault != lost && c.fault != again && (h.wire != "leave" || c.place == before || c.place == sent)
	switch {
	case c.fault == kill:
		taken = w.drain()
	case h.drain: // it only leaves
		if h.holds && failed && !h.hasty {
			o.until("the contexts have ended", func() bool { return len(o.over) == 2 })
		} else if !h.hasty {
			p.Tell("release")
		}
		o.until("it has left", func() bool { return o.left != "" })
		// If it was stopped for long while leaving, Redis can no longer confirm it.
		if o.left != "ok" && !(c.fault == pause && h.hasty && strings.Contains(o.left, "Redis didn't confirm it")) {
			t.Errorf("Run ended with %q", o.left)
		}
		taken = w.drain()
	default:
		if h.holds && failed {
			o.until("the contexts have ended", func() bool { return len(o.over) == 2 })
		} else if h.holds {
			p.Tell("release")
		}
		w.enqueue(proof)
		o.until("it does another task", func() bool { return o.starts[proof] > 0 })
		peertest.AllDone(t, w.queue)
		p.Tell("leave")
		o.until("it has left", func() bool { return o.left != "" })
	}
	h.judge(w, c, o, taken, failed)
	redistest.Sure(w.queue.DeleteAllFailed(t.Context()))(t)
	w.leave()
}

// judge checks what happened to the tasks.
func (h *handling) judge(w *world, c cell, o *onlooker, taken []string, failed bool) {
	t := w.t
	// A task that is retried has a name. Those with a name and the others take turns.
	retried := func(task string) bool { return strings.Contains(task, "+") }
	if plain := strip(slices.DeleteFunc(slices.Clone(taken), retried)); !slices.IsSorted(plain) {
		t.Errorf("what went back was done in the order %q", taken)
	}
	crashed := 0
	for _, p := range taken {
		crashed += strings.Count(p, "!")
	}
	// A crash is counted for each task that it held when it was evicted.
	if h.holds && (c.fault == kill || h.drain) {
		if want := map[bool]int{true: 2}[failed]; crashed != want {
			t.Errorf("crashes are counted for %d tasks, want %d: %q", crashed, want, taken)
		}
	}
	for payload, ended := range o.over {
		if want := map[bool]string{true: "evicted", false: "worqr: the peer is shutting down"}[failed && !h.hasty]; ended != want {
			t.Errorf("the context of %s ended with %q, want %q", payload, ended, want)
		}
	}
	all := h.payloads()
	if o.starts[proof] > 0 {
		all = append(all, proof)
	}
	switch failures := w.failures(); {
	case h.name == "drop":
		w.canceled()
		all = all[1:]
	case slices.Equal(failures, []string{"a"}) && h.name == "fail":
		all = all[1:]
	case len(failures) > 0:
		t.Errorf("failed are %q", failures)
	}
	w.ends(all)
	if o.lost > 0 && !failed {
		t.Errorf("a peer that was not evicted counts %d tasks as taken over", o.lost)
	}
	for p, n := range o.starts {
		if n > 1 && !failed && h.name != "retry" {
			t.Errorf("%s was started %d times by a peer that was not evicted", p, n)
		}
	}
}

// An onlooker reads the reports of a victim with a handler.
type onlooker struct {
	p        process
	worker   string // its id
	starts   map[string]int
	over     map[string]string // payload → why the context ended
	draining bool
	reached  []command
	left     string // what Run returned
	lost     int64  // the victim's Stats.TakenOver
}

// until reads reports until a condition holds.
func (o *onlooker) until(what string, is func() bool) {
	o.p.t.Helper()
	for !is() {
		r := o.p.Next()
		o.worker = r.Worker
		switch r.What {
		case "begun":
			o.starts[r.Payload]++
		case "over":
			o.over[r.Payload] = r.Result
		case "draining":
			o.draining = true
		case "reached":
			o.reached = r.Commands
		case "left":
			o.left, o.lost = r.Result, r.Lost
		default:
			o.p.t.Fatalf("the victim reports %+v while the test waits until %s", r, what)
		}
	}
}

// cut cuts every connection of the victim.
func (w *world) cut() {
	w.t.Helper()
	list := redistest.Sure(redis.String(w.conn.Do("CLIENT", "LIST")))(w.t)
	n := 0
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name="+w.prefix+" ") {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		w.do("CLIENT", "KILL", "ID", id)
		n++
	}
	if n < 3 {
		w.t.Fatalf("the victim had %d connections", n)
	}
}
