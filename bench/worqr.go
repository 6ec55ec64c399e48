package main

import (
	"context"
	"fmt"
	"os"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A peerSystem is this library, by what it exports.
type peerSystem struct {
	url     string
	queues  []string
	parts   int                 // over which each queue is spread; 0: they are not
	options worqr.HandleOptions // but for Concurrency
	sender  *worqr.Peer
	peers   []*worqr.Peer // that work
}

func openWorqr(options worqr.HandleOptions) func(url string, queues []string) (system, error) {
	return func(url string, queues []string) (system, error) {
		sender, err := worqr.Open(url, nil)
		return &peerSystem{url: url, queues: queues, options: options, sender: sender}, err
	}
}

// An addedSystem is this library, too, with tasks that have a key and a header.
type addedSystem struct{ *peerSystem }

func openAdded(url string, queues []string) (system, error) {
	s, err := openWorqr(worqr.HandleOptions{})(url, queues)
	return addedSystem{s.(*peerSystem)}, err
}

func (s addedSystem) producer(queue string) (func([][]byte) error, error) {
	q, ctx := s.queue(s.sender, queue), context.Background()
	props := worqr.Properties{Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	return func(payloads [][]byte) error {
		if len(payloads) == 1 {
			_, err := q.Add(ctx, payloads[0], &props)
			return err
		}
		tasks := make([]worqr.TaskSpec, len(payloads))
		for i, p := range payloads {
			tasks[i] = worqr.TaskSpec{Payload: p, Properties: props}
		}
		_, err := q.AddMany(ctx, tasks)
		return err
	}, nil
}

// queue is the queue with that name, as a peer of the system has it.
func (s *peerSystem) queue(of *worqr.Peer, name string) *worqr.Queue {
	q := of.Queue(name)
	if s.parts > 0 {
		return q.Spread(s.parts)
	}
	return q
}

func (s *peerSystem) producer(queue string) (func([][]byte) error, error) {
	q, ctx := s.queue(s.sender, queue), context.Background()
	return func(payloads [][]byte) error { return q.Enqueue(ctx, payloads...) }, nil
}

func (s *peerSystem) work(handlers int, handle func([]byte)) error {
	peer, err := worqr.Open(s.url, nil)
	if err != nil {
		return err
	}
	options := s.options
	options.Concurrency = handlers
	for _, name := range s.queues {
		s.queue(peer, name).Handle(func(_ context.Context, t *worqr.Task) error {
			handle(t.Payload)
			return nil
		}, &options)
	}
	s.peers = append(s.peers, peer)
	go func() {
		if err := peer.Run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err) // and what waits for it gives up
		}
	}()
	return nil
}

func (s *peerSystem) hold(n int) error {
	ctx := context.Background()
	peer, err := s.joined()
	if err != nil {
		return err
	}
	for held := 0; held < n; {
		tasks, err := peer.Queue(s.queues[0]).StartTasks(ctx, min(n-held, 1000))
		if err != nil {
			return err
		}
		held += len(tasks)
	}
	return nil
}

// joined returns a peer that serves the queue by verbs, without handlers.
func (s *peerSystem) joined() (*worqr.Peer, error) {
	peer, err := worqr.Open(s.url, nil)
	if err != nil {
		return nil, err
	}
	if err := peer.StartWorker(context.Background()); err != nil {
		return nil, err
	}
	return peer, peer.Queue(s.queues[0]).StartWork(context.Background())
}

func (s *peerSystem) left() (int, error) {
	stats, err := s.stats()
	return stats.Waiting + stats.Scheduled + stats.Running, err
}

func (s *peerSystem) stats() (inspect.QueueStats, error) {
	return s.queue(s.sender, s.queues[0]).Stats(context.Background())
}

// finished tells how many tasks of its workers have ended in Redis. It asks
// nobody.
func (s *peerSystem) finished() (n int64) {
	for _, p := range s.peers {
		n += p.Stats().Finished
	}
	return n
}

// waiting tells how many tasks wait.
func (s *peerSystem) waiting() (int, error) {
	return s.sender.Queue(s.queues[0]).Len(context.Background())
}
