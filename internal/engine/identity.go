package engine

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

// A hash is the digest of a payload. Cancels contain it.
type hash [sha1.Size]byte

func hashOf(payload []byte) hash { return sha1.Sum(payload) }

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// readHash parses a digest in the form that Redis returns.
func readHash(digest string) (h hash, ok bool) {
	if len(digest) != 2*len(h) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(digest))
	return h, err == nil
}

// An identity is the digest of a task's payload as it was taken; the handler may change the
// payload. Hashing a large payload takes a while, so another goroutine does it, and no one waits
// for it while holding a lock. Cancels that must be compared with the digest are kept until it's
// known.
type identity struct {
	digest hash       // valid once it's known
	byKey  bool       // cancels of the payload don't apply to it
	never  bool       // the digest will never be known, since the payload didn't arrive
	late   *unmatched // nil if the digest was known from the start, or never will be
}

// unmatched holds cancels until a digest is known. Session.mu protects it.
type unmatched struct {
	known    chan struct{}        // closed when the digest is known
	logged   []store.Cancellation // entries of the cancel log
	messages []hash               // from the channel; at most maxUnmatched
	flooded  bool                 // there were more
}

// maxUnmatched is how many cancel messages are kept until a digest is known. If there are more, the
// worker asks for the token of the task's cancel anyway.
const maxUnmatched = 1000

// isKnown reports, without waiting, whether the digest is known or never will be.
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

// isNamed reports whether a cancel of a digest applies to the task, as far as the task's own digest
// is known.
func (i *identity) isNamed(h hash) bool { return !i.byKey && i.isKnown() && i.digest == h }

// wait waits until the digest is known, or won't be. From then on the payload may change.
func (i *identity) wait() {
	if i.late != nil {
		<-i.late.known
	}
}

// identify computes the digest of a new task if that takes a while, and then applies the cancels
// that came in the meantime. It locks the session.
func (s *Session) identify(t *Attempt) {
	if before := s.engine.BeforeDigest; before != nil {
		before(t.Payload)
	}
	digest, late := hashOf(t.Payload), t.late
	s.mu.Lock() // before others know the digest, so that no handler begins before the cancels are applied
	defer s.mu.Unlock()
	t.digest = digest
	close(late.known)
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

// postponeLocked keeps entries of the log for the tasks whose digest isn't known yet.
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
			if _, ok := readHash(e.Name); ok { // an entry with a key was applied already
				t.late.logged = append(t.late.logged, e)
			}
		}
		if before == 0 && len(t.late.logged) > 0 {
			s.unmatched++
		}
	}
}
