package worqr

import (
	"bytes"
	"context"
	"encoding/hex"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

// Cancel removes every waiting copy of the payload at once, in both lanes, and has those that
// run stopped, in whatever process: their contexts end with ErrCanceled as
// cause, and they never run again, also when their worker has died or dies
// now. Copies enqueued afterwards are not touched.
//
// It blocks until Redis has answered or ctx ends; the report's Wait blocks
// until what ran has ended. The removal takes Redis time in proportion to the
// length of the list, 2 ms for 100,000 waiting tasks of 50 bytes, and to the number
// of keys that wait with this payload, about 6 µs each.
func (q *Queue) Cancel(ctx context.Context, payload []byte) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	if len(payload) > MaxPayload {
		return nil, q.wrap("cancel", tooLarge("a payload of %d bytes; at most %d", len(payload), MaxPayload))
	}
	payload = bytes.Clone(payload) // the connection may read it for longer than this call takes
	removed, token, err := script.Cancel(ctx, q.peer.calls, q.keys, payload)
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: removed, queue: q, record: q.keys.Cancel(digest(payload)), token: token}, nil
}

// CancelKey removes what waits under the key and has what runs of it stopped, as
// Cancel does for a payload. What is put under the key afterwards is not
// touched. It fails with ErrBadOption when the key makes no sense.
func (q *Queue) CancelKey(ctx context.Context, key string) (*CancelReport, error) {
	if q.bad != nil {
		return nil, q.wrap("cancel", q.bad)
	}
	if err := checkKey(key); err != nil {
		return nil, q.wrap("cancel", err)
	}
	removed, token, err := script.CancelKey(ctx, q.peer.calls, q.keys, keyMark+key)
	if err != nil {
		return nil, q.wrap("cancel", err)
	}
	return &CancelReport{Removed: removed, queue: q, record: q.keys.Cancel(keyMark + key), token: token}, nil
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

// cancels is what a worker knows of the cancels on a queue.
//
// The truth is in Redis: entries of the cancel log come with the answers to
// rounds, and cover the processes with a lower token. A message on the cancel
// channel only has the worker ask, with its next round, for the token of that
// cancel. When none is on record the message came from somebody who keeps no
// records, and then, as well as can be done, it stops what was held when it
// came.
type cancels struct {
	open  map[string]int64           // name → token, told of and not acknowledged
	heard map[string]map[string]bool // digest → processes held when its message came
}

// hear takes in a message.
func (c *cancels) hear(payload []byte, held map[string]*Task) {
	d := digest(payload)
	if c.heard == nil {
		c.heard = map[string]map[string]bool{}
	}
	if c.heard[d] == nil {
		c.heard[d] = map[string]bool{}
	}
	for id, t := range held {
		if covers(d, t) {
			c.heard[d][id] = true
		}
	}
}

// ask returns what to ask for, at most n digests.
func (c *cancels) ask(n int) (digests []string) {
	for d := range c.heard {
		if len(digests) == n {
			break
		}
		digests = append(digests, d)
	}
	return digests
}

// learn takes in the tokens of what was asked for.
func (c *cancels) learn(digests []string, tokens []int64, held map[string]*Task) {
	for i, d := range digests {
		processes := c.heard[d]
		delete(c.heard, d)
		for id, t := range held {
			if covers(d, t) && (i < len(tokens) && t.Token < tokens[i] || i < len(tokens) && tokens[i] == 0 && processes[id]) {
				t.end(ErrCanceled)
			}
		}
	}
}

// told takes in an entry of the log.
func (c *cancels) told(e script.Cancellation) {
	if c.open == nil {
		c.open = map[string]int64{}
	}
	c.open[e.Name] = e.Token
}

// apply cancels what the entries cover, and returns those of which nothing is
// left, to be acknowledged.
func (c *cancels) apply(held map[string]*Task) (acks []script.Cancellation) {
	for name, token := range c.open {
		left := false
		for _, t := range held {
			if t.Token < token && covers(name, t) {
				t.end(ErrCanceled)
				left = true
			}
		}
		if !left {
			delete(c.open, name)
			acks = append(acks, script.Cancellation{Name: name, Token: token})
		}
	}
	return acks
}

// covers reports whether a cancel by this name is of the task: by the digest of
// its payload, or by its key.
func covers(name string, t *Task) bool {
	if len(name) == 2*len(t.digest) {
		var hexed [2 * len(t.digest)]byte
		hex.Encode(hexed[:], t.digest[:])
		if string(hexed[:]) == name {
			return true
		}
	}
	return t.entry == name && name != ""
}
