package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/hibiken/asynq"

	"github.com/worqr/worqr/internal/redistest"
)

// An asynqSystem is asynq with its defaults, except for more connections.
type asynqSystem struct {
	at     asynq.RedisClientOpt
	queues []string
	sender *asynq.Client
	conn   redis.Conn // for counting
}

func openAsynq(t testing.TB, url string, queues []string) system {
	at := asynq.RedisClientOpt{Addr: strings.TrimPrefix(url, "redis://"), PoolSize: 100}
	return &asynqSystem{at: at, queues: queues, sender: asynq.NewClient(at), conn: redistest.Dial(t, url)}
}

// producer enqueues one by one: this version of asynq has no call for several tasks.
func (s *asynqSystem) producer(_ testing.TB, queue string) func([][]byte) error {
	return func(payloads [][]byte) error {
		for _, p := range payloads {
			if _, err := s.sender.Enqueue(asynq.NewTask("bench", p), asynq.Queue(queue)); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s *asynqSystem) work(t testing.TB, handlers int, handle func([]byte)) {
	weights := map[string]int{}
	for _, q := range s.queues {
		weights[q] = 1
	}
	server := asynq.NewServer(s.at, asynq.Config{Concurrency: handlers, Queues: weights, LogLevel: asynq.ErrorLevel})
	redistest.Must(t, server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	})))
}

func (s *asynqSystem) left(t testing.TB) (n int) {
	for _, list := range []string{"pending", "active"} {
		n += redistest.Sure(redis.Int(s.conn.Do("LLEN", fmt.Sprintf("asynq:{%s}:%s", s.queues[0], list))))(t)
	}
	return n
}
