package script

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	stage  = load("stage")
	commit = load("commit")
	haul   = load("haul")
)

// ErrBatch is why a large enqueue was refused: Redis lost its first pages while the
// others were sent. Nothing was enqueued.
var ErrBatch = errors.New("pages of the batch are missing: Redis lost them, or they took more than a minute to send")

const (
	pageLength = 5000    // payloads that one call enqueues
	pageSize   = 2 << 20 // and their bytes, unless it is one
	stageTTL   = time.Minute
	attempts   = 3 // of a call whose reply is lost
)

// firstPage is how many of the payloads one call enqueues.
func firstPage(payloads [][]byte) int {
	size := 0
	for i, p := range payloads {
		if size += len(p); i == pageLength || i > 0 && size > pageSize {
			return i
		}
	}
	return len(payloads)
}

// Spans reports whether the payloads are too many for one call, and so a batch.
func Spans(payloads [][]byte) bool { return firstPage(payloads) < len(payloads) }

// A Batch is an enqueue of more than one page: all payloads or none. The pages are put
// aside one by one, accepted in one step, and then moved to the queue page by page. What
// was accepted and not moved, since its producer died, is moved by whoever serves the
// queue.
type Batch struct {
	ID     string // that no other has
	Nonce  string // of EnqueueOnce; "": none
	Window time.Duration
}

// Enqueue enqueues the payloads; fresh is false if it has been done with this nonce within
// the window. A call whose reply is lost is repeated. It fails with ErrUnknown only if the
// outcome of the commit is unknown, and otherwise leaves nothing.
func (b Batch) Enqueue(ctx context.Context, r Runner, q keys.Queue, payloads [][]byte) (fresh bool, err error) {
	key, sent := q.Batch(b.ID), 0
	for rest := payloads; len(rest) > 0; {
		n := firstPage(rest)
		call := stage.Call([]string{key}, sent, stageTTL.Milliseconds()).With(redisconn.Copy(rest[:n]))
		if _, _, err := insist(ctx, r, call); err != nil {
			b.abandon(ctx, r, q)
			return false, settledAs(err)
		}
		sent, rest = sent+n, rest[n:]
	}
	nonce, window := b.Nonce, b.Window
	if nonce == "" {
		nonce, window = b.ID, stageTTL // by which a copy of the commit is known
	}
	v, unknown, err := insist(ctx, r, commit.Call([]string{key, q.Batches(), q.Once(nonce)},
		q.Channel(keys.KindEnqueue), b.ID, len(payloads), window.Milliseconds()))
	fresh, err = redis.Bool(v, err)
	switch {
	case unknown && err != nil:
		if !errors.Is(err, redisconn.ErrUnknown) {
			err = fmt.Errorf("%w: %w", redisconn.ErrUnknown, err)
		}
		return false, err // what is there may be accepted
	case err != nil || !fresh:
		b.abandon(ctx, r, q)
		return false, err
	}
	_ = Haul(ctx, r, q) // if it fails, whoever serves the queue goes on
	return true, nil
}

// settledAs makes what is unknown of a page known: it has no effect without a commit.
func settledAs(err error) error {
	if errors.Is(err, redisconn.ErrUnknown) {
		return fmt.Errorf("nothing was enqueued: %s", err)
	}
	return err
}

// abandon removes the pages; if that fails, they vanish on their own.
func (b Batch) abandon(ctx context.Context, r Runner, q keys.Queue) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = r.One(ctx, redisconn.Command("UNLINK", q.Batch(b.ID)))
}

// insist makes a call that may be repeated, again when its reply was lost. Unknown tells
// that one was.
func insist(ctx context.Context, r Runner, c redisconn.Call) (v any, unknown bool, err error) {
	for range attempts {
		v, err = do(ctx, r, c)
		if !errors.Is(err, redisconn.ErrUnknown) || ctx.Err() != nil {
			return v, unknown || errors.Is(err, redisconn.ErrUnknown), err
		}
		unknown = true
	}
	return v, unknown, err
}

// Haul moves what was accepted to the queue.
func Haul(ctx context.Context, r Runner, q keys.Queue) error {
	call := haul.Call([]string{q.Waiting(), q.Idle(), q.Batches()}, q.Wake(""), q.Batch(""))
	for {
		v, _, err := insist(ctx, r, call)
		left, err := redis.Int(v, err)
		if err != nil || left == 0 {
			return err
		}
	}
}

// HaulAll is Haul where a batch may be left of a producer that died. It asks first, since
// there hardly ever is.
func HaulAll(ctx context.Context, r Runner, q keys.Queue) error {
	there, err := redis.Bool(r.One(ctx, redisconn.Command("EXISTS", q.Batches())))
	if err != nil || !there {
		return err
	}
	return Haul(ctx, r, q)
}
