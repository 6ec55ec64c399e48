// Package lane is a typed view of one queue in Redis, for the invariant checks of simulation and random
// tests.
package lane

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Lane is the data in Redis of one queue, or of one failed queue.
type Lane struct {
	Queue  string
	Failed bool

	Waiting  []string          // front last
	Process  map[string]string // id → payload
	Working  map[string]ZSet   // worker → id → token
	Entry    map[string]Hash
	Workers  ZSet
	Suspects ZSet
	Schedule ZSet
	Contents ZSet
	Canceled ZSet
	Holders  ZSet // worker → token up to which it has named what cancels cover
	Stopping ZSet // "name:token:process" of processes that run and that a cancel covers
	Entries  Hash // process → entry; for an added task that of its key
	Rounds   Hash
	Ledger   Hash
	Token    int64
	Paused   bool

	Added      Stream          // added tasks that wait, the front first
	Recurring  ZSet            // entry → until when its schedule is asserted
	Recurrence map[string]Hash // entry → its schedule

	fields, cards, runners Hash // the hash of entries, split: processes, cards, added tasks

	Owner map[string]string // process → worker
	Given int64             // the highest token of any process
}

// New returns the view of an empty queue.
func New(queue string, failed bool) *Lane {
	return &Lane{Queue: queue, Failed: failed, Process: map[string]string{}, Working: map[string]ZSet{}, Entry: map[string]Hash{}, Owner: map[string]string{}, Recurrence: map[string]Hash{}}
}

// Place parses the name of a key: its queue, kind, and what it is about. It's
// false for keys of no queue. The prefix ends in a colon.
func Place(prefix, key string) (queue string, failed bool, kind, of string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false, "", "", false
	}
	rest, failed = strings.CutPrefix(rest, "failed:")
	kind, rest, ok = strings.Cut(rest, ":{")
	if !ok {
		return "", false, "", "", false
	}
	queue, of, ok = strings.Cut(rest, "}")
	return queue, failed, kind, strings.TrimPrefix(of, ":"), ok
}

func asZSet(v any) ZSet { z, _ := v.(ZSet); return z }
func asHash(v any) Hash { h, _ := v.(Hash); return h }

// keep stores m in a map unless it's empty.
func keep[M ~map[string]V, V any](in map[string]M, of string, m M) {
	if delete(in, of); len(m) > 0 {
		in[of] = m
	}
}

// Set sets the value of a key.
func (l *Lane) Set(kind, of string, v any) {
	switch kind {
	case "queues":
		l.Waiting, _ = v.([]string)
	case "process":
		delete(l.Process, of)
		if all, _ := v.([]string); len(all) == 1 {
			l.Process[of] = all[0]
		}
	case "working":
		for id := range l.Working[of] {
			delete(l.Owner, id)
		}
		keep(l.Working, of, asZSet(v))
		for id := range l.Working[of] {
			l.Owner[id] = of
		}
	case "keyed":
		keep(l.Entry, of, asHash(v))
	case "recurrence":
		keep(l.Recurrence, of, asHash(v))
	case "entries":
		l.setEntries(asHash(v))
	case "added":
		l.Added, _ = v.(Stream)
	case "token":
		t, _ := v.(Text)
		l.Token, _ = strconv.ParseInt(string(t), 10, 64) // without one it is 0
	case "paused":
		l.Paused = v != nil
	default:
		switch one := l.one(kind).(type) {
		case *ZSet:
			*one = asZSet(v)
		case *Hash:
			*one = asHash(v)
		}
	}
}

// Get returns the value last set for a key.
func (l *Lane) Get(kind, of string) any {
	switch kind {
	case "queues":
		return l.Waiting
	case "process":
		if p, ok := l.Process[of]; ok {
			return []string{p}
		}
		return []string(nil)
	case "working":
		return l.Working[of]
	case "keyed":
		return l.Entry[of]
	case "recurrence":
		return l.Recurrence[of]
	case "entries":
		return l.fields
	case "added":
		return l.Added
	}
	switch one := l.one(kind).(type) {
	case *ZSet:
		return *one
	case *Hash:
		return *one
	}
	return nil
}

// one returns the only sorted set or hash of a kind, or nil.
func (l *Lane) one(kind string) any {
	switch kind {
	case "workers":
		return &l.Workers
	case "suspects":
		return &l.Suspects
	case "schedule":
		return &l.Schedule
	case "contents":
		return &l.Contents
	case "canceled":
		return &l.Canceled
	case "holders":
		return &l.Holders
	case "stopping":
		return &l.Stopping
	case "recurring":
		return &l.Recurring
	case "rounds":
		return &l.Rounds
	case "ledger":
		return &l.Ledger
	}
	return nil
}

// Moved yields the payloads of tasks that are in one value and not in the other, once for each place: 1 for
// those added, -1 for those removed.
func Moved(kind string, was, is any, yield func(payload string, n int)) {
	switch kind {
	case "queues", "process":
		old, _ := was.([]string)
		now, _ := is.([]string)
		old, now = apart(old, now, func(a, b string) bool { return a == b })
		for _, p := range old {
			yield(p, -1)
		}
		for _, p := range now {
			yield(p, 1)
		}
	case "added":
		old, _ := was.(Stream)
		now, _ := is.(Stream)
		old, now = apart(old, now, func(a, b []string) bool { return a[0] == b[0] })
		for _, item := range old {
			if w := waiter(item); !w.Apart {
				yield(w.Payload, -1)
			}
		}
		for _, item := range now {
			if w := waiter(item); !w.Apart {
				yield(w.Payload, 1)
			}
		}
	case "keyed":
		if p, ok := asHash(was)["payload"]; ok {
			yield(p, -1)
		}
		if p, ok := asHash(is)["payload"]; ok {
			yield(p, 1)
		}
	}
}

// apart returns two lists without their common beginning and end.
func apart[L ~[]E, E any](a, b L, same func(E, E) bool) (L, L) {
	for len(a) > 0 && len(b) > 0 && same(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && same(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// Names returns the names by which a cancel may cover a process.
func (l *Lane) Names(id string) []string {
	e := l.Entries[id]
	digest := Digest(l.Process[id])
	switch sum, ok := strings.CutPrefix(l.Entry[e]["sum"], id+":"); {
	case l.cards[id] != "", ok && sum == Digest(e): // cancels of the payload don't cover it
		digest = Digest(e)
	case ok && l.Failed: // the entry is that of the failed task, which has a key of its own
		digest = sum
	}
	if IsKey(e) {
		return []string{digest, e}
	}
	return []string{digest}
}

// Name returns the digest under which contents lists a waiting entry, as "digest:entry".
func (l *Lane) Name(entry string) string {
	if digest := l.Entry[entry]["digest"]; digest == Digest(entry) || digest != "" && l.Failed { // as in Names
		return digest
	}
	return Digest(l.Entry[entry]["payload"])
}

func IsKey(entry string) bool { return strings.HasPrefix(entry, "k:") }

// Covered reports whether a cancel in the log covers a process.
func (l *Lane) Covered(id string, token int64) bool {
	return len(l.Canceled) > 0 && slices.ContainsFunc(l.Names(id), func(name string) bool {
		c, ok := l.Canceled[name]
		return ok && token <= c
	})
}

// Digest returns the name of a payload in Redis.
func Digest(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // the scripts write only numbers there
	return n
}

// The values of keys: a Text, a []string whose last element is the front, a Hash, a ZSet, a Set, a Stream, or
// nil.
type (
	Text string
	Hash map[string]string
	ZSet map[string]int64 // all scores here are integers
	Set  map[string]bool

	Stream [][]string // items, the oldest first: id, name, value and so on
)

// TokenOf returns the token of a process.
func (l *Lane) TokenOf(id string) int64 { return l.Working[l.Owner[id]][id] }

// Value converts a value from a store to one for a Lane. They share memory.
func Value(held any) any {
	switch v := held.(type) {
	case string:
		return Text(v)
	case map[string]string:
		return Hash(v)
	case map[string]float64:
		z := make(ZSet, len(v))
		for name, score := range v {
			z[name] = int64(score)
		}
		return z
	case map[string]bool:
		return Set(v)
	case [][]string:
		return Stream(v)
	}
	return held
}

// View returns a queue, or its failed queue, from a store.
func View(s interface {
	Keys() []string
	Get(key string) any
}, prefix, queue string, failed bool) *Lane {
	l := New(queue, failed)
	for _, key := range s.Keys() {
		if of, its, kind, part, ok := Place(prefix, key); ok && of == queue && its == failed {
			l.Set(kind, part, Value(s.Get(key)))
		}
	}
	return l
}

// Copy returns a copy, which later calls of Set don't change.
func (l *Lane) Copy() *Lane {
	c := *l
	c.Process, c.Working, c.Entry, c.Owner = maps.Clone(l.Process), maps.Clone(l.Working), maps.Clone(l.Entry), maps.Clone(l.Owner)
	c.Recurrence = maps.Clone(l.Recurrence)
	return &c
}

// Since returns the processes that began and ended since was, by their tokens.
func (l *Lane) Since(was *Lane) (began, ended []string) {
	for id := range l.Process {
		if _, ok := was.Process[id]; !ok {
			began = append(began, id)
		}
	}
	for id := range was.Process {
		if _, ok := l.Process[id]; !ok {
			ended = append(ended, id)
		}
	}
	slices.SortFunc(began, func(a, b string) int { return cmp.Compare(l.TokenOf(a), l.TokenOf(b)) })
	slices.SortFunc(ended, func(a, b string) int { return cmp.Compare(was.TokenOf(a), was.TokenOf(b)) })
	return began, ended
}
