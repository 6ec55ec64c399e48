package worqr

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

// Cancel removes every waiting copy of the payload at once, and has those that
// run stopped, in whatever process: their contexts end with ErrCanceled as
// cause, and they never run again, also when their worker has died or dies
// now. Copies enqueued afterwards are not touched.
//
// It blocks until Redis has answered or ctx ends; the report's Wait blocks
// until what ran has ended. The removal takes Redis time in proportion to the
// length of the queue: 2 ms for 100,000 waiting tasks of 50 bytes.
func (q *Queue) Cancel(ctx context.Context, payload []byte) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	payload = bytes.Clone(payload) // the connection may read it for longer than this call takes
	removed, token, err := script.Cancel(ctx, q.peer.calls, q.keys, payload)
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: removed, queue: q, record: q.keys.Cancel(digest(payload)), token: token}, nil
}

// A CancelReport tells what a cancel did. The fields are set by Cancel and
// Wait; it is not safe for concurrent use.
type CancelReport struct {
	Removed  int // copies that waited
	Stopped  int // copies that ran and were stopped; after Wait
	Finished int // copies that finished before they could be stopped; after Wait

	queue  *Queue
	record string // key
	token  int64  // 0: nothing ran
}

// Wait blocks until nothing that ran when the task was canceled still runs, and
// then fills in Stopped and Finished. It fails when ctx ends or Redis cannot be
// reached; then it may be called again. What a dead worker held is waited for
// until a peer has swept it.
//
// The figures are kept for a minute after the last copy has ended. Cancels of
// the same payload that overlap share them.
func (c *CancelReport) Wait(ctx context.Context) error {
	if c.token == 0 {
		return nil
	}
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		over, err := c.read(ctx)
		if over || err != nil {
			return c.queue.wrap("wait for cancel", err)
		}
		select {
		case <-ctx.Done():
			return c.queue.wrap("wait for cancel", context.Cause(ctx))
		case <-time.After(jitter(pause)):
		}
	}
}

// recordFields is how many fields the record has besides one for each worker
// that is still to acknowledge.
const recordFields = 3

func (c *CancelReport) read(ctx context.Context) (over bool, err error) {
	replies := c.queue.peer.calls.Do(ctx,
		redisconn.Command("HLEN", c.record),
		redisconn.Command("HMGET", c.record, "stopped", "finished"))
	left, err := redis.Int(replies[0].Value, replies[0].Err)
	if err != nil {
		return false, err
	}
	figures, err := redis.Ints(replies[1].Value, replies[1].Err)
	if err != nil {
		return false, err
	}
	if left > recordFields {
		return false, nil
	}
	if left == recordFields {
		c.Stopped, c.Finished = figures[0], figures[1]
	}
	return true, nil
}

// drop ends a canceled process for good.
func (t *Task) drop(ctx context.Context) error {
	err := t.settle(ctx, script.Drop)
	if errors.Is(err, ErrLost) {
		return nil // whoever took it away from us has dropped it
	}
	return t.wrap("drop task", err)
}

// cancels is what a worker knows of the cancels on a queue.
//
// The truth is the cancel log: its entries come with the answers to rounds, and
// cover the processes with a lower token. A message on the cancel channel only
// has the worker make a round. When that tells of no such entry, the message
// came from somebody who does not write the log, and then, as well as can be
// done, it stops what was held when it came.
type cancels struct {
	open  map[string]int64     // digest → token, told of and not acknowledged
	heard map[string]heard     // digest → message without an entry
	ahead map[string]time.Time // digest → when an entry was told of whose message is still to come
}

// heard is a message for which a round has to tell whether the log knows it.
type heard struct {
	round     int64
	processes map[string]bool
}

// messageLate is how long after its entry a cancel message may come.
const messageLate = 5 * time.Second

// hear takes in a message. The round with the given number will be made after
// it came.
func (c *cancels) hear(payload []byte, held map[string]*Task, round int64) {
	d := digest(payload)
	if t, ok := c.ahead[d]; ok {
		delete(c.ahead, d)
		if time.Since(t) < messageLate {
			return
		}
	}
	h := heard{round, map[string]bool{}}
	for id, t := range held {
		if t.digest == d {
			h.processes[id] = true
		}
	}
	if c.heard == nil {
		c.heard = map[string]heard{}
	}
	c.heard[d] = h
}

// told takes in an entry of the log.
func (c *cancels) told(e script.Cancellation) {
	if c.open == nil {
		c.open, c.ahead = map[string]int64{}, map[string]time.Time{}
	}
	c.open[e.Digest] = e.Token
	if _, ok := c.heard[e.Digest]; ok {
		delete(c.heard, e.Digest)
		return
	}
	for d, t := range c.ahead {
		if time.Since(t) >= messageLate {
			delete(c.ahead, d)
		}
	}
	c.ahead[e.Digest] = time.Now()
}

// missed forgets which messages are to come: there was a gap.
func (c *cancels) missed() { clear(c.ahead) }

// foreign cancels what was heard of before the round with the given number,
// which has been answered and did not tell of it.
func (c *cancels) foreign(held map[string]*Task, round int64) {
	for d, h := range c.heard {
		if h.round > round {
			continue
		}
		delete(c.heard, d)
		for id := range h.processes {
			if t := held[id]; t != nil {
				t.cancel(ErrCanceled)
			}
		}
	}
}

// apply cancels what the entries cover, and returns those of which nothing is
// left, to be acknowledged.
func (c *cancels) apply(held map[string]*Task) (acks []script.Cancellation) {
	for d, token := range c.open {
		left := false
		for _, t := range held {
			if t.Token < token && t.digest == d {
				t.cancel(ErrCanceled)
				left = true
			}
		}
		if !left {
			delete(c.open, d)
			acks = append(acks, script.Cancellation{Digest: d, Token: token})
		}
	}
	return acks
}
