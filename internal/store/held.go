package store

import (
	"context"
	"math"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// A Fetched is the task of an attempt.
type Fetched struct {
	Name   string // "" for a raw task
	Record Record // of a raw task only the payload
}

// Fetch reads the task of an attempt; nil if the attempt has ended, or Redis has lost the task.
func (s *View) Fetch(ctx context.Context, attempt string) (*Fetched, error) {
	list := s.Keys.Process(attempt)
	text, err := readText(s.Calls.One(ctx, redisconn.Command("LINDEX", list, 0)))
	if err != nil || text == nil {
		return nil, err
	}
	if !strings.HasSuffix(attempt, "n") {
		return &Fetched{Record: Record{Payload: text}}, nil
	}
	name := string(text)
	record, err := readText(s.Calls.One(ctx, redisconn.Command("HGET", s.Keys.Tasks(), name)))
	if err != nil || record == nil {
		return nil, err
	}
	// Only now, since the record may be that of another attempt unless this one still has the name.
	held, err := redis.Bool(s.Calls.One(ctx, redisconn.Command("EXISTS", list)))
	if err != nil || !held {
		return nil, err
	}
	return &Fetched{name, ReadRecord(record, s.Keys.IsFailed())}, nil
}

// readText reads a reply that is a string or nothing.
func readText(v any, err error) ([]byte, error) {
	text, err := redis.Bytes(v, err)
	if err == redis.ErrNil {
		return nil, nil
	}
	return text, err
}

// CanceledAt returns the last token when a payload was canceled; negative: it wasn't within the last minute.
func (s *View) CanceledAt(ctx context.Context, payload Digest) (token int64, err error) {
	text, err := readText(s.Calls.One(ctx, redisconn.Command("GET", s.Keys.CanceledBy(payload.String()))))
	if err != nil || text == nil {
		return -1, err
	}
	return numberIn(string(text)), nil
}

// Held returns what a worker holds, according to Redis: attempt → token. An attempt that starts or ends meanwhile may be
// among them or not.
func (s *View) Held(ctx context.Context, worker string) (map[string]int64, error) {
	held := map[string]int64{}
	// In reverse, so that one that is canceled meanwhile, and gets a negative token, comes later, maybe again.
	of := &ranking{by: s.Calls, key: s.Keys.Working(worker), reverse: true}
	for {
		page, err := of.page(ctx)
		if err != nil || len(page) == 0 {
			return held, err
		}
		for _, m := range page {
			held[m.name] = whole(math.Abs(m.score))
		}
	}
}

// Leave ends the worker's membership, and returns all its tasks. It answers how many tasks were returned.
func (s *View) Leave(ctx context.Context, worker string, round int64) (returned int, err error) {
	return Leave(ctx, s.Control, s.Shared, worker, round)
}
