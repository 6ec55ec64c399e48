// Package lane is a typed view of one queue in Redis, for the judges of simulation, chaos and
// random tests.
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

// A Lane is what is in Redis of one queue, or of one failed queue.
type Lane struct {
	Queue  string
	Failed bool

	Waiting  []string          // front last
	Process  map[string]string // id → payload
	Working  map[string]ZSet   // worker → id → token
	Entry    map[string]Hash
	Batch    map[string][]string // id → payloads, front last
	Batches  ZSet                // that are committed
	Workers  ZSet
	Suspects ZSet
	Schedule ZSet
	Contents ZSet
	Canceled ZSet
	Holders  ZSet // worker → token up to which it has said what cancels cover
	Stopping ZSet // "name:token:process" of what runs and a cancel covers
	Gaps     ZSet // positions in the list from which cancels removed payloads
	Entries  Hash // process → entry; of an added task that of its key
	Unique   Hash
	Rounds   Hash
	Ledger   Hash
	Token    int64
	Paused   bool

	Added      Stream          // added tasks that wait, the front first
	Recurring  ZSet            // entry → until when its schedule is asserted
	Recurrence map[string]Hash // entry → its schedule

	fields, cards, runners Hash // what the hash of entries has, and of added tasks

	Owner map[string]string // process → worker
	Given int64             // the highest token that a process had
}

// New returns the view of nothing.
func New(queue string, failed bool) *Lane {
	return &Lane{Queue: queue, Failed: failed, Process: map[string]string{}, Working: map[string]ZSet{}, Entry: map[string]Hash{}, Owner: map[string]string{}, Batch: map[string][]string{}, Recurrence: map[string]Hash{}}
}

// Place takes the name of a key apart: whose it is, what kind, and of what. It is
// false for those of no queue. The prefix ends in a colon.
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

// keep has a map hold what is not empty.
func keep[M ~map[string]V, V any](in map[string]M, of string, m M) {
	if delete(in, of); len(m) > 0 {
		in[of] = m
	}
}

// Set takes in what a key holds now.
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
	case "batch":
		all, _ := v.([]string)
		if delete(l.Batch, of); len(all) > 0 {
			l.Batch[of] = all
		}
	case "token":
		t, _ := v.(Text)
		l.Token, _ = strconv.ParseInt(string(t), 10, 64) // nothing is 0
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

// Get is what a key held when it was last taken in.
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

// one is a sorted set or a hash of which the queue has one, or nil.
func (l *Lane) one(kind string) any {
	switch kind {
	case "batches":
		return &l.Batches
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
	case "gaps":
		return &l.Gaps
	case "recurring":
		return &l.Recurring
	case "unique":
		return &l.Unique
	case "rounds":
		return &l.Rounds
	case "ledger":
		return &l.Ledger
	}
	return nil
}

// Moved tells of payloads of tasks that are in one value and not in another, once for each
// place: 1 for what has come, -1 for what has gone.
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

// apart leaves out what two lists begin with, and what they end with.
func apart[L ~[]E, E any](a, b L, same func(E, E) bool) (L, L) {
	for len(a) > 0 && len(b) > 0 && same(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && same(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// Order are the batches that are committed, in their order.
func (l *Lane) Order() []string {
	return slices.SortedFunc(maps.Keys(l.Batches), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.Batches[a], l.Batches[b]), cmp.Compare(a, b))
	})
}

// Accepted are the payloads of batches that are committed: each is enqueued, and will be
// in the list.
func (l *Lane) Accepted() (all []string) {
	for _, id := range l.Order() {
		all = append(all, l.Batch[id]...)
	}
	return all
}

// Names are those by which a cancel may cover a process.
func (l *Lane) Names(id string) []string {
	e := l.Entries[id]
	digest := Digest(l.Process[id])
	switch sum, ok := strings.CutPrefix(l.Entry[e]["sum"], id+":"); {
	case l.cards[id] != "", ok && sum == Digest(e): // its entry stands for it: cancels of the payload are about others
		digest = Digest(e)
	case ok && l.Failed: // the entry is that of the failed task, which has a key of its own
		digest = sum
	}
	if IsKey(e) {
		return []string{digest, e}
	}
	return []string{digest}
}

// Name is what an entry that waits is called in contents, before a colon and the entry.
func (l *Lane) Name(entry string) string {
	if digest := l.Entry[entry]["digest"]; digest == Digest(entry) || digest != "" && l.Failed { // as in Names
		return digest
	}
	return Digest(l.Entry[entry]["payload"])
}

func IsKey(entry string) bool { return strings.HasPrefix(entry, "k:") }

// At is what is in the list at a position that a lock names; "" if nothing is.
func (l *Lane) At(place string) string {
	position := atoi(place)
	ahead := position - atoi(l.Unique["offset"])
	for _, gap := range l.Gaps {
		if gap < int64(position) {
			ahead--
		}
	}
	if ahead < 0 || ahead >= len(l.Waiting) {
		return ""
	}
	return l.Waiting[len(l.Waiting)-1-ahead]
}

// Covered reports whether a cancel in the log covers a process.
func (l *Lane) Covered(id string, token int64) bool {
	return len(l.Canceled) > 0 && slices.ContainsFunc(l.Names(id), func(name string) bool {
		c, ok := l.Canceled[name]
		return ok && token <= c
	})
}

// Digest is what a payload is named by.
func Digest(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // what the scripts write there are numbers
	return n
}

// What a key holds: a Text, a []string whose last is in front, a Hash, a ZSet, a Set, a
// Stream, or nil.
type (
	Text string
	Hash map[string]string
	ZSet map[string]int64 // all scores here are whole numbers
	Set  map[string]bool

	Stream [][]string // items, the oldest first: id, name, value and so on
)

// TokenOf is the token of a process.
func (l *Lane) TokenOf(id string) int64 { return l.Working[l.Owner[id]][id] }

// Value is what a key holds, as a Lane takes it in, of what a store tells. It shares that.
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

// View is a queue, or its failed queue, in a store.
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

// Copy is what a Lane is now, whatever it takes in later.
func (l *Lane) Copy() *Lane {
	c := *l
	c.Process, c.Working, c.Entry, c.Owner, c.Batch = maps.Clone(l.Process), maps.Clone(l.Working), maps.Clone(l.Entry), maps.Clone(l.Owner), maps.Clone(l.Batch)
	c.Recurrence = maps.Clone(l.Recurrence)
	return &c
}

// Since are the processes that began and ended since, by their tokens.
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
