package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// A load describes the contents of a queue.
type load struct {
	name    string
	payload int // size of the actions' payloads, in bytes
	batch   int // tasks per action
	fill    func(context.Context, *stage) error
}

func (r *request) loads() []load {
	many, failed, members, batch := r.of(1_000_000, 500), r.of(100_000, 200), r.of(10_000, 20), r.of(1000, 50)
	none := func(context.Context, *stage) error { return nil }
	return []load{
		{"1 M waiting", 100, batch, func(ctx context.Context, s *stage) error { return s.enqueue(ctx, many) }},
		{"1 M scheduled", 100, batch, func(ctx context.Context, s *stage) error {
			at := time.Now().Add(time.Hour)
			return s.parallel(ctx, many, func(i int) error {
				return s.queue.Put(ctx, fmt.Sprintf("fill-%d", i), s.bytes(), &worqr.PutOptions{At: at})
			})
		}},
		{"1 M locks", 100, batch, func(ctx context.Context, s *stage) error {
			return s.parallel(ctx, many, func(int) error { return s.queue.EnqueueUnique(ctx, s.bytes()) })
		}},
		{"100,000 failed", 100, batch, func(ctx context.Context, s *stage) error { return s.fail(ctx, failed) }},
		{"10,000 members", 100, batch, func(ctx context.Context, s *stage) error { return s.join(ctx, members) }},
		{"16 MiB", r.of(16<<20, 1<<16), 2, none},
	}
}

// A stage is a queue on its own server, with a peer that works on it and one that observes.
type stage struct {
	load
	conn   redis.Conn // our own: its calls don't count
	url    string
	worker *worqr.Peer
	queue  *worqr.Queue
	peers  []*worqr.Peer

	mu     sync.Mutex
	made   int
	called map[string]bool // scripts, by digest
}

// A tapped connection records which scripts are called.
type tapped struct {
	redis.Conn
	s *stage
}

func (t tapped) note(command string, args []any) {
	if command == "EVALSHA" {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		t.s.called[fmt.Sprint(args[0])] = true
	}
}

// forget resets the record of called scripts.
func (s *stage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.called)
}

func (t tapped) Send(command string, args ...any) error {
	t.note(command, args)
	return t.Conn.Send(command, args...)
}

func (t tapped) ReceiveWithTimeout(time.Duration) (any, error) {
	return redis.ReceiveWithTimeout(t.Conn, time.Minute) // large payloads take long
}

func (t tapped) DoWithTimeout(d time.Duration, command string, args ...any) (any, error) {
	t.note(command, args)
	return redis.DoWithTimeout(t.Conn, d, command, args...)
}

// pool returns a pool of tapped connections.
func (s *stage) pool() *redis.Pool {
	return &redis.Pool{Dial: func() (redis.Conn, error) {
		c, err := redis.DialURL(s.url)
		return tapped{c, s}, err
	}}
}

// peer returns a new peer that logs nothing.
func (s *stage) peer() *worqr.Peer { return s.leased(time.Minute) }

func (s *stage) leased(lease time.Duration) *worqr.Peer {
	p := worqr.New(s.pool(), &worqr.Options{Lease: lease, MaxPayload: worqr.MaxPayloadSize, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	s.peers = append(s.peers, p)
	return p
}

// bytes returns a unique payload.
func (s *stage) bytes() []byte {
	s.mu.Lock()
	s.made++
	n := s.made
	s.mu.Unlock()
	p := make([]byte, s.payload)
	copy(p, fmt.Sprintf("%d ", n))
	return p
}

// parallel calls do n times, concurrently.
func (s *stage) parallel(ctx context.Context, n int, do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, 64)
	for w := range errs {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(errs) {
				errs[w] = errors.Join(do(i), ctx.Err())
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *stage) payloads(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = s.bytes()
	}
	return all
}

func (s *stage) enqueue(ctx context.Context, n int) error {
	const page = 2500
	for ; n > 0; n -= page {
		if err := s.queue.Enqueue(ctx, s.payloads(min(n, page))...); err != nil {
			return err
		}
	}
	return nil
}

// take starts a batch of tasks.
func (s *stage) take(ctx context.Context) (tasks []*worqr.Task, err error) {
	return s.takeFrom(ctx, s.queue, s.batch)
}

func (s *stage) takeFrom(ctx context.Context, q *worqr.Queue, n int) (tasks []*worqr.Task, err error) {
	for len(tasks) < n && err == nil {
		var more []*worqr.Task
		more, err = q.StartTasks(ctx, n-len(tasks))
		tasks = append(tasks, more...)
	}
	return tasks, err
}

// end ends tasks concurrently.
func (s *stage) end(ctx context.Context, tasks []*worqr.Task, how func(context.Context, *worqr.Task) error) error {
	errs := make([]error, len(tasks))
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() { errs[i] = how(ctx, t) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// settle takes tasks and ends them.
func (s *stage) settle(ctx context.Context, how func(context.Context, *worqr.Task) error) error {
	tasks, err := s.take(ctx)
	if err != nil {
		return err
	}
	return s.end(ctx, tasks, how)
}

// fail fills the failed queue.
func (s *stage) fail(ctx context.Context, n int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := s.peer()
	left := n
	var mu sync.Mutex
	p.Queue(s.queue.Name()).Handle(func(context.Context, *worqr.Task) error {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			time.AfterFunc(time.Second, stop)
		}
		return worqr.Malformed(errors.New("no"))
	}, &worqr.HandleOptions{Concurrency: 256, KeepFailed: 10 * n})
	if err := s.enqueue(ctx, n); err != nil {
		return err
	}
	return p.Run(ctx)
}

// join adds members.
func (s *stage) join(ctx context.Context, n int) error {
	dial, err := redisconn.FromURL(s.url)
	if err != nil {
		return err
	}
	line := redisconn.NewLine(dial, 0)
	defer line.Close()
	q := keys.NewSpace("").Queue(s.queue.Name())
	for from := 0; from < n; from += 500 {
		token, err := store.ReadToken(line.Do(ctx, store.TokenCall(q))[0])
		if err != nil {
			return err
		}
		var calls []redisconn.Call
		for i := range min(500, n-from) {
			calls = append(calls, store.JoinCall(q, fmt.Sprintf("member-%d", from+i), time.Hour, token, 1))
		}
		for _, reply := range line.Do(ctx, calls...) {
			if joined, err := store.ReadJoin(reply); err != nil || !joined {
				return fmt.Errorf("a member could not join: %w", err)
			}
		}
	}
	return nil
}

// guest runs a worker that joins, holds tasks, and then ends by calling end.
func (s *stage) guest(ctx context.Context, end func(*worqr.Peer, context.Context) error) error {
	if err := s.enqueue(ctx, s.batch); err != nil {
		return err
	}
	p := s.peer()
	q := p.Queue(s.queue.Name())
	if err := errors.Join(p.StartWorker(ctx), q.StartWork(ctx)); err != nil {
		return err
	}
	if _, err := s.takeFrom(ctx, q, s.batch); err != nil {
		return err
	}
	return errors.Join(end(p, ctx), p.Close())
}
