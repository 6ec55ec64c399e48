package worqr_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

func decimal[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func digestOf(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

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

// state is what the model expects. By its form, what runs has one owner, a
// member, and a key no more than one process; and each task is in one place.
func (m *model) state() state {
	s := state{}
	s.sorted("what is wrong", m.wrong)
	var list, schedule, contents, entries, ledger, locks []string
	where := map[item]string{}
	for at, i := range m.list {
		list = append(list, i.payload)
		where[i] = "w:" + decimal(at)
	}
	for worker, runs := range m.held {
		var working []string
		for _, r := range runs {
			working = append(working, r.task.AttemptID+"="+decimal(r.task.Token))
			s.set("process:"+r.task.AttemptID, r.payload)
			where[r.item] = "p:" + r.task.AttemptID
			if r.entry != "" {
				entries = append(entries, r.task.AttemptID+"="+r.entry)
				s["keyed:"+r.entry] = fmt.Sprintf("process=%s tried=%d died=%s", r.task.AttemptID, r.tried, countOf(r.entry, decimal(r.died)))
			}
		}
		s.set("working:"+worker, working...)
	}
	for name, e := range m.entries {
		if !e.waits {
			continue
		}
		where[e.item] = "e:" + name
		contents = append(contents, e.payload+":"+name)
		fields := fmt.Sprintf("payload=%s due=%d retries=%d crashes=%s", e.payload, e.due, e.retries, countOf(name, decimal(e.crashes)))
		if e.apart {
			fields += " and digest=" + digestOf(e.payload)
		}
		if e.process != "" {
			s["keyed:"+name] += " " + fields + " " + rulesOf(e.blocked)
		} else {
			s["keyed:"+name] = fields
		}
	}
	for _, name := range m.scheduled() {
		schedule = append(schedule, name+"="+decimal(m.entries[name].due))
	}
	for payload, n := range m.ledger {
		ledger = append(ledger, payload+"="+decimal(n))
	}
	for payload, n := range m.locks {
		locks = append(locks, payload+"="+where[item{payload, n}])
	}
	s.set("queues", list...)
	s.set("schedule", schedule...)
	s.sorted("contents", contents)
	s.sorted("entries", entries)
	s.sorted("ledger", ledger)
	s.sorted("unique", locks)
	members := slices.Collect(maps.Keys(m.held))
	s.sorted("workers", members)
	if len(members) > 0 {
		s.sorted("rounds", append(members, "fence"))
	}
	if m.paused {
		s.set("paused", "1")
	}
	m.buried(s)
	return s
}

func (m *model) buried(s state) {
	var schedule, contents []string
	for _, id := range slices.Backward(m.graves()) {
		g := m.failed[id]
		schedule = append(schedule, "k:"+id+"="+decimal(g.at))
		contents = append(contents, g.payload+":k:"+id)
		s["failed:keyed:k:"+id] = fmt.Sprintf("payload=%s due=%d retries=0 crashes=0 kind=%s reason=%s tries=%d deaths=%d worker=%s at=%d from=%s",
			g.payload, g.at, g.kind, g.reason, g.tries, g.deaths, g.worker, g.at, g.from)
	}
	s.set("failed:schedule", schedule...)
	s.sorted("failed:contents", contents)
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

func (f *fleet) now() int64 {
	f.t.Helper()
	time, err := redis.Int64s(f.c.Do("TIME"))
	must(f.t, err)
	return time[0]*1000 + time[1]/1000
}

// readouts holds what the library tells of the queue against the model.
func (f *fleet) readouts() {
	t, m, q := f.t, f.m, f.q
	t.Helper()
	due, later := m.waiting(f.now())
	same(t, "Tasks", waiting(t, q), slices.Concat(due, later))
	next, err := q.Peek(f.ctx)
	if len(due) == 0 != is_(err, worqr.ErrNoTask) || len(due) > 0 && string(next) != due[0] {
		t.Errorf("Peek: %q, %v; want %q", next, err, due)
	}
	want := worqr.QueueStats{Waiting: len(m.list), Failed: len(m.failed), Workers: len(f.peers), Paused: m.paused}
	for _, e := range m.entries {
		if e.waits {
			want.Scheduled++
		}
	}
	for _, runs := range m.held {
		want.Running += len(runs)
	}
	stats, err := q.Stats(f.ctx)
	must(t, err)
	n, err := q.Len(f.ctx)
	must(t, err)
	if stats != want || n != want.Waiting+want.Scheduled {
		t.Errorf("%+v and %d, want %+v", stats, n, want)
	}
	var scheduled, planned, failed, graves []string
	asked := f.now()
	for s, err := range q.Scheduled(f.ctx) {
		must(t, err)
		if s.Key == "" {
			s.Crashes = 0 // is counted by content
		}
		at := s.DueAt.UnixMilli()
		if at >= asked && len(scheduled) < len(m.scheduled()) && m.entries[m.scheduled()[len(scheduled)]].due < 1e12 {
			at = m.entries[m.scheduled()[len(scheduled)]].due // it went back to the front, which is now
		}
		scheduled = append(scheduled, fmt.Sprintln(s.Key, string(s.Payload), at, s.Retries, s.Crashes))
	}
	for _, name := range m.scheduled() {
		e, key := m.entries[name], ""
		if isKey(name) {
			key = name[2:]
		} else {
			e.crashes = 0
		}
		planned = append(planned, fmt.Sprintln(key, e.payload, e.due, e.retries, e.crashes))
	}
	same(t, "Scheduled", scheduled, planned)
	for s, err := range q.Failed(f.ctx) {
		must(t, err)
		failed = append(failed, fmt.Sprintln(s.ID, s.Key, string(s.Payload), s.Kind, s.Error, s.Retries, s.Crashes, s.WorkerID, s.FailedAt.UnixMilli()))
	}
	for _, id := range m.graves() {
		g := m.failed[id]
		graves = append(graves, fmt.Sprintln(id, strings.TrimPrefix(g.from, "k:"), g.payload, g.kind, g.reason, g.tries, g.deaths, g.worker, g.at))
	}
	same(t, "Failed", failed, graves)
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// cancels checks that who runs something canceled is told, and nobody else;
// and that nothing is left of a cancel once nothing of it runs and the holders
// have said so.
func (f *fleet) cancels() {
	t := f.t
	t.Helper()
	want := map[string]bool{}
	for _, runs := range f.m.held {
		for _, r := range runs {
			for _, name := range r.canceledName {
				want[name] = true
			}
			if len(r.canceledName) == 0 {
				if err := r.task.Context().Err(); err != nil {
					t.Errorf("%s %s: %v", r.task.AttemptID, r.payload, context.Cause(r.task.Context()))
				}
				continue
			}
			select {
			case <-r.task.Context().Done():
				if cause := context.Cause(r.task.Context()); !is_(cause, worqr.ErrCanceled) {
					t.Errorf("%s %s: %v", r.task.AttemptID, r.payload, cause)
				}
			case <-time.After(patience):
				t.Errorf("%s %s is not canceled", r.task.AttemptID, r.payload)
			}
		}
	}
	eventually(t, "the cancel log is in order", func() bool {
		names, err := redis.Strings(f.c.Do("ZRANGE", f.prefix+":canceled:{q}", 0, -1))
		must(t, err)
		for _, name := range names {
			if !want[name] {
				return false
			}
		}
		return len(names) == len(want)
	})
}
