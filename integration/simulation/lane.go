package simulation

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A lane is what is in Redis of one queue, or of one failed queue.
type lane struct {
	queue  string
	failed bool

	waiting  []string          // front last
	process  map[string]string // id → payload
	working  map[string]zset   // worker → id → token
	entry    map[string]hash
	batch    map[string][]string // id → payloads, front last
	batches  zset                // that are committed
	workers  zset
	suspects zset
	schedule zset
	contents zset
	canceled zset
	holders  zset // worker → token up to which it has said what cancels cover
	stopping zset // "name:token:process" of what runs and a cancel covers
	gaps     zset // positions in the list from which cancels removed payloads
	entries  hash
	unique   hash
	rounds   hash
	ledger   hash
	token    int64
	paused   bool

	owner map[string]string // process → worker
}

func newLane(queue string, failed bool) *lane {
	return &lane{queue: queue, failed: failed, process: map[string]string{}, working: map[string]zset{}, entry: map[string]hash{}, owner: map[string]string{}, batch: map[string][]string{}}
}

const prefix = "worqr:"

// place takes the name of a key apart: whose it is, what kind, and of what. It is
// false for those of no queue.
func place(key string) (queue string, failed bool, kind, of string, ok bool) {
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

func asZset(v any) zset { z, _ := v.(zset); return z }
func asHash(v any) hash { h, _ := v.(hash); return h }

// set takes in what a key holds now.
func (l *lane) set(kind, of string, v any) {
	switch kind {
	case "queues":
		l.waiting, _ = v.([]string)
	case "process":
		if all, _ := v.([]string); len(all) == 1 {
			l.process[of] = all[0]
		} else {
			delete(l.process, of)
		}
	case "working":
		for id := range l.working[of] {
			delete(l.owner, id)
		}
		delete(l.working, of)
		if z := asZset(v); len(z) > 0 {
			l.working[of] = z
			for id := range z {
				l.owner[id] = of
			}
		}
	case "keyed":
		delete(l.entry, of)
		if h := asHash(v); len(h) > 0 {
			l.entry[of] = h
		}
	case "batch":
		delete(l.batch, of)
		if all, _ := v.([]string); len(all) > 0 {
			l.batch[of] = all
		}
	case "batches":
		l.batches = asZset(v)
	case "workers":
		l.workers = asZset(v)
	case "suspects":
		l.suspects = asZset(v)
	case "schedule":
		l.schedule = asZset(v)
	case "contents":
		l.contents = asZset(v)
	case "canceled":
		l.canceled = asZset(v)
	case "holders":
		l.holders = asZset(v)
	case "stopping":
		l.stopping = asZset(v)
	case "gaps":
		l.gaps = asZset(v)
	case "entries":
		l.entries = asHash(v)
	case "unique":
		l.unique = asHash(v)
	case "rounds":
		l.rounds = asHash(v)
	case "ledger":
		l.ledger = asHash(v)
	case "token":
		t, _ := v.(text)
		l.token, _ = strconv.ParseInt(string(t), 10, 64) // nothing is 0
	case "paused":
		l.paused = v != nil
	}
}

// get is what a key held when it was last taken in.
func (l *lane) get(kind, of string) any {
	switch kind {
	case "queues":
		return l.waiting
	case "process":
		if p, ok := l.process[of]; ok {
			return []string{p}
		}
		return []string(nil)
	case "working":
		return l.working[of]
	case "keyed":
		return l.entry[of]
	case "batches":
		return l.batches
	case "workers":
		return l.workers
	case "suspects":
		return l.suspects
	case "schedule":
		return l.schedule
	case "contents":
		return l.contents
	case "canceled":
		return l.canceled
	case "holders":
		return l.holders
	case "stopping":
		return l.stopping
	case "gaps":
		return l.gaps
	case "entries":
		return l.entries
	case "unique":
		return l.unique
	case "rounds":
		return l.rounds
	case "ledger":
		return l.ledger
	}
	return nil
}

// payloads are those of tasks that are in a value, with how often.
func payloads(kind string, v any, yield func(payload string)) {
	switch kind {
	case "queues", "process":
		all, _ := v.([]string)
		for _, p := range all {
			yield(p)
		}
	case "keyed":
		if p, ok := asHash(v)["payload"]; ok {
			yield(p)
		}
	}
}

// order are the batches that are committed, in their order.
func (l *lane) order() []string {
	return slices.SortedFunc(maps.Keys(l.batches), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.batches[a], l.batches[b]), cmp.Compare(a, b))
	})
}

// accepted are the payloads of batches that are committed: each is enqueued, and will be
// in the list.
func (l *lane) accepted() (all []string) {
	for _, id := range l.order() {
		all = append(all, l.batch[id]...)
	}
	return all
}

// names are those by which a cancel may cover a process.
func (l *lane) names(id string) []string {
	names := []string{digest(l.process[id])}
	if e := l.entries[id]; isKey(e) {
		names = append(names, e)
	}
	return names
}

func isKey(entry string) bool { return strings.HasPrefix(entry, "k:") }

// at is what is in the list at a position that a lock names; "" if nothing is.
func (l *lane) at(position int) string {
	ahead := position - atoi(l.unique["offset"])
	for _, gap := range l.gaps {
		if gap < int64(position) {
			ahead--
		}
	}
	if ahead < 0 || ahead >= len(l.waiting) {
		return ""
	}
	return l.waiting[len(l.waiting)-1-ahead]
}

// covered reports whether a cancel in the log covers a process.
func (l *lane) covered(id string, token int64) bool {
	return len(l.canceled) > 0 && slices.ContainsFunc(l.names(id), func(name string) bool {
		c, ok := l.canceled[name]
		return ok && token <= c
	})
}
