package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"
	"github.com/hibiken/asynq"
)

// An asynqSystem is asynq with its defaults, but for more connections than it
// would make by itself.
type asynqSystem struct {
	at     asynq.RedisClientOpt
	queues []string
	sender *asynq.Client
	conn   redis.Conn // to count
}

func openAsynq(url string, queues []string) (system, error) {
	conn, err := redis.DialURL(url)
	if err != nil {
		return nil, err
	}
	at := asynq.RedisClientOpt{Addr: strings.TrimPrefix(url, "redis://"), PoolSize: 100}
	return &asynqSystem{at: at, queues: queues, sender: asynq.NewClient(at), conn: conn}, nil
}

// producer enqueues one by one: this version has no call for many.
func (s *asynqSystem) producer(queue string) (func([][]byte) error, error) {
	return func(payloads [][]byte) error {
		for _, p := range payloads {
			if _, err := s.sender.Enqueue(asynq.NewTask("bench", p), asynq.Queue(queue)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (s *asynqSystem) work(handlers int, handle func([]byte)) error {
	weights := map[string]int{}
	for _, q := range s.queues {
		weights[q] = 1
	}
	server := asynq.NewServer(s.at, asynq.Config{Concurrency: handlers, Queues: weights, LogLevel: asynq.ErrorLevel})
	return server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	}))
}

func (s *asynqSystem) hold(n int) error {
	var held atomic.Int64
	err := s.work(n, func([]byte) {
		held.Add(1)
		select {}
	})
	if err != nil {
		return err
	}
	return reaches("asynq holds all tasks", &held, n)
}

func (s *asynqSystem) left() (n int, err error) {
	for _, list := range []string{"pending", "active"} {
		length, err := redis.Int(s.conn.Do("LLEN", fmt.Sprintf("asynq:{%s}:%s", s.queues[0], list)))
		if err != nil {
			return 0, err
		}
		n += length
	}
	return n, nil
}
