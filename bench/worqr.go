package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A peerSystem is this library, used through its exported API.
type peerSystem struct {
	url     string
	queues  []string
	fleet   *worqr.Options
	options worqr.HandleOptions // Concurrency is replaced
	sender  *worqr.Peer
	peers   []*worqr.Peer // peers that work
}

func openWorqr(fleet *worqr.Options, options worqr.HandleOptions) opens {
	return func(t testing.TB, url string, queues []string) system {
		sender := redistest.Sure(worqr.Open(url, nil))(t)
		t.Cleanup(func() { _ = sender.Close() })
		return &peerSystem{url: url, queues: queues, fleet: fleet, options: options, sender: sender}
	}
}

// An addedSystem is this library with tasks that have a key and a header.
type addedSystem struct{ *peerSystem }

func openAdded(t testing.TB, url string, queues []string) system {
	return addedSystem{openWorqr(nil, worqr.HandleOptions{})(t, url, queues).(*peerSystem)}
}

func (s addedSystem) producer(_ testing.TB, queue string) func([][]byte) error {
	q, ctx := s.sender.Queue(queue), context.Background()
	headers := map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	return func(payloads [][]byte) error {
		tasks := make([]worqr.TaskSpec, len(payloads))
		for i, p := range payloads {
			tasks[i] = worqr.TaskSpec{Payload: p, Headers: headers}
		}
		_, err := q.Add(ctx, tasks...)
		return err
	}
}

func (s *peerSystem) producer(_ testing.TB, queue string) func([][]byte) error {
	q, ctx := s.sender.Queue(queue), context.Background()
	return func(payloads [][]byte) error { return q.Enqueue(ctx, payloads...) }
}

func (s *peerSystem) work(t testing.TB, handlers int, handle func([]byte)) {
	peer := redistest.Sure(worqr.Open(s.url, s.fleet))(t)
	options := s.options
	options.Concurrency = handlers
	for _, name := range s.queues {
		peer.Queue(name).Handle(func(_ context.Context, t *worqr.Task) error {
			handle(t.Payload)
			return nil
		}, &options)
	}
	s.peers = append(s.peers, peer)
	go func() {
		if err := peer.Run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err) // the wait for its tasks will time out
		}
	}()
}

func (s *peerSystem) left(t testing.TB) int {
	stats := s.stats(t)
	return stats.Waiting + stats.Scheduled + stats.Running
}

func (s *peerSystem) stats(t testing.TB) inspect.QueueStats {
	return redistest.Sure(s.sender.Queue(s.queues[0]).Stats(context.Background()))(t)
}

// finished returns how many tasks of its workers have ended in Redis, without any calls.
func (s *peerSystem) finished() (n int64) {
	for _, p := range s.peers {
		n += p.Stats().Finished
	}
	return n
}
