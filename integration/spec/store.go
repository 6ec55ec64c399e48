package spec

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/store"
)

const wrongType = Refusal("WRONGTYPE Operation against a key holding the wrong kind of value")

// A value is the value of a key: one of these, by its kind.
type value struct {
	kind    string
	list    []string // from the front, which in Redis is the tail
	hash    map[string]string
	zset    map[string]float64
	set     map[string]bool
	stream  stream
	text    string
	expires time.Time // zero: never
}

// A Store is a keyspace.
type Store struct {
	Publish   func(channel, message string) int // returns the number of subscribers
	Listening func(channel string) int          // returns the number of subscribers
	Clock     func() time.Time                  // for the expiry of keys

	Limits // of one call

	keys    map[string]*value
	without Guard
}

// Limits are the most that one call does.
type Limits struct {
	Returns int // tasks returned
	Copies  int // of a canceled payload, in the list
	Entries int // and in the schedule
}

// New returns an empty store, with the limits of the scripts and the local clock. No one subscribes.
func New() *Store {
	return &Store{
		Publish: func(_, _ string) int { return 0 }, Listening: func(string) int { return 0 }, Clock: time.Now,
		Limits: Limits{100, 10_000, 100}, keys: map[string]*value{},
	}
}

// Call runs the script of a verb at a time. A Refusal, which may end it halfway, is an error reply.
func (s *Store) Call(verb string, keys, args []string, at time.Time) (reply any) {
	f := verbs[verb]
	if f == nil {
		return Refusal("ERR the specification does not know this script")
	}
	defer func() {
		if r := recover(); r != nil {
			refused, ok := r.(Refusal)
			if !ok {
				panic(r)
			}
			reply = refused
		}
	}()
	return f(s, store.Call{Verb: store.VerbOf(verb), Keys: keys, Args: args}, at)
}

// KeysOf returns the keys of a call of a verb for a queue, in the order of the table.
func KeysOf(verb string, q keys.Queue, part string) (all []string) {
	for _, name := range strings.Fields(strings.Replace(store.VerbOf(verb).Keys, "shared", sharedKeys, 1)) {
		all = append(all, keys.Named(name).Of(q, part))
	}
	return all
}

// sharedKeys are the keys that internal/store/verbs.go calls "shared".
const sharedKeys = "waiting workers idle suspects canceled rounds token schedule contents entries ledger paused holders stopping ages added"

// Keys returns the names of the keys, sorted.
func (s *Store) Keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.keys)), func(key string) bool { return !s.exists(key) })
}

// Get returns the value of a key: nil, a string, a []string whose last element is the front of the queue, a
// map[string]string, a map[string]float64 of scores, a map[string]bool of members, or a [][]string of the items
// of a stream: id, name, value and so on. The caller must not change it.
func (s *Store) Get(key string) any {
	v := s.at(key, "")
	switch {
	case v == nil:
		return nil
	case v.kind == "string":
		return v.text
	case v.kind == "list":
		all := slices.Clone(v.list)
		slices.Reverse(all)
		return all
	case v.kind == "hash":
		return v.hash
	case v.kind == "zset":
		return v.zset
	case v.kind == "stream":
		return v.stream.rows()
	}
	return v.set
}

// Set sets a key to a value like those of Get, without expiry.
func (s *Store) Set(key string, v any) {
	s.del(key)
	switch v := v.(type) {
	case string:
		s.put(key, v)
	case []string:
		w := s.make(key, "list")
		w.list = slices.Clone(v)
		slices.Reverse(w.list)
	case map[string]string:
		s.make(key, "hash").hash = v
	case map[string]float64:
		s.make(key, "zset").zset = v
	case map[string]bool:
		s.make(key, "set").set = v
	case [][]string:
		s.make(key, "stream").stream = streamOf(v)
	}
}

func (s *Store) Clone() *Store {
	c := *s
	c.keys = make(map[string]*value, len(s.keys))
	for key, v := range s.keys {
		w := *v
		w.list, w.hash, w.zset, w.set = slices.Clone(v.list), maps.Clone(v.hash), maps.Clone(v.zset), maps.Clone(v.set)
		w.stream.items = slices.Clone(v.stream.items)
		c.keys[key] = &w
	}
	return &c
}

// Diff returns the keys that differ in another store, in value or in whether they expire.
func (s *Store) Diff(o *Store) (lines []string) {
	all := slices.Concat(s.Keys(), o.Keys())
	slices.Sort(all)
	for _, key := range slices.Compact(all) {
		if a, b := s.shown(key), o.shown(key); a != b {
			lines = append(lines, fmt.Sprintf("%s: %s, and not %s", key, a, b))
		}
	}
	return lines
}

func (s *Store) shown(key string) string {
	v := s.at(key, "")
	if v == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v expires:%t", s.Get(key), !v.expires.IsZero())
}

// at returns the value of a key, or nil; it refuses another kind.
func (s *Store) at(key, kind string) *value {
	v := s.keys[key]
	if v != nil && !v.expires.IsZero() && !s.Clock().Before(v.expires) {
		delete(s.keys, key)
		v = nil
	}
	if v != nil && kind != "" && v.kind != kind {
		panic(wrongType)
	}
	return v
}

// see is like at, but returns an empty value if there is none.
func (s *Store) see(key, kind string) *value {
	if v := s.at(key, kind); v != nil {
		return v
	}
	return &nothing
}

var nothing value // never changed

// make returns the value of a key, and creates it if there is none.
func (s *Store) make(key, kind string) *value {
	v := s.at(key, kind)
	if v == nil {
		v = &value{kind: kind, hash: map[string]string{}, zset: map[string]float64{}, set: map[string]bool{}}
		s.keys[key] = v
	}
	return v
}

// change calls f on the value of a key, if there is one, and then deletes it if it's empty, unless it's a
// stream.
func (s *Store) change(key, kind string, f func(*value)) {
	v := s.at(key, kind)
	if v == nil {
		return
	}
	f(v)
	if len(v.list)+len(v.hash)+len(v.zset)+len(v.set) == 0 && kind != "string" && kind != "stream" {
		delete(s.keys, key)
	}
}

// is reports whether a key has no value, or one of the kind.
func (s *Store) is(key, kind string) bool {
	v := s.at(key, "")
	return v == nil || v.kind == kind
}

func (s *Store) exists(key string) bool { return s.at(key, "") != nil }
func (s *Store) del(key string)         { delete(s.keys, key) }

func (s *Store) expire(key string, ms int64) {
	if v := s.at(key, ""); v != nil {
		v.expires = s.Clock().Add(time.Duration(ms) * time.Millisecond)
	}
}

// Strings.

func (s *Store) get(key string) (string, bool) {
	if v := s.at(key, "string"); v != nil {
		return v.text, true
	}
	return "", false
}

func (s *Store) put(key, text string) {
	s.del(key)
	s.make(key, "string").text = text
}

// Lists.

func (s *Store) length(key string) int { return len(s.items(key)) }

func (s *Store) items(key string) []string { return s.see(key, "list").list }

func (s *Store) push(key string, items ...string) {
	v := s.make(key, "list")
	v.list = append(v.list, items...)
}

func (s *Store) pushFront(key, item string) {
	v := s.make(key, "list")
	v.list = append([]string{item}, v.list...)
}

func (s *Store) popFront(key string) (item string, ok bool) {
	s.change(key, "list", func(v *value) { item, v.list, ok = v.list[0], slices.Clone(v.list[1:]), true })
	return item, ok
}

// Hashes.

func (s *Store) field(key, name string) (string, bool) {
	f, ok := s.see(key, "hash").hash[name]
	return f, ok
}

// word returns a field; "" if there is none.
func (s *Store) word(key, name string) string { f, _ := s.field(key, name); return f }

// count returns a field that is a count or a time.
func (s *Store) count(key, name string) int64 { return number(s.word(key, name)) }

func (s *Store) fields(key string) int { return len(s.see(key, "hash").hash) }

// set sets fields: names and values alternate.
func (s *Store) set(key string, pairs ...any) {
	v := s.make(key, "hash")
	for i := 0; i < len(pairs); i += 2 {
		v.hash[pairs[i].(string)] = text(pairs[i+1])
	}
}

// text returns a word or a number as it is stored.
func text(v any) string {
	switch v := v.(type) {
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return v.(string)
}

// unset removes fields.
func (s *Store) unset(key string, names ...string) {
	s.change(key, "hash", func(v *value) {
		for _, name := range names {
			delete(v.hash, name)
		}
	})
}

// Sorted sets.

// A ranked is a member of a sorted set.
type ranked struct {
	name  string
	score float64
}

func (s *Store) score(key, member string) (float64, bool) {
	f, ok := s.see(key, "zset").zset[member]
	return f, ok
}

func (s *Store) size(key string) int { return len(s.see(key, "zset").zset) }

func (s *Store) add(key, member string, score int64) {
	s.make(key, "zset").zset[member] = float64(score)
}

func (s *Store) remove(key string, members ...string) {
	s.change(key, "zset", func(v *value) {
		for _, m := range members {
			delete(v.zset, m)
		}
	})
}

var inf = math.Inf(1)

// between returns the members with scores from low to high, in order.
func (s *Store) between(key string, low, high float64) (all []ranked) {
	for name, score := range s.see(key, "zset").zset {
		if score >= low && score <= high {
			all = append(all, ranked{name, score})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name)) })
	return all
}

func (s *Store) all(key string) []ranked { return s.between(key, -inf, inf) }

// rank returns the index of a member, or -1.
func (s *Store) rank(key, member string) int {
	return slices.IndexFunc(s.all(key), func(r ranked) bool { return r.name == member })
}
