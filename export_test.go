package worqr

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/inbox"
)

// BeforeLog makes the peer call f before it logs a line, in the goroutine that logs it.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// BeforeDigest makes the peer call f before it computes the digest of a large payload. Call it
// before the worker starts.
func (p *Peer) BeforeDigest(f func(payload []byte)) { p.engine.BeforeDigest = f }

// AgreeEach sets how long the peer relies on the number of parts that it has read.
func (p *Peer) AgreeEach(d time.Duration) { p.spreads.Each = d }

// Wrap adds the verb to err, as methods do.
func Wrap(verb string, err error) error { return wrap(verb, err) }

// ResubscribeClosed makes a reader of the queue's events learn of a new part, and closes the peer
// before the reader subscribes again. It returns what the reader gets.
func (p *Peer) ResubscribeClosed(ctx context.Context, queue string) []inbox.Item {
	h := &hearing{peer: p, inbox: inbox.New(nil), queues: []*Queue{p.Queue(queue)}, stop: func() { _ = p.Close() }}
	_, _ = h.look(ctx)
	return h.inbox.Take()
}

// EachOf calls do for n parts of a queue at once.
func EachOf(n int, do func(part int) error) error {
	parts := make([]*Queue, n)
	number := map[*Queue]int{}
	for i := range parts {
		parts[i] = &Queue{}
		number[parts[i]] = i
	}
	return eachOf(parts, func(part *Queue) error { return do(number[part]) })
}
