package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	// ErrBatch says that a large enqueue was refused because Redis lost its first pages before the
	// last one was sent. Nothing was enqueued.
	ErrBatch = errors.New("pages of the batch are missing: Redis lost them, or they took more than a minute to send")
	// ErrUnmoved says that an enqueue was refused until Haul is called, so that it goes behind a
	// batch that was accepted earlier.
	ErrUnmoved = errors.New("an earlier batch must be moved to the queue first")
)

// PageLength is how many payloads one call enqueues at most. It's a variable because
// simulations of batches need small ones; nothing else changes it.
var PageLength = 2500

const (
	pageSize = 2 << 20 // bytes of a page, unless it is one payload
	stageTTL = time.Minute
	attempts = 3 // tries of a call whose reply is lost

	putAside   = 1 << 52 // score of a batch whose tasks are gone
	maxBatches = 1000    // listed by one read at most
)

// firstPage returns how many of the payloads one call enqueues.
func firstPage(payloads [][]byte) int {
	size := 0
	for i, p := range payloads {
		if size += len(p); i == PageLength || i > 0 && size > pageSize {
			return i
		}
	}
	return len(payloads)
}

// Spans reports whether the payloads are too many for one call, so that they need a batch.
func Spans(payloads [][]byte) bool { return firstPage(payloads) < len(payloads) }

// A Batch is an enqueue of more than one page: all payloads or none. The pages are stored
// separately one by one, accepted in one step, and then moved to the queue page by page (Haul).
// If the producer dies before it has moved them, any worker of the queue or the next
// producer moves them.
type Batch struct {
	ID     string // unique
	Nonce  string // of EnqueueOnce; "": none
	Window time.Duration
}

// Enqueue enqueues the payloads. fresh is false if a call with this nonce has enqueued some within
// the window. Enqueue repeats a call whose reply is lost. It fails with ErrUnknown only if the
// outcome of the commit is unknown. After any other error, nothing is left in Redis.
func (b Batch) Enqueue(ctx context.Context, r Runner, q keys.Queue, payloads [][]byte) (fresh bool, err error) {
	sent := 0
	for rest := payloads; len(rest) > 0; {
		n := firstPage(rest)
		call := stage.call(q, "batch", b.ID, "before", sent, "ttl", stageTTL.Milliseconds(), "payload", redisconn.Payloads(ctx, rest[:n]))
		if _, _, err := surely(ctx, r, call); err != nil {
			b.abandon(ctx, r, q)
			return false, NotEnqueued(err)
		}
		sent, rest = sent+n, rest[n:]
	}
	nonce, window := b.Nonce, b.Window
	if nonce == "" {
		nonce, window = b.ID, stageTTL // identify a copy of the commit
	}
	v, unknown, err := surely(ctx, r, commit.call(q, "batch", b.ID, "once", nonce,
		"id", b.ID, "count", len(payloads), "window", window.Milliseconds()))
	a := commit.read(v, err)
	fresh, err = a.int("fresh") == 1, a.err
	switch {
	case unknown && err != nil:
		if !errors.Is(err, redisconn.ErrUnknown) {
			err = fmt.Errorf("%w: %w", redisconn.ErrUnknown, err)
		}
		return false, err // the pages may have been accepted
	case err != nil || !fresh:
		b.abandon(ctx, r, q)
	}
	return fresh, err
}

// NotEnqueued removes ErrUnknown from an error. It's for calls after which nothing is enqueued,
// whether Redis carried them out or not.
func NotEnqueued(err error) error {
	if errors.Is(err, redisconn.ErrUnknown) {
		return fmt.Errorf("nothing was enqueued: %s", err)
	}
	return err
}

// abandon removes the pages; if that fails, they expire.
func (b Batch) abandon(ctx context.Context, r Runner, q keys.Queue) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = r.One(ctx, redisconn.Command("UNLINK", q.Batch(b.ID)))
}

// surely makes a call that may be repeated, and repeats it if the reply is lost. unknown reports
// whether a reply was lost.
func surely(ctx context.Context, r Runner, c redisconn.Call) (v any, unknown bool, err error) {
	for range attempts {
		v, err = r.One(ctx, c)
		if err = Refusal(err); !errors.Is(err, redisconn.ErrUnknown) || ctx.Err() != nil {
			return v, unknown || errors.Is(err, redisconn.ErrUnknown), err
		}
		unknown = true
	}
	return v, unknown, err
}

// Damage lists what Haul has set aside: batches whose tasks are gone or overwritten.
type Damage struct {
	Batches int
	Key     string // of the first
}

// Haul moves all accepted batches to the queue.
func Haul(ctx context.Context, r Runner, q keys.Queue) (damage Damage, err error) {
	call := haul.call(q)
	for {
		v, _, err := surely(ctx, r, call)
		a := haul.read(v, err)
		left := a.int("left")
		a.each("damaged", func(d *decoder) {
			if id := d.string(); damage.Batches == 0 {
				damage.Key = q.Batch(id)
			}
			damage.Batches++
		})
		if a.err != nil || left == 0 {
			return damage, a.err
		}
	}
}

// UnmovedCall asks for the batches that haven't been moved to the queue yet, in their order.
func UnmovedCall(q keys.Queue) redisconn.Call {
	return redisconn.Command("ZRANGE", q.Batches(), "-inf", "("+strconv.FormatInt(putAside, 10), "BYSCORE", "LIMIT", 0, maxBatches)
}
