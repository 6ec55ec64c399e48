package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/integration/lane"
)

// read returns a copy of the value of a key.
func (s *server) read(key string) any { return lane.Value(s.store.Get(key)) }

// A snapshot is the state of a server at some time.
type snapshot struct {
	values map[string]any
	until  map[string]time.Time // when keys expire, by the clock of Redis

	renewed map[string]int64 // of the judge
	dead    map[string]bool  // of the judge
}

func (s *server) snapshot() snapshot {
	all := snapshot{values: map[string]any{}, until: map[string]time.Time{}}
	for _, key := range s.store.Keys() {
		all.values[key] = s.store.Get(key)
		if ttl := s.store.TTL(key); ttl > 0 {
			all.until[key] = s.clock().Add(ttl)
		}
	}
	return all
}

// restore resets the server to the snapshot.
func (s *server) restore(all snapshot) {
	s.store.FlushAll()
	for _, key := range slices.Sorted(maps.Keys(all.values)) {
		left := time.Duration(0)
		if until, ok := all.until[key]; ok {
			if left = until.Sub(s.clock()); left <= 0 {
				delete(all.values, key) // for the judge, too
				continue
			}
		}
		s.store.Set(key, all.values[key], left)
	}
}
