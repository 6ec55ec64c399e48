package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/next/store"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/tracing"
)

func TestMain(m *testing.M) {
	if c, given := child.Given[config](); given {
		c.run()
		return
	}
	os.Exit(redistest.MainOfMany(m.Run))
}

// A session is what the engine does with a membership, without handlers.
type session struct {
	view *store.View
	m    Membership

	mu     sync.Mutex
	round  int64
	ended  error
	token  int64
	lost   int
	pulses int
	held   []store.Attempt
}

type queue struct{}

func (queue) Join(v *store.View, m Membership) Session {
	return &session{view: v, m: m, round: m.Round, token: m.Asked}
}

func (s *session) Pulse(*store.Pulse, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulses++
}

func (s *session) Unheard()   {}
func (s *session) Unlisten()  {}
func (s *session) Wake() bool { return true }

func (s *session) Refused() {
	s.End(ErrEvicted)
	s.m.Evicted()
}

func (s *session) End(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.held = why, nil
}

func (s *session) Last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.round
}

func (s *session) Leave(ctx context.Context) error {
	_, err := store.Leave(ctx, s.view.Control, s.view.Shared, s.m.Worker, s.Last())
	s.End(ErrNotWorking)
	return err
}

func (s *session) Mark() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

func (s *session) Compare(last int64, since Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last < since.(int64) {
		s.lost++
		s.token = last
	}
}

// start starts up to n tasks.
func (s *session) start(ctx context.Context, n int) (int, error) {
	s.mu.Lock()
	s.round++
	call := &store.Start{Worker: s.m.Worker, Round: s.round, Stamp: time.Now().UnixMilli(), Lease: time.Second, Wanted: n}
	s.mu.Unlock()
	a, err := call.Read(s.view.Keys, s.view.Calls.Do(ctx, call.Call(s.view.Shared))[0])
	if errors.Is(err, store.ErrEvicted) {
		s.m.Evicted()
	}
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.token = append(s.held, a.Tasks...), max(s.token, a.Last)
	return len(a.Tasks), nil
}

// finish ends the held tasks, and returns how many of them were still this worker's.
func (s *session) finish(ctx context.Context) (n int, err error) {
	s.mu.Lock()
	call := &store.Finish{Worker: s.m.Worker}
	for _, a := range s.held {
		call.Ends = append(call.Ends, &store.End{Attempt: a.ID, Token: a.Token, Verb: store.Done})
	}
	s.held = nil
	s.mu.Unlock()
	settled, _, err := call.Read(s.view.Calls.Do(ctx, call.Call(s.view.Shared))[0])
	for _, what := range settled {
		if err == nil && what == store.OK {
			n++
		}
	}
	return n, err
}

type engine struct{}

func (engine) Wait()        {}
func (engine) Pass()        {}
func (engine) Stuck() int64 { return 0 }

// peerAt returns a peer that isn't started. The caller closes its lines.
func peerAt(servers *store.Servers, prefix string, lease time.Duration) *Fleet {
	log := logs.New(slog.New(slog.DiscardHandler))
	space := store.SpaceOf(prefix)
	lines := store.NewLines(servers, log, store.DefaultTimeout, LeaseOf(lease).Beat)
	if lines.InCluster() {
		space = space.InCluster()
	}
	return New(Config{
		Lines: lines, Space: space, Log: log, Trace: tracing.New(nil, log), Engine: engine{}, Lease: lease, Protocol: store.Ours,
		Describe: func(_, _ string, err error) error { return err }, CameBack: func() {},
	})
}

// newPeer is peerAt for a test, which has a prefix of its own.
func newPeer(t *testing.T, url, prefix string, lease time.Duration) *Fleet {
	t.Helper()
	servers, err := store.Open(url, store.Access{})
	redistest.Must(t, err)
	f := peerAt(servers, prefix, lease)
	t.Cleanup(f.Lines.Close)
	return f
}

func queueOf(f *Fleet, name string) *Queue {
	return &Queue{View: f.Lines.Serve(name, name, f.Space.Queue(name)), Engine: queue{}}
}

// serve starts a peer that serves a queue. It stops at the end of the test.
func serve(t *testing.T, f *Fleet, queues ...string) {
	t.Helper()
	redistest.Must(t, f.Start(t.Context()))
	for _, q := range queues {
		redistest.Must(t, f.Join(t.Context(), queueOf(f, q)))
	}
	t.Cleanup(func() {
		if f.IsStarted() {
			_ = f.Stop(context.Background())
		}
	})
}

// on returns the current session of a peer with a queue.
func on(t *testing.T, f *Fleet, queue string) *session {
	t.Helper()
	s, err := f.Session(queue)
	redistest.Must(t, err)
	return s.(*session)
}

// die makes a peer vanish without leaving, as if its process had been killed.
func die(f *Fleet) {
	w := f.present()
	w.stop()
	w.loops.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worker = nil
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(200 * time.Microsecond) { // interval between two checks
		if time.Now().After(end) {
			t.Fatal("it never came about that ", what)
		}
	}
}

// enqueue puts n tasks on a queue.
func enqueue(t *testing.T, c redis.Conn, q store.Keys, n int) {
	t.Helper()
	args := redis.Args{q.Waiting()}
	for i := range n {
		args = args.Add(fmt.Sprint("task ", i))
	}
	redistest.Do(t, c, "LPUSH", args...)
}

// waiting returns how many tasks wait in the list.
func waiting(t *testing.T, c redis.Conn, q store.Keys) int {
	t.Helper()
	return redistest.Sure(redis.Int(c.Do("LLEN", q.Waiting())))(t)
}

// members returns the members of a queue.
func members(t *testing.T, c redis.Conn, q store.Keys) []string {
	t.Helper()
	return redistest.Sure(redis.Strings(c.Do("ZRANGE", q.Workers(), 0, -1)))(t)
}

// digest returns the digest of a script, which its calls contain.
func digest(verb string) string {
	for _, v := range store.Verbs() {
		if v.Name == verb {
			return v.Digest()
		}
	}
	panic(verb)
}

// A config is that of a peer in a process of its own, which serves the queue q, and does what it's told: start n,
// finish, id.
type config struct {
	URL, Prefix string
	Lease       time.Duration
}

// A report is what such a peer answers.
type report struct {
	ID  string
	N   int
	Err string
}

func (c config) run() {
	ctx, out := context.Background(), json.NewEncoder(os.Stdout)
	var held *session // the one that has started tasks
	say := func(f *Fleet, n int, err error) {
		r := report{ID: f.ID(), N: n}
		if err != nil {
			r.Err = err.Error()
		}
		_ = out.Encode(r)
	}
	servers, err := store.Open(c.URL, store.Access{})
	if err != nil {
		panic(err)
	}
	f := peerAt(servers, c.Prefix, c.Lease)
	err = f.Start(ctx)
	if err == nil {
		err = f.Join(ctx, queueOf(f, "q"))
	}
	say(f, 0, err)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		n := 0
		switch verb {
		case "start":
			var of Session
			if of, err = f.Session("q"); err == nil {
				held = of.(*session)
				_, _ = fmt.Sscan(arg, &n)
				n, err = held.start(ctx, n)
			}
		case "finish":
			n, err = held.finish(ctx)
		case "id":
			err = f.Unfit()
		}
		say(f, n, err)
	}
}
