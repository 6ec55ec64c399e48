package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/crash"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	waits = flag.Int("waits", 2000, "how many tasks are waited for")
	span  = flag.Duration("waits.span", 10*time.Second, "about how long the tasks take together")
)

func TestMain(m *testing.M) {
	if r, given := child.Given[role](); given {
		r.play()
		return
	}
	os.Exit(peertest.Main(m))
}

// A role is what a process does: wait for the tasks listed in a file, or work.
type role struct {
	URL, Prefix string
	File        string // "" is a worker
	Each        time.Duration
}

// A wait is a task that a process waits for, and its fate.
type wait struct {
	Queue, Key string
	Fate       string // finish, fail, retry, cancel, remove, expire or delete
	Name       string // part of its payload and its result
}

// A said is a report about a wait.
type said struct {
	Key     string
	Outcome worqr.Outcome
	Value   string
	Error   string
	Err     string
}

func (r *role) play() {
	p, err := worqr.Open(r.URL, &worqr.Options{Prefix: r.Prefix, Lease: 600 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	if r.File == "" {
		r.work(p)
		return
	}
	text, err := os.ReadFile(r.File)
	if err != nil {
		panic(err)
	}
	var all []wait
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err)
	}
	var mu sync.Mutex // protects standard output
	for _, w := range all {
		go func() {
			s := said{Key: w.Key}
			if got, err := p.Queue(w.Queue).Wait(context.Background(), w.Key); err != nil {
				s.Err = err.Error()
			} else {
				s.Outcome, s.Value, s.Error = got.Outcome, string(got.Value), got.Error
			}
			mu.Lock()
			defer mu.Unlock()
			_ = json.NewEncoder(os.Stdout).Encode(s)
		}()
	}
	select {}
}

// work handles tasks until the process is killed.
func (r *role) work(p *worqr.Peer) {
	p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
		fate, name, _ := strings.Cut(string(t.Payload), " ")
		select {
		case <-time.After(rand.N(2 * r.Each)):
		case <-ctx.Done():
			return ctx.Err()
		}
		t.Result = []byte("done " + name)
		switch {
		case fate == "fail":
			return worqr.Permanent(errors.New("failed " + name))
		case fate == "retry" && t.Retries == 0:
			return worqr.RetryAfter(errors.New("later"), rand.N(time.Second))
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 16, MaxCrashes: -1})
	if err := p.Run(context.Background()); err != nil {
		panic(err)
	}
}

// A siege has the tasks and the processes of one test.
type siege struct {
	t      *testing.T
	url    string
	prefix string
	peer   *worqr.Peer
	tasks  map[string]wait // by key

	mu        sync.Mutex
	answers   map[string]said // by key
	restarted map[string]bool // waited for by a process that began later
	sure      map[string]worqr.Outcome
	wrong     []string
	kills     int
}

// Processes wait for ten thousand tasks while waiters, workers and connections are killed. No Wait
// hangs, and none gets a wrong answer.
func TestWaits(t *testing.T) {
	server := redistest.Start(t)
	s := &siege{t: t, url: server.URL(), prefix: "p", tasks: map[string]wait{},
		answers: map[string]said{}, restarted: map[string]bool{}, sure: map[string]worqr.Outcome{}}
	s.peer = peertest.OpenAt(t, server.URL(), worqr.Options{Prefix: s.prefix})
	s.add()
	const workers, waiters = 3, 4
	each := *span * workers * 16 / time.Duration(*waits)
	began := time.Now()
	var all sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	for i := range waiters {
		all.Go(func() { s.waiter(ctx, i, waiters) })
	}
	for range workers {
		all.Go(func() { s.worker(ctx, each) })
	}
	all.Go(func() { s.cut(ctx) })
	all.Go(func() { s.endSome(ctx) })
	for !s.isAnswered() && time.Since(began) < *span+peertest.Patience { // judge lists the missing ones
		time.Sleep(5 * time.Millisecond) // poll
	}
	took := time.Since(began)
	end()
	all.Wait()
	s.judge(took)
}

func (s *siege) isAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answers) == len(s.tasks)
}

var fates = []string{"finish", "finish", "finish", "fail", "retry", "cancel", "remove", "expire", "delete"}

// add adds the tasks, half of them with their own keys.
func (s *siege) add() {
	ctx := s.t.Context()
	for i := range *waits {
		w := wait{Queue: "q", Fate: fates[i%len(fates)], Name: fmt.Sprint(i)}
		payload, of := []byte(w.Fate+" "+w.Name), worqr.Properties{KeepResult: time.Hour}
		switch w.Fate {
		case "delete":
			w.Queue = "deleted"
		case "expire":
			of.Expires = time.Now().Add(rand.N(2 * *span))
		}
		q := s.peer.Queue(w.Queue)
		if i%2 == 0 {
			w.Key = "key" + w.Name
			peertest.Must(s.t, q.Put(ctx, w.Key, payload, &worqr.PutOptions{Properties: of}))
		} else {
			w.Key = redistest.Sure(q.Add(ctx, payload, &of))(s.t)
		}
		s.tasks[w.Key] = w
	}
}

// nap sleeps for about that long. It returns false if ctx has ended.
func nap(ctx context.Context, about time.Duration) bool {
	select {
	case <-time.After(about/2 + rand.N(about)):
		return true
	case <-ctx.Done():
		return false
	}
}

// waiter runs processes, one after the other, that wait for some of the tasks. Each is killed.
func (s *siege) waiter(ctx context.Context, i, of int) {
	var mine []string
	for n, key := range slices.Sorted(maps.Keys(s.tasks)) {
		if n%of == i {
			mine = append(mine, key)
		}
	}
	for round := 0; ctx.Err() == nil; round++ {
		file := filepath.Join(s.t.TempDir(), "waits")
		peertest.Must(s.t, os.WriteFile(file, redistest.Sure(json.Marshal(s.open(mine, round > 0)))(s.t), 0o600))
		p := crash.Launch[said](s.t, role{URL: s.url, Prefix: s.prefix, File: file})
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for a := range p.Reports {
				s.answered(a)
			}
		}()
		nap(ctx, 3*time.Second)
		p.Kill()
		<-heard
		s.killed()
	}
}

// open returns the tasks without an answer.
func (s *siege) open(keys []string, again bool) (all []wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if _, answered := s.answers[key]; !answered {
			all = append(all, s.tasks[key])
			s.restarted[key] = again
		}
	}
	return all
}

func (s *siege) answered(a said) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, again := s.answers[a.Key]; again && before != a {
		s.wrong = append(s.wrong, fmt.Sprintf("%v, and then %v", before, a))
	}
	s.answers[a.Key] = a
}

func (s *siege) killed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills++
}

// worker runs worker processes, one after the other.
func (s *siege) worker(ctx context.Context, each time.Duration) {
	for ctx.Err() == nil {
		p := crash.Launch[said](s.t, role{URL: s.url, Prefix: s.prefix, Each: each})
		nap(ctx, 2*time.Second)
		p.Kill()
		s.killed()
	}
}

// cut kills connections.
func (s *siege) cut(ctx context.Context) {
	conn := redistest.Dial(s.t, s.url)
	for nap(ctx, 250*time.Millisecond) {
		redistest.Do(s.t, conn, "CLIENT", "KILL", "TYPE", []string{"pubsub", "pubsub", "normal"}[rand.N(3)], "SKIPME", "yes")
		s.killed()
	}
}

// endSome cancels, removes and deletes tasks. The results of these calls are certain.
func (s *siege) endSome(ctx context.Context) {
	var some []wait
	for _, w := range s.tasks {
		if w.Fate == "cancel" || w.Fate == "remove" {
			some = append(some, w)
		}
	}
	for i, w := range some {
		if !nap(ctx, *span*8/10/time.Duration(len(some))) {
			return
		}
		var outcome worqr.Outcome
		switch q := s.peer.Queue(w.Queue); w.Fate {
		case "cancel":
			if r, err := q.CancelKey(ctx, w.Key); err == nil && r.Removed > 0 {
				outcome = worqr.OutcomeCanceled
			}
		default:
			if removed, err := q.RemoveKey(ctx, w.Key); err == nil && removed {
				outcome = worqr.OutcomeRemoved
			}
		}
		if outcome != "" {
			s.mu.Lock()
			s.sure[w.Key] = outcome
			s.mu.Unlock()
		}
		if i == len(some)/2 {
			for ctx.Err() == nil && s.peer.Queue("deleted").Delete(ctx) != nil { // retry: a connection was killed
			}
		}
	}
}

// judge compares the answers with what happened.
func (s *siege) judge(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := map[worqr.Outcome]int{}
	for key, w := range s.tasks {
		a, answered := s.answers[key]
		outcomes[a.Outcome]++
		switch {
		case !answered:
			s.wrong = append(s.wrong, fmt.Sprintf("no answer for %v", w))
		case !s.may(w, a):
			s.wrong = append(s.wrong, fmt.Sprintf("%v was answered %v; certain is %q", w, a, s.sure[key]))
		}
	}
	s.t.Logf("%d waits in %v, %d kills: %v", len(s.tasks), took.Round(time.Millisecond), s.kills, outcomes)
	for i, wrong := range s.wrong {
		if s.t.Error(wrong); i == 20 {
			s.t.Fatalf("and %d more", len(s.wrong)-i-1)
		}
	}
}

// may reports whether an answer is possible.
func (s *siege) may(w wait, a said) bool {
	if sure, known := s.sure[w.Key]; known && sure != a.Outcome {
		return false
	}
	done := a == said{Key: w.Key, Outcome: worqr.OutcomeFinished, Value: "done " + w.Name}
	only := func(o worqr.Outcome) bool { return a == said{Key: w.Key, Outcome: o} }
	switch w.Fate {
	case "finish", "retry":
		return done
	case "fail":
		return a == said{Key: w.Key, Outcome: worqr.OutcomeFailed, Error: "failed " + w.Name}
	case "cancel":
		return done || only(worqr.OutcomeCanceled)
	case "remove":
		return done || only(worqr.OutcomeRemoved)
	case "expire":
		return done || a.Outcome == worqr.OutcomeExpired && a.Value == ""
	}
	// A waiter that begins after the queue was deleted finds nothing.
	return only(worqr.OutcomeDeleted) || s.restarted[w.Key] && strings.Contains(a.Err, "no result")
}
