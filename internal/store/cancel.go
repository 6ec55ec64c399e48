package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	cancel = verb("cancel")
	mark   = verb("mark")
	remove = verb("remove")
)

// A Receipt is the answer to a cancel.
type Receipt struct {
	Removed  int      // how many tasks were waiting
	Attempts []string // that must stop

	digest string // of the payload; "" if a key was canceled
	token  int64  // attempts up to this one are covered
}

// Cancel removes the tasks with a payload that wait, and marks those that run, so that they stop and
// don't wait again. Nothing of the payload may change until it has returned. If it fails half-way, call
// it again. It fails with ErrLost if Redis loses the cancel meanwhile.
func Cancel(ctx context.Context, r Runner, q keys.Queue, payload []byte) (Receipt, error) {
	s, c := SharedOf(q), Receipt{digest: fmt.Sprintf("%x", sha1.Sum(payload))}
	for after := ""; ; {
		in := read(r.One(ctx, cancel.call(s, payload, after)))
		removed, next := in.int(), in.next()
		c.token = in.int()
		workers := in.strings()
		if in.err != nil {
			return c, in.err
		}
		c.Removed += int(removed)
		if next == nil {
			return c, c.mark(ctx, r, s, payload, workers)
		}
		if after = string(as[[]byte](next, &in.err, "a string")); in.err != nil {
			return c, in.err
		}
	}
}

// A page of mark is a worker's attempts above a token.
type page struct {
	worker string
	after  int64
}

// mark marks the attempts of all workers that hold something. If Redis refuses some, it goes on with the
// others.
func (c *Receipt) mark(ctx context.Context, r Runner, s *Shared, payload []byte, workers []string) (err error) {
	most := max(min(perPage, listBytes/max(len(payload), 1)), 1) // calls in flight
	var pages []page
	for some := range slices.Chunk(workers, perPage) {
		held, err := existing(ctx, r, some, s.q.Working, true)
		if err != nil {
			return err
		}
		for _, w := range held {
			pages = append(pages, page{worker: w})
		}
	}
	for len(pages) > 0 {
		some := pages[:min(most, len(pages))]
		pages = pages[len(some):]
		call := func(p page) redisconn.Call { return mark.call(s, payload, c.token, p.worker, p.after) }
		for i, reply := range doEach(ctx, r, some, call) {
			in := read(reply.Value, reply.Err)
			upTo, found := in.int(), in.strings()
			c.Attempts = append(c.Attempts, found...)
			switch {
			case errors.Is(in.err, ErrLost) || in.err != nil && !IsAnswer(in.err):
				return in.err
			case in.err != nil:
				err = in.err
			case upTo < c.token && upTo > some[i].after:
				pages = append(pages, page{some[i].worker, upTo})
			}
		}
	}
	return err
}

// CancelKey removes the task that waits under a name, also behind one that runs, and marks that one, so
// that it stops and doesn't wait again.
func CancelKey(ctx context.Context, r Runner, q keys.Queue, name string) (Receipt, error) {
	removed, attempt, err := readRemove(reply(r.One(ctx, remove.call(SharedOf(q), name, EndCanceled))))
	c := Receipt{Removed: flag(removed)}
	if attempt != "" {
		c.Attempts = []string{attempt}
	}
	return c, err
}

// Remove deletes the task that waits under a name, also behind one that runs. It reports whether one did.
func Remove(ctx context.Context, r Runner, q keys.Queue, name string) (bool, error) {
	removed, _, err := readRemove(reply(r.One(ctx, remove.call(SharedOf(q), name, EndRemoved))))
	return removed, err
}

// readRemove reads the reply to a call of remove: whether a task waited, and the attempt that must stop, if
// the task was canceled.
func readRemove(r redisconn.Reply) (removed bool, attempt string, err error) {
	in := read(r.Value, r.Err)
	return in.int() > 0, in.string(), in.err
}

// IsOver reports whether all attempts that the cancel found have ended. It keeps the cancel known, and
// fails with ErrLost if Redis has lost it: then nothing is known about the attempts either. It must be
// called at least every 30 s, and not concurrently.
func (c *Receipt) IsOver(ctx context.Context, r Runner, q keys.Queue) (bool, error) {
	if len(c.Attempts) == 0 {
		return true, nil
	}
	all := c.Attempts
	for len(c.Attempts) > 0 {
		from := max(0, len(c.Attempts)-perPage)
		left, err := existing(ctx, r, c.Attempts[from:], q.Process, true)
		if err != nil {
			return false, err
		}
		c.Attempts = append(c.Attempts[:from:from], left...)
		if len(left) > 0 {
			break
		}
	}
	if err := c.renew(ctx, r, q); err != nil {
		c.Attempts = all // so that the next call fails, too
		return false, err
	}
	return len(c.Attempts) == 0, nil
}

// renew keeps the cancel known. It comes after the reads of lists: if Redis has lost one of them, it has
// lost the cancel, too, which is later.
func (c *Receipt) renew(ctx context.Context, r Runner, q keys.Queue) error {
	if c.digest == "" {
		return nil
	}
	key := q.CanceledBy(c.digest)
	replies := r.Do(ctx, redisconn.Command("GET", key), redisconn.Command("PEXPIRE", key, 60_000))
	token, err := redis.String(replies[0].Value, replies[0].Err)
	if errors.Is(err, redis.ErrNil) || err == nil && numberIn(token) < c.token {
		return ErrLost
	}
	return cmp.Or(err, replies[1].Err)
}

// CanceledBy returns the digest of the payload that a message about a cancel names.
func CanceledBy(message []byte) Digest {
	_, digest, _ := ReadCancel(message)
	return DigestIn("u:" + digest)
}

// ReadCancel reads a message about a canceled payload. The message of a large payload has only the
// digest and the length, and the returned payload is nil.
func ReadCancel(message []byte) (payload []byte, digest string, size int) {
	if rest, ok := bytes.CutPrefix(message, []byte("sha1:")); ok && len(rest) < 64 {
		of, length, _ := strings.Cut(string(rest), ":")
		if n, err := strconv.ParseUint(length, 10, 31); err == nil && IsDigest(of) { // digits only, as cancel.lua has it
			return nil, of, int(n)
		}
	}
	return message, fmt.Sprintf("%x", sha1.Sum(message)), len(message)
}
