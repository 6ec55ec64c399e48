package store

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// Spreads records over how many parts a program has spread its queues.
type Spreads struct {
	Each time.Duration // how long a number of parts that was read is used before it's read again

	mu   sync.Mutex
	over map[string][]int // queue → numbers of parts; protected by mu
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

// PartOf returns in which of n parts something is: the first eight bytes of its SHA-1, as a
// big-endian number, modulo n.
func PartOf(what []byte, n int) int {
	sum := sha1.Sum(what)
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n))
}
