package store

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/keys"
)

// A Receipt is the answer to a cancel.
type Receipt struct {
	Name    string // the digest of the payload, or the entry
	Removed int
	Token   int64     // covers tasks started before it; 0 if none runs
	Tally   Tally     // of earlier cancels with the same name
	seen    time.Time // when the record was last seen
	lost    bool      // the record disappeared too early
}

// A Tally counts how the running tasks covered by the cancels of one name have ended.
type Tally struct {
	Stopped, Finished int
}

// maxStalls is how many pages in a row may make no progress. A page makes no progress if more tasks
// have started since the previous page than it can remove.
const maxStalls = 1000

// Cancel removes the payload's waiting copies, in pages, and records the cancel for the running
// ones.
func Cancel(ctx context.Context, r Runner, q keys.Queue, payload []byte) (Receipt, error) {
	sum := sha1.Sum(payload)
	c := Receipt{Name: hex.EncodeToString(sum[:])}
	left, since, after, until := int64(-1), int64(0), "", ""
	least, stalls := int64(math.MaxInt64), 0
	for {
		a := cancel.ask(ctx, r, q, "payload", payload, "left", left, "since", since, "after", after, "until", until)
		c.add(a)
		at := after
		left, since, after, until = a.int("left"), a.int("since"), a.string("after"), a.string("until")
		if a.err != nil || left == 0 && until == "" {
			return c, a.err
		}
		if left < least || after > at {
			least, stalls = min(least, left), 0
		} else if stalls++; stalls == maxStalls {
			return c, errors.New("tasks start faster than the cancel can remove them; pause the queue and cancel again")
		}
	}
}

// CancelKey removes the task that waits under the entry, and records the cancel for the one that
// runs.
func CancelKey(ctx context.Context, r Runner, q keys.Queue, entry string) (Receipt, error) {
	c := Receipt{Name: entry}
	a := cancelKey.ask(ctx, r, q, "entry", entry)
	c.add(a)
	return c, a.err
}

func (c *Receipt) add(a *answer) {
	removed, token, tally := int(a.int("removed")), a.int("token"), Tally{int(a.int("stopped")), int(a.int("finished"))}
	c.Removed += removed
	if token > 0 {
		if c.Token == 0 {
			c.Tally = tally
		}
		c.Token, c.seen = token, time.Now()
	}
}

// ReadCancel reads a message about a canceled payload. The message of a large payload has only
// the digest and the length, and the returned payload is nil.
func ReadCancel(message []byte) (payload []byte, digest string, size int) {
	if rest, ok := bytes.CutPrefix(message, []byte("sha1:")); ok && len(rest) < 64 {
		of, length, _ := strings.Cut(string(rest), ":")
		if n, err := strconv.Atoi(length); err == nil && n >= 0 && isDigest(of) {
			return nil, of, n
		}
	}
	sum := sha1.Sum(message)
	return message, hex.EncodeToString(sum[:]), len(message)
}

// isDigest reports whether a name is a digest; no entry has such a name.
func isDigest(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(name) == 2*sha1.Size
}
