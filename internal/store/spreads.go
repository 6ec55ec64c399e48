package store

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// Spreads records the numbers of parts over which a program spreads its queues.
type Spreads struct {
	Each time.Duration // how long a number of parts that was read is used before it's read again

	mu   sync.Mutex           // protects the fields below
	over map[string][]int     // queue → numbers of parts
	told map[string]time.Time // queue → when other peers were last told
}

// Add records that a queue is spread over n parts.
func (s *Spreads) Add(queue string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = map[string][]int{}
	}
	if !slices.Contains(s.over[queue], n) {
		s.over[queue] = append(s.over[queue], n)
	}
}

// Of returns the numbers of parts of a queue.
func (s *Spreads) Of(queue string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.over[queue])
}

// Due reports whether it's time to tell other peers a queue's number of parts. If so, it records that
// they have been told.
func (s *Spreads) Due(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.told[queue]; ok && time.Since(last) < s.Each {
		return false
	}
	if s.told == nil {
		s.told = map[string]time.Time{}
	}
	s.told[queue] = time.Now()
	return true
}

// PartOf returns which of n parts something belongs to: the first eight bytes of its SHA-1, as a
// big-endian number, modulo n.
func PartOf(what []byte, n int) int {
	sum := sha1.Sum(what)
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n))
}
