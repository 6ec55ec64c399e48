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
// the payload. Computing it takes long if the payload is large. So it's computed in
// another goroutine, and nobody waits for it while holding a lock: whatever has to be compared
// with it is kept until it's known.
type identity struct {
	digest hash       // once it is known
	byKey  bool       // no cancel of the payload is about it
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

// maxUnmatched is how many cancel messages are kept until a digest is known. Beyond that, the
// token of the task's cancel is asked for without any message.
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

// isNamed reports whether a cancel of a digest is about the task, as far as its own is known.
func (i *identity) isNamed(h hash) bool { return !i.byKey && i.isKnown() && i.digest == h }

// wait waits until the digest is known, if it will be. From then on the payload may change.
func (i *identity) wait() {
	if i.late != nil {
		<-i.late.known
	}
}

// identify computes the digest of a new task if that takes long, and
// then applies the cancels that came meanwhile. It takes the lock of the session.
func (s *Session) identify(t *Attempt) {
	if before := s.engine.BeforeDigest; before != nil {
		before(t.Payload)
	}
	t.digest = hashOf(t.Payload)
	late := t.late
	close(late.known)
	s.mu.Lock()
	defer s.mu.Unlock()
	logged, messages := late.logged, late.messages
	late.logged, late.messages = nil, nil
	if len(logged) > 0 {
		s.unmatched--
	}
	if s.held[t.ID] != t {
		return
	}
	alone := map[string]*Attempt{t.ID: t}
	coverAllLocked(logged, alone)
	if late.flooded || slices.Contains(messages, t.digest) {
		s.cancels.noteLocked(t.digest, alone)
	}
	s.dropReadyLocked()
	s.wakeLocked()
}

// postponeLocked keeps entries of the log for the tasks whose digest is not known.
func (s *Session) postponeLocked(entries []store.Cancellation) {
	if len(entries) == 0 {
		return
	}
	for _, t := range s.held {
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
			s.unmatched++
		}
	}
}
