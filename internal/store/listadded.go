package store

import (
	"context"
	"errors"
	"iter"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// An AddedTask is an added task that waits.
type AddedTask struct {
	Key     string // "" if another program added it in another format
	Payload []byte
	Card    string

	id    string
	apart bool // its payload is in a hash of its own
}

func addedPayload(t AddedTask) []byte { return t.Payload }

// AddedTasks yields the added tasks that wait, oldest first.
func AddedTasks(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[AddedTask, error] {
	return rows(ctx, func() pager[AddedTask] { return added(r, q) })
}

// AddedCards is AddedTasks without large payloads.
func AddedCards(ctx context.Context, r Runner, q keys.Queue) iter.Seq2[AddedTask, error] {
	return rows(ctx, func() pager[AddedTask] { return addedItems(r, q) })
}

// added reads the added tasks that wait. A payload that is apart is read alone: it may be large.
func added(r Runner, q keys.Queue) pager[AddedTask] {
	var apart []bool // of the rest of the page
	next := func() int {
		n := 1
		for !apart[0] && n < len(apart) && !apart[n] {
			n++
		}
		apart = apart[n:]
		return n
	}
	items := each(addedItems(r, q), func(_ context.Context, page []AddedTask) ([]AddedTask, error) {
		apart = make([]bool, len(page))
		for i, t := range page {
			apart[i] = t.apart
		}
		return page, nil
	})
	return each(split(items, next), func(ctx context.Context, some []AddedTask) ([]AddedTask, error) {
		if !some[0].apart {
			return some, nil
		}
		payload, err := redis.Bytes(r.One(ctx, redisconn.Command("HGET", q.Keyed(EntryOf(some[0].Key)), "payload")))
		if errors.Is(err, redis.ErrNil) {
			return nil, nil // taken in the meantime
		}
		some[0].Payload = payload
		return some, err
	})
}

// lastID is the highest id that an item of a stream can have. Redis refuses to read after it.
const lastID = "18446744073709551615-18446744073709551615"

// addedItems reads the stream.
func addedItems(r Runner, q keys.Queue) pager[AddedTask] {
	var pace pacer
	from, over := "-", false
	return func(ctx context.Context) ([]AddedTask, error) {
		if over {
			return nil, nil
		}
		n := pace.next()
		items, err := redis.Values(r.One(ctx, redisconn.Command("XRANGE", q.Added(), from, "+", "COUNT", n)))
		if err == nil && len(items) > n {
			err = errReply
		}
		if err != nil {
			return nil, err
		}
		tasks := make([]AddedTask, len(items))
		for i, v := range items {
			t, err := addedTask(v)
			if err != nil {
				return nil, err
			}
			pace.saw(len(t.Payload) + len(t.Card))
			tasks[i], from = t, "("+t.id
		}
		over = len(items) < n || from == "("+lastID
		return tasks, nil
	}
}

// addedTask decodes an item of the stream.
func addedTask(reply any) (t AddedTask, err error) {
	parts, err := redis.Values(reply, nil)
	if err != nil || len(parts) != 2 {
		return t, errReply
	}
	if t.id, err = redis.String(parts[0], nil); err != nil {
		return t, errReply
	}
	pair, err := redis.ByteSlices(parts[1], nil)
	if err != nil || len(pair) < 2 {
		return t, errReply
	}
	t.Payload = pair[1]
	if salt, card, ok := keys.SplitField(string(pair[0])); ok && len(pair) == 2 {
		if t.Key, ok = keys.AddedKey(t.id, salt); ok {
			t.Card, t.apart = card, isApart(card)
		}
	}
	return t, nil
}

// doubtful reads the ids of items that may be damaged: those that other programs have added, and
// those whose payload is apart.
func doubtful(r Runner, q keys.Queue) pager[string] {
	return each(addedItems(r, q), func(_ context.Context, some []AddedTask) (ids []string, _ error) {
		for _, t := range some {
			if t.Key == "" || t.apart {
				ids = append(ids, t.id)
			}
		}
		return ids, nil
	})
}
