package spec

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A stream is what a key of this kind holds. It stays when it is empty, and knows its last
// id whatever was removed.
type stream struct {
	items []item
	last  streamID
}

// An item of a stream has names and values in turn.
type item struct {
	id    streamID
	pairs []string
}

type streamID struct{ ms, seq uint64 }

var (
	firstID = streamID{}
	lastID  = streamID{math.MaxUint64, math.MaxUint64}
)

const (
	noID      = Refusal("ERR Invalid stream ID specified as stream command argument")
	smallID   = Refusal("ERR The ID specified in XADD is equal or smaller than the target stream top item")
	zeroID    = Refusal("ERR The ID specified in XADD must be greater than 0-0")
	lostKey   = Refusal("ERR no such key")
	badRange  = Refusal("ERR syntax error")
	noneAbove = Refusal("ERR invalid start ID for the interval")
	noneBelow = Refusal("ERR invalid end ID for the interval")
)

func (id streamID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

func (id streamID) compare(o streamID) int {
	return cmp.Or(cmp.Compare(id.ms, o.ms), cmp.Compare(id.seq, o.seq))
}

// next is the id that follows.
func (id streamID) next() streamID {
	if id == lastID {
		panic(noneAbove)
	}
	if id.seq == math.MaxUint64 {
		return streamID{id.ms + 1, 0}
	}
	return streamID{id.ms, id.seq + 1}
}

// before is the id in front.
func (id streamID) before() streamID {
	if id == firstID {
		panic(noneBelow)
	}
	if id.seq == 0 {
		return streamID{id.ms - 1, math.MaxUint64}
	}
	return streamID{id.ms, id.seq - 1}
}

// streamIDOf reads an id; one without a sequence has the one given.
func streamIDOf(word string, seq uint64) streamID {
	ms, behind, both := strings.Cut(word, "-")
	id := streamID{seq: seq}
	var err, wrong error
	id.ms, err = strconv.ParseUint(ms, 10, 64)
	if both {
		id.seq, wrong = strconv.ParseUint(behind, 10, 64)
	}
	if err != nil || wrong != nil {
		panic(noID)
	}
	return id
}

// edge reads what bounds a range: an id, one behind a bracket, or the first or last of all.
func edge(word string, low bool) streamID {
	id, excluded := strings.CutPrefix(word, "(")
	switch {
	case word == "-":
		return firstID
	case word == "+":
		return lastID
	case low && excluded:
		return streamIDOf(id, 0).next()
	case low:
		return streamIDOf(id, 0)
	case excluded:
		return streamIDOf(id, math.MaxUint64).before()
	}
	return streamIDOf(id, math.MaxUint64)
}

// streamOf makes a stream of what rows tells.
func streamOf(rows [][]string) (s stream) {
	for _, r := range rows {
		s.last = streamIDOf(r[0], 0)
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

// rowsOf are the rows of what XRANGE answers.
func rowsOf(reply any) (rows [][]string) {
	all, _ := reply.([]any)
	for _, v := range all {
		one := v.([]any)
		row := []string{one[0].(string)}
		for _, p := range one[1].([]any) {
			row = append(row, p.(string))
		}
		rows = append(rows, row)
	}
	return rows
}

// stream is what a key holds, empty if it holds nothing.
func (s *Store) stream(key string) stream {
	if v := s.at(key, "stream"); v != nil {
		return v.stream
	}
	return stream{}
}

// entries counts the items of a stream.
func (s *Store) entries(key string) int { return len(s.stream(key).items) }

// append adds an item to a stream, and returns its id. For an id of "*" the clock of the
// server chooses.
func (s *Store) append(key, id string, pairs ...string) string {
	var now streamID
	if id != "*" {
		if now = streamIDOf(id, 0); now == firstID {
			panic(zeroID)
		}
	}
	was := s.stream(key).last
	if id == "*" {
		if now.ms = uint64(s.now().UnixMilli()); now.compare(was) <= 0 {
			now = was.next()
		}
	}
	if now.compare(was) <= 0 {
		panic(smallID)
	}
	v := s.make(key, "stream")
	v.stream = stream{append(v.stream.items, item{now, slices.Clone(pairs)}), now}
	return now.String()
}

// ranging are the items between two ids, which may be "-" and "+".
func (s *Store) ranging(key, from, to string) []item {
	low, high := edge(from, true), edge(to, false)
	return slices.DeleteFunc(slices.Clone(s.stream(key).items), func(it item) bool {
		return it.id.compare(low) < 0 || it.id.compare(high) > 0
	})
}

// drop removes items of a stream, and counts them.
func (s *Store) drop(key string, ids ...string) int {
	n := s.entries(key)
	s.change(key, "stream", func(v *value) {
		for _, word := range ids {
			streamIDOf(word, 0) // all are looked at first
		}
		v.stream.items = slices.DeleteFunc(slices.Clone(v.stream.items), func(it item) bool {
			return slices.ContainsFunc(ids, func(word string) bool { return it.id == streamIDOf(word, 0) })
		})
	})
	return n - s.entries(key)
}

// onStream carries out the commands of streams.
func (k *Store) onStream(name, key string, args []string) any {
	switch name {
	case "XADD":
		if len(args) < 3 || len(args)%2 == 0 {
			return Refusal("ERR wrong number of arguments for 'xadd' command")
		}
		return k.append(key, args[0], args[1:]...)
	case "XLEN":
		return k.entries(key)
	case "XDEL":
		return k.drop(key, args...)
	case "XRANGE":
		return page(k.ranging(key, args[0], args[1]), args[2:])
	case "XREVRANGE":
		items := k.ranging(key, args[1], args[0])
		slices.Reverse(items)
		return page(items, args[2:])
	case "XINFO":
		key = args[0] // behind STREAM
		if !k.exists(key) {
			return lostKey
		}
		s := k.stream(key)
		return []any{"length", len(s.items), "last-generated-id", s.last.String()}
	}
	return Refusal("ERR unknown command '" + name + "'")
}

// page answers with as many items as are wanted: COUNT and a number, or nothing.
func page(items []item, count []string) any {
	if len(count) == 2 && strings.EqualFold(count[0], "COUNT") {
		items = items[:min(len(items), max(int(number(count[1])), 0))]
	} else if len(count) > 0 {
		return badRange
	}
	all := make([]any, len(items))
	for i, it := range items {
		all[i] = []any{it.id.String(), words(slices.All(it.pairs))}
	}
	return all
}
