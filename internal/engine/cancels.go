package engine

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"

	"github.com/worqr/worqr/internal/store"
)

const (
	maxHeard    = 100  // cancels that one round asks about
	maxStopping = 1000 // canceled tasks that one round may report as still running
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

// isNamed reports whether a cancel of a digest applies to the task.
func (t *Attempt) isNamed(h hash) bool { return !t.byKey && t.digest == h }

// cancels holds messages of the cancel channel that a worker has received but not looked up.
//
// Redis decides which tasks are canceled: answers to rounds bring entries of the cancel log, which
// cover the tasks with a lower token. (No task of a member has the token of a cancel, so the
// scripts may compare with "at most".) A message only makes the worker ask, with its next round,
// for the token of that cancel. If Redis has no record, the sender doesn't write one. The worker
// then stops, as best it can, the tasks it held when the message came. A message that covers no
// held task is dropped.
type cancels struct {
	received map[hash]map[string]bool // processes held when the message came
}

// readCancel returns the digests that a message may mean: it may be a payload even if it looks like
// a digest.
func readCancel(message []byte) []hash {
	_, digest, _ := store.ReadCancel(message)
	named, _ := readHash(digest)
	if literal := hashOf(message); literal != named {
		return []hash{named, literal}
	}
	return []hash{named}
}

func (c *cancels) receiveLocked(about []hash, held map[string]*Attempt) {
	for _, h := range about {
		for id, t := range held {
			if !t.isNamed(h) {
				continue
			}
			if c.received[h] == nil {
				c.received[h] = map[string]bool{}
			}
			c.received[h][id] = true
		}
	}
}

// ask returns up to n digests to look up.
func (c *cancels) ask(n int) (digests []string) {
	for h := range c.received {
		if len(digests) == n {
			break
		}
		digests = append(digests, h.String())
	}
	return digests
}

// learnLocked handles the tokens that the worker asked for.
func (c *cancels) learnLocked(digests []string, tokens []int64, held map[string]*Attempt) {
	for i, d := range digests {
		h, _ := readHash(d)
		processes := c.received[h]
		delete(c.received, h)
		for id, t := range held {
			if t.isNamed(h) && (i < len(tokens) && t.Token < tokens[i] || i < len(tokens) && tokens[i] == 0 && processes[id]) {
				t.endLocked(ErrCanceled)
			}
		}
	}
}

// coverAllLocked stops the tasks that entries of the log cover. Later, stopping reports each of
// them as still running.
func coverAllLocked(entries []store.Cancellation, held map[string]*Attempt) {
	if len(entries) == 0 {
		return
	}
	payloads, keys := make(map[hash]store.Cancellation, len(entries)), map[string]store.Cancellation{}
	for _, e := range entries {
		if h, ok := readHash(e.Name); ok {
			payloads[h] = e
		} else {
			keys[e.Name] = e
		}
	}
	for _, t := range held {
		if !t.byKey {
			if e, ok := payloads[t.digest]; ok {
				t.coverLocked(e)
			}
		}
		if e, ok := keys[t.Entry]; ok && t.Entry != "" {
			t.coverLocked(e)
		}
	}
}

// coverLocked ends the task if it was started before the cancel.
func (t *Attempt) coverLocked(e store.Cancellation) {
	if t.Token < e.Token {
		t.endLocked(ErrCanceled)
		if !slices.Contains(t.covered, e) { // the worker asks for all cancels again after a loss
			t.covered = append(t.covered, e)
		}
	}
}

// stopping returns what to report about the cancels that the worker knows: up to n covered tasks
// that still run, and the last cancel for which these are all.
func stopping(held map[string]*Attempt, seen int64, n int) (runs []store.Stopping, said int64) {
	said = seen
	for id, t := range held {
		for _, c := range t.covered {
			if len(runs) == n {
				said = min(said, t.Token) // earlier cancels may be waited for, too; up to this token, none covers it
				continue
			}
			runs = append(runs, store.Stopping{Name: c.Name, Process: id})
		}
	}
	return runs, said
}

// said records that Redis has received what stopping returned.
func said(runs []store.Stopping, held map[string]*Attempt) {
	for _, s := range runs {
		if t := held[s.Process]; t != nil {
			t.covered = slices.DeleteFunc(t.covered, func(c store.Cancellation) bool { return c.Name == s.Name })
		}
	}
}
