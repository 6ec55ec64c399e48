package spec

import (
	"cmp"
	"slices"
)

// The values of keys are never changed, only replaced: so a copy of a Queue costs nothing.

// A Table maps names to values, in the order of the names.
type Table[V any] []Entry[V]

// An Entry is a name and its value.
type Entry[V any] struct {
	Name  string
	Value V
}

// A Hash is a hash in Redis.
type Hash = Table[string]

func (t Table[V]) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t, name, func(e Entry[V], name string) int { return cmp.Compare(e.Name, name) })
}

// Get returns a value, and whether there is one.
func (t Table[V]) Get(name string) (v V, is bool) {
	i, is := t.find(name)
	if is {
		v = t[i].Value
	}
	return v, is
}

// Has reports whether there is a value.
func (t Table[V]) Has(name string) bool { _, is := t.find(name); return is }

// Put sets a value.
func (t *Table[V]) Put(name string, v V) {
	i, is := t.find(name)
	if is {
		*t = slices.Clone(*t)
		(*t)[i].Value = v
		return
	}
	*t = slices.Insert(slices.Clip(*t), i, Entry[V]{name, v})
}

// Delete deletes a value.
func (t *Table[V]) Delete(name string) {
	if i, is := t.find(name); is {
		*t = slices.Delete(slices.Clone(*t), i, i+1)
	}
}

// A Set is a sorted set in Redis, in order.
type Set []Member

// A Member of a sorted set.
type Member struct {
	Name  string
	Score int64
}

func (s Set) index(name string) int {
	return slices.IndexFunc(s, func(m Member) bool { return m.Name == name })
}

// Score returns the score of a member, and whether it is one.
func (s Set) Score(name string) (int64, bool) {
	if i := s.index(name); i >= 0 {
		return s[i].Score, true
	}
	return 0, false
}

// Has reports whether the set has a member.
func (s Set) Has(name string) bool { return s.index(name) >= 0 }

// Put adds a member, or gives it another score.
func (s *Set) Put(name string, score int64) {
	s.Remove(name)
	m := Member{name, score}
	i, _ := slices.BinarySearchFunc(*s, m, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Name, b.Name))
	})
	*s = slices.Insert(slices.Clip(*s), i, m)
}

// Remove removes a member.
func (s *Set) Remove(name string) {
	if i := s.index(name); i >= 0 {
		*s = slices.Delete(slices.Clone(*s), i, i+1)
	}
}

// UpTo returns the members whose scores are at most that.
func (s Set) UpTo(score int64) Set {
	i, _ := slices.BinarySearchFunc(s, score, func(m Member, score int64) int { return cmp.Compare(m.Score, score+1) })
	return s[:i]
}

// soonest returns the lowest score; never if there's none.
func (s Set) soonest() int64 {
	if len(s) == 0 {
		return never
	}
	return s[0].Score
}
