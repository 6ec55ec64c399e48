package script

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
)

var (
	enqueue       = load("enqueue")
	enqueueOnce   = load("enqueue_once")
	enqueueUnique = load("enqueue_unique")
	cancel        = load("cancel")
	pause         = load("pause")
	resume        = load("resume")
	deleteQueue   = load("delete")
)

// Enqueue adds payloads to the back of the queue, all or none.
func Enqueue(ctx context.Context, r Runner, q keys.Queue, payloads [][]byte) error {
	args := with(payloads, q.Wake(""), q.Channel(keys.KindEnqueue))
	_, err := do(ctx, r, enqueue.Call([]string{q.Waiting(), q.Idle()}, args...))
	return err
}

// EnqueueOnce is Enqueue unless it has been done with this nonce within the
// window; fresh tells.
func EnqueueOnce(ctx context.Context, r Runner, q keys.Queue, nonce string, window time.Duration, payloads [][]byte) (fresh bool, err error) {
	args := with(payloads, q.Wake(""), q.Channel(keys.KindEnqueue), window.Milliseconds())
	return redis.Bool(do(ctx, r, enqueueOnce.Call([]string{q.Waiting(), q.Idle(), q.Once(nonce)}, args...)))
}

// EnqueueUnique adds the payload unless an equal unique one waits or runs;
// then it fails with ErrDuplicate.
func EnqueueUnique(ctx context.Context, r Runner, q keys.Queue, payload []byte) error {
	_, err := do(ctx, r, enqueueUnique.Call([]string{q.Waiting(), q.Idle(), q.Unique()},
		q.Wake(""), q.Channel(keys.KindEnqueue), payload))
	return err
}

func with(payloads [][]byte, args ...any) []any {
	all := make([]any, 0, len(args)+len(payloads))
	all = append(all, args...)
	for _, p := range payloads {
		all = append(all, p)
	}
	return all
}

// Cancel removes the payload's waiting copies and logs the cancel for the
// running ones. The token is 0 when nothing runs.
func Cancel(ctx context.Context, r Runner, q keys.Queue, payload []byte) (removed int, token int64, err error) {
	d := decode(do(ctx, r, cancel.Call(shared(q), prefixes(q, q.Channel(keys.KindCancel), payload)...)))
	return int(d.int()), d.int(), d.err
}

// Pause keeps every worker from starting tasks.
func Pause(ctx context.Context, r Runner, q keys.Queue) error {
	_, err := do(ctx, r, pause.Call([]string{q.Paused()}))
	return err
}

// Resume ends a pause and wakes idle workers.
func Resume(ctx context.Context, r Runner, q keys.Queue) error {
	_, err := do(ctx, r, resume.Call([]string{q.Paused(), q.Waiting(), q.Idle()}, q.Wake("")))
	return err
}

// Delete drops what waits and the locks on it.
func Delete(ctx context.Context, r Runner, q keys.Queue) error {
	for cursor, first := "0", 1; ; first = 0 {
		next, err := redis.String(do(ctx, r, deleteQueue.Call([]string{q.Waiting(), q.Unique()},
			q.Channel(keys.KindDelete), cursor, first)))
		if err != nil || next == "0" {
			return err
		}
		cursor = next
	}
}
