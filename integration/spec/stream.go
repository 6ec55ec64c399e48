package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A stream is the value of a stream's key. It stays when it is empty, and remembers its last id
// after removals.
type stream struct {
	items []item
	last  streamID
}

// An item of a stream has alternating names and values.
type item struct {
	id    streamID
	pairs []string
}

type streamID struct{ ms, seq uint64 }

func (id streamID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

func (id streamID) compare(o streamID) int {
	return cmp.Or(cmp.Compare(id.ms, o.ms), cmp.Compare(id.seq, o.seq))
}

// streamOf makes a stream of rows.
func streamOf(rows [][]string) (s stream) {
	for _, r := range rows {
		ms, seq, _ := strings.Cut(r[0], "-")
		s.last.ms, _ = strconv.ParseUint(ms, 10, 64) // Redis has written both
		s.last.seq, _ = strconv.ParseUint(seq, 10, 64)
		s.items = append(s.items, item{s.last, r[1:]})
	}
	return s
}

func (s *stream) rows() [][]string {
	all := make([][]string, len(s.items))
	for i, it := range s.items {
		all[i] = append([]string{it.id.String()}, it.pairs...)
	}
	return all
}

// stream returns the stream of a key; an empty one if there is none.
func (s *Store) stream(key string) stream { return s.see(key, "stream").stream }

// entries returns the number of items of a stream.
func (s *Store) entries(key string) int { return len(s.stream(key).items) }

// append adds an item to a stream, with an id above its last one.
func (s *Store) append(key string, id streamID, pairs ...string) {
	v := s.make(key, "stream")
	v.stream = stream{append(v.stream.items, item{id, pairs}), id}
}

// drop removes items of a stream.
func (s *Store) drop(key string, ids ...string) {
	s.change(key, "stream", func(v *value) {
		v.stream.items = slices.DeleteFunc(slices.Clone(v.stream.items), func(it item) bool {
			return slices.Contains(ids, it.id.String())
		})
	})
}
