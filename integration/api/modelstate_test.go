package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

func decimal[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// modelPayloads are all that are used, by their digests.
var modelPayloads = map[string]string{}

func init() {
	for _, p := range []string{"a", "b", "c", "d"} {
		modelPayloads[digestOf(p)] = p
	}
}

// A state is all that is in Redis of a queue, and of its failed queue, key by
// key, as text: sorted where the order says nothing.
type state map[string]string

func (s state) set(key string, parts ...string) {
	if len(parts) > 0 {
		s[key] = strings.Join(parts, " ")
	}
}

func (s state) sorted(key string, parts []string) {
	slices.Sort(parts)
	s.set(key, parts...)
}

// differ counts the keys that differ, and tells which.
func (s state) differ(want state) (lines []string) {
	keys := maps.Clone(s)
	maps.Copy(keys, want)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if s[k] != want[k] {
			lines = append(lines, fmt.Sprintf("%s: %q, want %q", k, s[k], want[k]))
		}
	}
	return lines
}

// added names what there is now and was not before, in its order.
func (s state) added(before state, prefix string) (names []string) {
	for key := range s {
		if name, ok := strings.CutPrefix(key, prefix); ok && before[key] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// number is a field of an entry.
func (s state) number(key, field string) int64 {
	_, after, _ := strings.Cut(s[key], " "+field+"=")
	digits, _, _ := strings.Cut(after, " ")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// rulesOf is what changes do to anything, as Redis has it.
func rulesOf(changes []change) string {
	least := entry{item: item{payload: "whatever"}, retries: 1}
	most := entry{due: 1<<53 - 1}
	for _, c := range changes {
		least.apply(c)
		most.apply(c)
	}
	flag := map[bool]int{true: 1}
	return fmt.Sprintf("keep=%d counts=%d low=%d high=%d", flag[least.payload == "whatever"], flag[least.retries == 1], least.due, most.due)
}

// countOf is the count of crashes in an entry; that of what has no key is in
// the ledger, and what is in the entry does not matter.
func countOf(entry, n string) string {
	if !isKey(entry) {
		return "?"
	}
	return n
}

// readState reads the state from Redis, without the cancel log and what is
// there to be forgotten.
func readState(t testing.TB, c redis.Conn, prefix string) state {
	t.Helper()
	s, holders, gaps := state{}, map[string]bool{}, map[string][]int{}
	defer func() {
		for key := range s {
			if kind := strings.TrimPrefix(key, "failed:"); strings.HasPrefix(kind, "working:") != holders[key] {
				t.Errorf("%s is there, and it is %t that its worker is known to hold something", key, holders[key])
			}
			delete(holders, key)
		}
		if len(holders) > 0 {
			t.Errorf("%v are not there, and their workers are known to hold something", holders)
		}
	}()
	all := redistest.Keys(t, c, prefix)
	for _, key := range all {
		if kind, ok := strings.CutSuffix(strings.TrimPrefix(key, prefix+":"), "gaps:{q}"); ok {
			scores, err := redis.Ints(c.Do("ZRANGE", key, 0, -1))
			if err != nil {
				t.Error(err)
			}
			gaps[kind+"unique"] = scores
		}
	}
	for _, key := range all {
		name := strings.TrimPrefix(key, prefix+":")
		kind, rest, ofQueue := strings.Cut(name, ":{q}")
		if !ofQueue {
			continue // registrations
		}
		read := func(command string, args ...any) []string {
			all, err := redis.Strings(c.Do(command, append([]any{key}, args...)...))
			if err != nil {
				t.Errorf("reading %s: %v", key, err)
			}
			return all
		}
		pairs := func(all []string) (joined []string) {
			for pair := range slices.Chunk(all, 2) {
				joined = append(joined, pair[0]+"="+pair[1])
			}
			return joined
		}
		firsts := func(all []string) (some []string) {
			for pair := range slices.Chunk(all, 2) {
				some = append(some, pair[0])
			}
			return some
		}
		named := kind + rest
		switch strings.TrimPrefix(kind, "failed:") {
		case "once", "token", "canceled", "cancel", "stopping", "gaps":
		case "holders":
			for _, w := range read("ZRANGE", 0, -1) {
				holders[strings.TrimSuffix(named, "holders")+"working:"+w] = true
			}
		case "paused":
			s.set(named, "1")
		case "queues":
			list := read("LRANGE", 0, -1)
			slices.Reverse(list)
			s.set(named, list...)
		case "process":
			s.set(named, read("LRANGE", 0, -1)...)
		case "working", "schedule":
			s.set(named, pairs(read("ZRANGE", 0, -1, "WITHSCORES"))...)
		case "workers":
			s.sorted(named, read("ZRANGE", 0, -1))
		case "rounds":
			s.sorted(named, firsts(read("HGETALL")))
		case "contents":
			members := read("ZRANGE", 0, -1)
			for i, m := range members {
				d, entry, _ := strings.Cut(m, ":")
				members[i] = payloadOf(d) + ":" + entry
			}
			s.sorted(named, members)
		case "entries":
			s.sorted(named, pairs(read("HGETALL")))
		case "ledger":
			counts := read("HGETALL")
			for i := 0; i < len(counts); i += 2 {
				counts[i] = payloadOf(counts[i])
			}
			s.sorted(named, pairs(counts))
		case "unique":
			s.sorted(named, locksOf(read("HGETALL"), gaps[named]))
		case "keyed":
			s.set(named, entryOf(strings.TrimPrefix(rest, ":"), read("HGETALL"))...)
		default:
			s.set(named, "should not be")
		}
	}
	return s
}

func payloadOf(digest string) string {
	if p, known := modelPayloads[digest]; known {
		return p
	}
	return digest
}

// locksOf reads places in the list as they are from the front.
func locksOf(all []string, gaps []int) (locks []string) {
	offset := 0
	for pair := range slices.Chunk(all, 2) {
		if pair[0] == "offset" {
			offset, _ = strconv.Atoi(pair[1])
		}
	}
	for pair := range slices.Chunk(all, 2) {
		if pair[0] == "offset" {
			continue
		}
		if at, ok := strings.CutPrefix(pair[1], "w:"); ok {
			n, _ := strconv.Atoi(at)
			below := 0
			for _, gap := range gaps {
				if gap < n {
					below++
				}
			}
			pair[1] = "w:" + decimal(n-offset-below)
		}
		locks = append(locks, payloadOf(pair[0])+"="+pair[1])
	}
	return locks
}

// entryOf lists the fields of an entry.
func entryOf(name string, all []string) (fields []string) {
	f := map[string]string{}
	for pair := range slices.Chunk(all, 2) {
		f[pair[0]] = pair[1]
	}
	if f["process"] != "" {
		delete(f, "holder")
	}
	for _, key := range []string{"process", "tried", "died", "payload", "due", "retries", "crashes", "kind", "reason", "tries", "deaths", "worker", "at", "from", "keep", "counts", "low", "high"} {
		v, there := f[key]
		if key == "died" || key == "crashes" {
			v = countOf(name, v)
		}
		if there {
			fields = append(fields, key+"="+v)
		}
		delete(f, key)
	}
	for key, v := range f {
		fields = append(fields, "and "+key+"="+v)
	}
	return fields
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
