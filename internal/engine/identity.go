package engine

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// A hash is the digest of a payload, by which cancels name it.
type hash [sha1.Size]byte

func hashOf(payload []byte) hash { return sha1.Sum(payload) }

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// readHash reads a digest as Redis has it.
func readHash(digest string) (h hash, ok bool) {
	if len(digest) != 2*len(h) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(digest))
	return h, err == nil
}

// An identity is the digest of a task's payload as it was taken; the handler may change
// the payload. It takes long to compute where the payload is large. So it is computed
// beside all else, and nobody waits for it who holds a lock: what has to be compared with
// it is kept until it is known.
type identity struct {
	digest hash       // once it is known
	never  bool       // it won't be, since the payload has not come
	late   *unmatched // nil if it was known from the beginning, or never will be
}

// What is unmatched waits for a digest: cancels, protected by Session.mu.
type unmatched struct {
	known    chan struct{}        // closed when the digest is known
	logged   []store.Cancellation // entries of the log
	messages []hash               // on the channel, maxUnmatched at most
	flooded  bool                 // there were more
}

// maxUnmatched is how many cancel messages are kept until a digest is known. Of a task
// with more, the token of its cancel is asked for without any message.
const maxUnmatched = 1000

// isKnown reports whether the digest is known, or never will be, without waiting.
func (i *identity) isKnown() bool {
	if i.late == nil {
		return true
	}
	select {
	case <-i.late.known:
		return true
	default:
		return false
	}
}

// wait waits until the digest is known, if it will be. From then on the payload may change.
func (i *identity) wait() {
	if i.late != nil {
		<-i.late.known
	}
}

// identify computes the digest of a task that has just been taken, if that takes long, and
// then applies the cancels that came meanwhile. It takes the lock of the session.
func (r *Session) identify(t *Attempt) {
	if before := r.engine.BeforeDigest; before != nil {
		before(t.Payload)
	}
	t.digest = hashOf(t.Payload)
	late := t.late
	close(late.known)
	r.mu.Lock()
	defer r.mu.Unlock()
	logged, messages := late.logged, late.messages
	late.logged, late.messages = nil, nil
	if len(logged) > 0 {
		r.unmatched--
	}
	if r.held[t.ID] != t {
		return
	}
	alone := map[string]*Attempt{t.ID: t}
	coverAllLocked(logged, alone)
	if late.flooded || slices.Contains(messages, t.digest) {
		r.cancels.noteLocked(t.digest, alone)
	}
	r.dropReadyLocked()
	r.wakeLocked()
}

// identified returns tasks once their payloads may change.
func identified(tasks []*Attempt) []*Attempt {
	for _, t := range tasks {
		t.wait()
	}
	return tasks
}

// postponeLocked keeps entries of the log for the tasks whose digest is not known.
func (r *Session) postponeLocked(entries []store.Cancellation) {
	if len(entries) == 0 {
		return
	}
	for _, t := range r.held {
		if t.isKnown() {
			continue
		}
		before := len(t.late.logged)
		for _, e := range entries {
			if _, ok := readHash(e.Name); ok { // that of a key is applied already
				t.late.logged = append(t.late.logged, e)
			}
		}
		if before == 0 && len(t.late.logged) > 0 {
			r.unmatched++
		}
	}
}
