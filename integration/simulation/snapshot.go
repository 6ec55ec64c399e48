package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/integration/spec/lane"
)

// read returns a copy of what a key holds.
func (s *server) read(key string) any {
	switch s.store.Type(key) {
	case "string":
		v, _ := s.store.Get(key) // it is there
		return lane.Text(v)
	case "list":
		v, _ := s.store.List(key)
		return slices.Clone(v)
	case "hash":
		h := lane.Hash{}
		fields, _ := s.store.HKeys(key)
		for _, f := range fields {
			h[f] = s.store.HGet(key, f)
		}
		return h
	case "zset":
		scores, _ := s.store.SortedSet(key)
		z := make(lane.ZSet, len(scores))
		for m, score := range scores {
			z[m] = int64(score)
		}
		return z
	case "set":
		members, _ := s.store.Members(key)
		all := make(lane.Set, len(members))
		for _, m := range members {
			all[m] = true
		}
		return all
	case "stream":
		items, _ := s.store.Stream(key)
		all := make(lane.Stream, len(items))
		for i, it := range items {
			all[i] = append([]string{it.ID}, it.Values...)
		}
		return all
	}
	return nil
}

// A snapshot is all that a server knows at some time.
type snapshot struct {
	values map[string]any
	until  map[string]time.Time // when keys expire, by the clock of Redis

	renewed map[string]int64 // the judge knew
	dead    map[string]bool  // likewise
}

func (s *server) snapshot() snapshot {
	all := snapshot{values: map[string]any{}, until: map[string]time.Time{}}
	for _, key := range s.store.Keys() {
		all.values[key] = s.read(key)
		if ttl := s.store.TTL(key); ttl > 0 {
			all.until[key] = s.clock().Add(ttl)
		}
	}
	return all
}

// restore has the server know what is in the snapshot, and nothing else.
func (s *server) restore(all snapshot) {
	s.store.FlushAll()
	for _, key := range slices.Sorted(maps.Keys(all.values)) {
		left := time.Duration(0)
		if until, ok := all.until[key]; ok {
			if left = until.Sub(s.clock()); left <= 0 {
				continue
			}
		}
		switch v := all.values[key].(type) {
		case lane.Text:
			_ = s.store.Set(key, string(v)) // the key is free, here and below
		case []string:
			_, _ = s.store.Push(key, v...)
		case lane.Hash:
			for f, x := range v {
				s.store.HSet(key, f, x)
			}
		case lane.ZSet:
			for m, score := range v {
				_, _ = s.store.ZAdd(key, float64(score), m)
			}
		case lane.Set:
			_, _ = s.store.SAdd(key, slices.Collect(maps.Keys(v))...)
		case lane.Stream:
			for _, it := range v {
				_, _ = s.store.XAdd(key, it[0], it[1:])
			}
		}
		if left > 0 {
			s.store.SetTTL(key, left)
		}
	}
}
